# SPDX-License-Identifier: Apache-2.0
"""Columns filled from the record itself: topic, partition, offset, timestamp, key.

Contract: only the columns that the table has are filled, in the types of
:data:`~airflow_provider_lakecommit.iceberg.schemas.METADATA_TYPES`; the table's other columns are left alone and the
order of the table's schema is kept. A record's timestamp that no table holds (none, or beyond the years 1 to 9999) is
null; :func:`lost_times` counts the second kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.iceberg.schemas import METADATA_TYPES
from airflow_provider_lakecommit.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.spark.dead_letters import Record, odd_time, record_time

__all__ = ["lost_times", "mistyped", "with_metadata"]

_OPTIONAL = {"kafka_timestamp", "kafka_key"}
_READ: dict[str, Callable[[Record], object]] = {
    "kafka_topic": lambda r: r.topic(),
    "kafka_partition": lambda r: r.partition(),
    "kafka_offset": lambda r: r.offset(),
    "kafka_timestamp": record_time,
    "kafka_key": lambda r: r.key(),
}


def mistyped(schema: Schema) -> list[str]:
    """What is wrong with the metadata columns of a table."""
    return [
        f"metadata column {f.name} is {f.field_type}{' required' * f.required}, it must be {METADATA_TYPES[f.name]}"
        f"{' and optional' * (f.name in _OPTIONAL)}"
        for f in schema.fields
        if f.name in METADATA_TYPES and (f.field_type != METADATA_TYPES[f.name] or (f.required and f.name in _OPTIONAL))
    ]


def with_metadata(rows: pa.Table, schema: Schema, records: Sequence[Record]) -> pa.Table:
    """The rows with their metadata columns; ``records`` are those of the rows, in their order."""
    target = arrow_schema(schema)
    columns = [
        pa.array(map(_READ[f.name], records), f.type, size=len(records))
        if f.name in METADATA_TYPES
        else rows.column(f.name)
        for f in target
    ]
    return pa.Table.from_arrays(columns, schema=target)


def lost_times(rows: pa.Table, records: Sequence[Record]) -> int:
    """How many of the rows have no timestamp though their records have a number for one."""
    if "kafka_timestamp" not in rows.column_names or not rows.column("kafka_timestamp").null_count:
        return 0
    return sum(odd_time(r) is not None for r in records)
