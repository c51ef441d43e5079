# SPDX-License-Identifier: Apache-2.0
"""The schemas that are ours: of the dead-letter table, and of the columns that are filled from a record itself.

Contract: names and types are fixed, tables in use have them; field ids are those that a new table gets. Nothing of
Arrow is imported here, so that a plan, which only has to make or to compare tables, starts without it.
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

from airflow_provider_lakecommit.core import Role

METADATA_TYPES: dict[str, PrimitiveType] = {
    "kafka_topic": StringType(),
    "kafka_partition": IntegerType(),
    "kafka_generation": LongType(),
    "kafka_offset": LongType(),
    "kafka_timestamp": TimestamptzType(),
    "kafka_key": BinaryType(),
}
"""Columns filled from the record itself."""
_MARK_NAMES = {
    Role.ROWS: ("kafka_topic", "kafka_partition", "kafka_generation", "kafka_offset"),
    Role.DEAD_LETTERS: ("topic", "partition", "generation", "offset"),
}

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
            13,
            StructType(NestedField(14, "key", StringType(), required=True), NestedField(15, "value", BinaryType())),
            element_required=True,
        ),
    ),
    NestedField(8, "kind", StringType(), required=True),
    NestedField(9, "column", StringType()),
    NestedField(10, "reason", StringType(), required=True),
    NestedField(11, "landing", StringType(), required=True),
    NestedField(12, "generation", LongType()),
)
"""One row for each rejected record. Older tables have no ``generation``."""
OPTIONAL_DEAD_LETTER_COLUMNS = frozenset({"generation"})


def record_column_ids(schema: Schema, role: Role) -> tuple[int, ...]:
    """Return the ids of the columns with topic, partition and offset of a row's record, and with the generation if the
    table has it; empty if one of the three is missing or has another type.
    """
    topic, partition, generation, offset = _MARK_NAMES[role]
    expected = {topic: StringType(), partition: IntegerType(), offset: LongType(), generation: LongType()}
    found = {f.name: f.field_id for f in schema.fields if f.field_type == expected.get(f.name)}
    ids = [found[name] for name in expected if name in found]
    return tuple(ids) if {topic, partition, offset} <= found.keys() else ()


def mark_columns(schema: Schema, role: Role) -> tuple[int, ...]:
    """Return the ids of the columns of a table that hold topic, partition, generation and offset of a row's record;
    empty where one of them is missing or has another type.
    """
    ids = record_column_ids(schema, role)
    if len(ids) < len(_MARK_NAMES[role]):
        return ()
    topic, partition, offset, generation = ids
    return topic, partition, generation, offset
