# SPDX-License-Identifier: Apache-2.0
"""Read-only answers about a landing: its state, its history, and a proof of its rows."""
