# SPDX-License-Identifier: Apache-2.0
"""Common parts of several operators: arguments, deadlines, asset events, the jobs of a window."""
