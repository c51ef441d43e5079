# SPDX-License-Identifier: Apache-2.0
"""Written dead letters: which of them are open, and how they become rows, exactly once.

Contract: the data table alone decides. Its ledger has the replayed dead letters, by the same compare-and-swap that
appends their rows; the dead-letter table is only read.
"""
