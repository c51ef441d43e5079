# SPDX-License-Identifier: Apache-2.0
"""Ranges of offsets whose rows are taken out of a table, and others put in their place or not."""
