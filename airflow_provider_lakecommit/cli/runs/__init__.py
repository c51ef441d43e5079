# SPDX-License-Identifier: Apache-2.0
"""The runs that a command starts, and what they say on a terminal: one landing or a set, to its end or continuously."""
