# SPDX-License-Identifier: Apache-2.0
"""What is in a table, read from the table (its ledger), and the one compare-and-swap that adds to it."""
