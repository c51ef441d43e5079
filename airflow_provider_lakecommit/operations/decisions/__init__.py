# SPDX-License-Identifier: Apache-2.0
"""Reset: where a ledger continues, what a table holds, how a blocked range continues, what is pruned.

Each operation first reads tables, log and source. Its effect is a commit or a cycle of its own, recorded in the tables
and the control topic.
"""
