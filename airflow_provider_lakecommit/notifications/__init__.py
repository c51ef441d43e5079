# SPDX-License-Identifier: Apache-2.0
"""Notifiers that tell once when commits stall and once when they are back."""
