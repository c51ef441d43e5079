# SPDX-License-Identifier: Apache-2.0
"""The committer: what is in a table, read from the table, and the one compare-and-swap that adds to it."""
