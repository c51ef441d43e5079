# SPDX-License-Identifier: Apache-2.0
"""Reset: where a ledger goes on, what a table holds, what becomes of a blocked range, what is pruned.

Each asks its question of tables, log and source first, and what it does is a commit or a cycle of its own, which the
tables and the control topic tell of.
"""
