# SPDX-License-Identifier: Apache-2.0
"""The dead-letter table: one row per rejected record, with all that is needed to repair and replay it.

Contract: the table has :data:`~airflow_provider_lakecommit.iceberg.schemas.DEAD_LETTER_SCHEMA` and is not partitioned.
``kind`` is that of the decoder's reject, ``not_routed``, ``missing_table`` or ``transform_failed``, or ``wrong_key`` or
``wrong_header``; ``column`` is the column that refused the record, if any. ``reason`` ends with what the columns cannot
hold: the number of a timestamp beyond the years 1 to 9999 (then null), a header whose name is not UTF-8 (then named
:data:`~airflow_provider_lakecommit.kafka.record.UNREADABLE_NAME`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.formats import Reject
from airflow_provider_lakecommit.iceberg import DEAD_LETTER_SCHEMA, arrow_schema
from airflow_provider_lakecommit.kafka import NO_TIME, UNREADABLE_NAME, Headers, headers_of, time_of

_NO_TIMESTAMP = 0


class Record(Protocol):
    """The used part of a consumed Kafka message."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


def record_time(record: Record) -> datetime | None:
    """Return the record's timestamp of either type; ``None`` if it has none that a table can hold."""
    kind, millis = record.timestamp()
    return None if kind == _NO_TIMESTAMP else time_of(millis)


def odd_time(record: Record) -> int | None:
    """Return the number of a timestamp that no table can hold."""
    kind, millis = record.timestamp()
    return None if kind == _NO_TIMESTAMP or millis == NO_TIME or time_of(millis) is not None else millis


def dead_letters(
    landing: str,
    records: Sequence[Record],
    rejects: Iterable[Reject],
    generation: int | None = None,
    schema: Schema = DEAD_LETTER_SCHEMA,
) -> pa.Table:
    """Return rows for the rejects among these records.

    :param rejects: each with its record's position as ``index``
    :param generation: generation of the reading
    :param schema: the table's schema, which may lack `generation` and have its own field ids
    """
    rows = [{**_row(landing, records[r.index], r), "generation": generation} for r in rejects]
    return pa.Table.from_pylist(rows, schema=arrow_schema(schema))


def _row(landing: str, record: Record, reject: Reject) -> dict[str, Any]:
    headers = headers_of(record)
    return {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record_time(record),
        "key": record.key(),
        "value": record.value(),
        "headers": [{"key": k, "value": v} for k, v in headers] if headers else None,
        "kind": reject.kind,
        "column": reject.column,
        "reason": reject.reason + _unrepresentable(record, headers),
        "landing": landing,
    }


def _unrepresentable(record: Record, headers: Headers | None) -> str:
    """Return what the columns of the row leave out."""
    text = ""
    if (millis := odd_time(record)) is not None:
        text += f"; its timestamp {millis} is beyond the years 1 to 9999"
    if headers is None:
        text += "; its headers cannot be read"
    elif any(name == UNREADABLE_NAME for name, _ in headers):
        text += "; the name of a header is not UTF-8"
    return text
