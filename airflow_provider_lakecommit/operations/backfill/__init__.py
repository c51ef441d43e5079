# SPDX-License-Identifier: Apache-2.0
"""Backfill: bounded ranges of the topics that are landed next to the live stream, each under its own name.

Such a stream has its own entry in the ledgers, with the offsets at which it ends, its own cycles, claims and budgets;
everything else is the landing's. When all of its range is in the tables, its entry is closed: its ranges go to the
landing's entry ``filled``.
"""
