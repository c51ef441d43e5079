# SPDX-License-Identifier: Apache-2.0
"""Backfill: bounded ranges of the topics that are landed beside the live stream, each under a name of its own.

Such a lane has its own section in the ledgers, with the offsets at which it ends, its own cycles, claims and budgets;
everything else is the landing's. When all of its range is in the tables, its section is closed: what it has landed
goes to the landing's section ``filled``.
"""
