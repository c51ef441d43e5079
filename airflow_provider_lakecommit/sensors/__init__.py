# SPDX-License-Identifier: Apache-2.0
"""Sensors that check whether commits get through. They need brokers only: no catalog, Spark or Java."""
