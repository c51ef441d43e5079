# SPDX-License-Identifier: Apache-2.0
"""Commit: check and publish reported slices, and close the cycle."""
