# SPDX-License-Identifier: Apache-2.0
"""Pure decisions: offsets, plans, the fold over the control log, settlement, accounting. Standard library only; no I/O,
no clock.
"""
