# SPDX-License-Identifier: Apache-2.0
"""The schemas that are ours: of the dead-letter table, and of the columns that are filled from a record itself.

Contract: field ids and types are fixed, tables in use have them. Nothing of Arrow is imported here, so that a plan,
which only has to make or to compare tables, starts without it.
"""

from __future__ import annotations

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestamptzType,
)

__all__ = ["DEAD_LETTER_SCHEMA", "METADATA_TYPES"]

METADATA_TYPES: dict[str, PrimitiveType] = {
    "kafka_topic": StringType(),
    "kafka_partition": IntegerType(),
    "kafka_offset": LongType(),
    "kafka_timestamp": TimestamptzType(),
    "kafka_key": BinaryType(),
}
"""Columns filled under ``metadata_columns``."""

DEAD_LETTER_SCHEMA = Schema(
    NestedField(1, "topic", StringType(), required=True),
    NestedField(2, "partition", IntegerType(), required=True),
    NestedField(3, "offset", LongType(), required=True),
    NestedField(4, "timestamp", TimestamptzType()),
    NestedField(5, "key", BinaryType()),
    NestedField(6, "value", BinaryType()),
    NestedField(
        7,
        "headers",
        ListType(
            12,
            StructType(NestedField(13, "key", StringType(), required=True), NestedField(14, "value", BinaryType())),
            element_required=True,
        ),
    ),
    NestedField(8, "kind", StringType(), required=True),
    NestedField(9, "column", StringType()),
    NestedField(10, "reason", StringType(), required=True),
    NestedField(11, "landing", StringType(), required=True),
)
"""One row for each rejected record."""
