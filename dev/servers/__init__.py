# SPDX-License-Identifier: Apache-2.0
"""Servers that tests, the demo and the local stack run on."""
