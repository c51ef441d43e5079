# SPDX-License-Identifier: Apache-2.0
"""Cycle after cycle: until a landing is caught up, or continuously; of one landing or of a set."""
