# SPDX-License-Identifier: Apache-2.0
"""Columns filled from the record itself: topic, partition, generation of the reading, offset, timestamp, key.

Contract: only the columns that the table has are filled, in the types of
:data:`~airflow_provider_lakecommit.iceberg.schemas.METADATA_TYPES`; the table's other columns are left alone and the
order of the table's schema is kept. A timestamp that no table holds (none, or beyond the years 1 to 9999) is
null; :func:`lost_times` counts the second kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.iceberg import METADATA_TYPES, arrow_schema
from airflow_provider_lakecommit.spark.dead_letters import Record, odd_time, record_time

_OPTIONAL = {"kafka_generation", "kafka_timestamp", "kafka_key"}
_GENERATION = "kafka_generation"
Generation = int | None | Sequence[int | None]
_READ: dict[str, Callable[[Record], object]] = {
    "kafka_topic": lambda r: r.topic(),
    "kafka_partition": lambda r: r.partition(),
    "kafka_offset": lambda r: r.offset(),
    "kafka_timestamp": record_time,
    "kafka_key": lambda r: r.key(),
}


def mistyped(schema: Schema, filled: Collection[str]) -> list[str]:
    """Return what is wrong with a table's metadata columns."""
    return [
        f"metadata column {f.name} is {f.field_type}{' required' * f.required}, it must be {METADATA_TYPES[f.name]}"
        f"{' and optional' * (f.name in _OPTIONAL)}"
        for f in schema.fields
        if f.name in filled and (f.field_type != METADATA_TYPES[f.name] or (f.required and f.name in _OPTIONAL))
    ]


def with_metadata(
    rows: pa.Table, schema: Schema, records: Sequence[Record], filled: Collection[str], generation: Generation
) -> pa.Table:
    """Return the rows with the metadata columns filled.

    :param records: the records of the rows, in order
    :param generation: generation of the reading, or of each record
    """
    target = arrow_schema(schema)
    if not any(f.name in filled for f in target):
        return rows
    columns = [_column(f, records, generation) if f.name in filled else rows.column(f.name) for f in target]
    return pa.Table.from_arrays(columns, schema=target)


def _column(field: pa.Field, records: Sequence[Record], generation: Generation) -> pa.Array:
    if field.name == _GENERATION:
        if isinstance(generation, Sequence):
            return pa.array(generation, field.type)
        return pa.repeat(pa.scalar(generation, field.type), len(records))
    return pa.array(map(_READ[field.name], records), field.type, size=len(records))


def lost_times(rows: pa.Table, records: Sequence[Record], filled: Collection[str]) -> int:
    """Return how many rows have no timestamp although their record has a number for it."""
    there = "kafka_timestamp" in filled and "kafka_timestamp" in rows.column_names
    if not there or not rows.column("kafka_timestamp").null_count:
        return 0
    return sum(odd_time(r) is not None for r in records)
