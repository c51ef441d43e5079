# SPDX-License-Identifier: Apache-2.0
"""Avro: from the schema that a record was written with to the rows of a table."""
