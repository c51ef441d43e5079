# SPDX-License-Identifier: Apache-2.0
"""The runs of the command line and their terminal output: one landing or a set, to its end or continuously."""
