# SPDX-License-Identifier: Apache-2.0
"""Triggers that watch control topics and topics. They need brokers only: neither a catalog nor Spark nor Java."""
