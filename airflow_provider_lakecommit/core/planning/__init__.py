# SPDX-License-Identifier: Apache-2.0
"""What is read next, how large windows and slices are, and whether anything is read: pure decisions over the folded
control log, the ledgers and the offsets that a source has. Standard library only; no I/O, no clock.
"""
