# SPDX-License-Identifier: Apache-2.0
"""Commit: what was reported is checked and published, and the cycle is closed."""
