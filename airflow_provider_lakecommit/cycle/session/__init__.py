# SPDX-License-Identifier: Apache-2.0
"""The connections of one landing: its brokers, its catalog, its tables, and its settings for writers.

Used by the steps of a cycle, the operations and the checks, which share one session in a process.
"""
