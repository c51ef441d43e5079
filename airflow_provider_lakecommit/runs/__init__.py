# SPDX-License-Identifier: Apache-2.0
"""Runs of a process that lands: one landing, several, or a set of them."""
