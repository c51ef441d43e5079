# SPDX-License-Identifier: Apache-2.0
"""Rows to Parquet files: writer, statistics, partitions, sorting."""
