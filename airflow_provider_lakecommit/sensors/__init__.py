# SPDX-License-Identifier: Apache-2.0
"""Sensors that look at how commits stand. They need brokers only: neither a catalog nor Spark nor Java."""
