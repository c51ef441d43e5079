# SPDX-License-Identifier: Apache-2.0
"""Brokers, source topics and the control topic."""
