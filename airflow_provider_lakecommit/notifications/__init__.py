# SPDX-License-Identifier: Apache-2.0
"""Notifiers that report once when commits stall and once when they recover."""
