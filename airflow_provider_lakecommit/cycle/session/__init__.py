# SPDX-License-Identifier: Apache-2.0
"""The connections of one landing: its brokers, its catalog, its tables, and what it hands on to its writers.

Below the steps of a cycle, the operations and the checks, which share one session where they run in one process.
"""
