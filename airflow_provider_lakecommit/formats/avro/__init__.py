# SPDX-License-Identifier: Apache-2.0
"""Avro records to Arrow."""
