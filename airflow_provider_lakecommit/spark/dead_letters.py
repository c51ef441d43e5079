# SPDX-License-Identifier: Apache-2.0
"""The dead-letter table: one row for each rejected record, with all that is needed to repair and replay it.

Contract: the table has :data:`~airflow_provider_lakecommit.iceberg.schemas.DEAD_LETTER_SCHEMA` and is not partitioned.
``kind`` is one of ``not_json``, ``wrong_value``, ``missing_required``, ``unknown_field``; ``column`` is the column that
refused the record, if it was one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa

from airflow_provider_lakecommit.formats.decoder import Reject
from airflow_provider_lakecommit.iceberg.schemas import DEAD_LETTER_SCHEMA
from airflow_provider_lakecommit.parquet.arrow_types import arrow_schema

__all__ = ["Record", "dead_letters", "record_time"]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_TIMESTAMP = 0


class Record(Protocol):
    """What is used of a consumed Kafka message."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


def record_time(record: Record) -> datetime | None:
    """The record's timestamp, whoever set it; ``None`` when it has none."""
    kind, millis = record.timestamp()
    return None if kind == _NO_TIMESTAMP else _EPOCH + timedelta(milliseconds=millis)


def dead_letters(landing: str, records: Sequence[Record], rejects: Iterable[Reject]) -> pa.Table:
    """Rows for the rejects among these records; a reject's ``index`` is the place of its record."""
    rows = [_row(landing, records[r.index], r) for r in rejects]
    return pa.Table.from_pylist(rows, schema=arrow_schema(DEAD_LETTER_SCHEMA))


def _row(landing: str, record: Record, reject: Reject) -> dict[str, Any]:
    headers = record.headers()
    return {
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record_time(record),
        "key": record.key(),
        "value": record.value(),
        "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
        "kind": reject.kind,
        "column": reject.column,
        "reason": reject.reason,
        "landing": landing,
    }
