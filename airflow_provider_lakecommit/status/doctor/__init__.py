# SPDX-License-Identifier: Apache-2.0
"""Check everything that a landing needs at once before it runs."""
