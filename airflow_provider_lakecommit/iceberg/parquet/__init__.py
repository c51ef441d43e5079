# SPDX-License-Identifier: Apache-2.0
"""Rows to Parquet files: layout, order, partitions, statistics."""
