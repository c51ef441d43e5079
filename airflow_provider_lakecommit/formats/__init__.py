# SPDX-License-Identifier: Apache-2.0
"""Bytes of records to rows: one decoder per format, and what may be inferred from a sample."""
