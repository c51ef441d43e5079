# SPDX-License-Identifier: Apache-2.0
"""What every step of a landing works through: its connections, its tables, and what it hands on to its writers.

Below the steps of a cycle, the commands and the checks, which share one session where they run in one process.
"""
