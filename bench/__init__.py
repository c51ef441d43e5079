# SPDX-License-Identifier: Apache-2.0
"""Measurements of the data plane against a plain process that does the same work without Spark."""
