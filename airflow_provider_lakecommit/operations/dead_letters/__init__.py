# SPDX-License-Identifier: Apache-2.0
"""Dead letters after they were written: which of them are open, and how they become rows after all, exactly once.

Contract: the truth is in the data table alone. Its ledger says which dead letters were replayed, by the same
compare-and-swap that appends their rows; the dead-letter table is only read.
"""
