# SPDX-License-Identifier: Apache-2.0
"""Records of the control topic as on the wire, and one read of a partition's log.

Nothing is decoded. Headers keep their order and repetitions; one without a value has an empty one. Times are UTC, to
the millisecond, limited to the calendar. A record with a header name that is no text, or with unreadable headers, has
only the header :data:`~airflow_provider_lakecommit.control.headers.CORRUPT_HEADERS`; corrupt records are replaced by
one with :data:`~airflow_provider_lakecommit.control.headers.CORRUPT_BATCH`, whose value is the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from confluent_kafka import Message

from airflow_provider_lakecommit.control.events import head
from airflow_provider_lakecommit.control.headers import CORRUPT_BATCH, CORRUPT_HEADERS, HEADER
from airflow_provider_lakecommit.core import group_id
from airflow_provider_lakecommit.exceptions import ControlTopicError, WireError
from airflow_provider_lakecommit.kafka import UNREADABLE_NAME, CorruptBatch, bounded_time, headers_of
from airflow_provider_lakecommit.signing import Place, SigningKeys

BEYOND = 1 << 62
"""An offset past every log: reading from it returns only the log's ends."""
RECENT = 2_000
"""Newest records of a partition that are read to find landings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record, not decoded. ``doubt`` is why one with our header is not trusted."""

    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTopicInfo:
    cluster_id: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLog:
    """What a partition held from the start of the read: ``begin`` is the log's first offset, ``end`` its last stable
    one, where the next read starts, and ``high`` its high watermark, above ``end`` while a transaction is open.
    """

    records: tuple[ControlRecord, ...]
    begin: int
    end: int
    high: int
    cluster_id: str
    topic_id: str
    partition: int
    partitions: int


def control_record(message: Message) -> ControlRecord:
    _, milliseconds = message.timestamp()
    return ControlRecord(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=bounded_time(milliseconds),
        key=message.key(),
        value=message.value(),
        headers=_headers(message),
    )


def corrupt_record(partition: int, batch: CorruptBatch) -> ControlRecord:
    """Return the stand-in for unreadable records, whose time is unknown."""
    return ControlRecord(
        partition=partition,
        offset=batch.start,
        timestamp=bounded_time(0),
        key=None,
        value=None,
        headers=((CORRUPT_BATCH, batch.cause.encode()),),
    )


def checked(record: ControlRecord, keys: SigningKeys | None, topic: str, where: ControlTopicInfo) -> ControlRecord:
    """Return a record with its doubt. Those of others are not signed, and not checked."""
    if keys is None or not any(name == HEADER for name, _ in record.headers):
        return record
    if not keys.needed(where.topic_id, record.partition, record.offset):
        return record
    location = Place(cluster_id=where.cluster_id, topic=topic, partition=record.partition)
    doubt = keys.doubt(location, record.key, record.value, record.headers)
    return record if doubt is None else replace(record, doubt=f"{topic} {record.partition}@{record.offset}: {doubt}")


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    found = headers_of(message)
    if found is None or any(name == UNREADABLE_NAME for name, _ in found):
        return ((CORRUPT_HEADERS, b""),)
    return tuple((name, value or b"") for name, value in found)


class LogReader(Protocol):
    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog: ...


def read_decided(control: LogReader, partition: int, start: int) -> ControlLog:
    """Return the log from ``start`` with everything sent before this call.

    A transaction is over for its sender a moment before readers can pass its markers. An open one is waited for as long
    as the control topic's timeout; then the log is returned as far as it is readable.
    """
    log = control.read(partition, start)
    if log.high <= log.end:
        return log
    try:
        rest = control.read(partition, log.end, until=log.high - 1)
    except ControlTopicError:
        return log
    return replace(rest, records=(*log.records, *rest.records))


Recent = Mapping[str, tuple[ControlRecord, ...]]
"""Records by the name of their landing, in the order of the log."""


class _Topic(LogReader, Protocol):
    def describe(self) -> ControlTopicInfo: ...


def recent_records(control: _Topic, prefix: str = "") -> dict[str, tuple[ControlRecord, ...]]:
    """Return the newest records by landing, of the names with that prefix. At most :data:`RECENT` records of each
    partition are read; unreadable ones are ignored.
    """
    found: dict[str, list[ControlRecord]] = {}
    for partition in range(control.describe().partitions):
        borders = control.read(partition, BEYOND)
        for record in control.read(partition, max(borders.begin, borders.end - RECENT)).records:
            name = landing_of(group_of(record))
            if name is not None and name.startswith(prefix):
                found.setdefault(name, []).append(record)
    return {name: tuple(records) for name, records in found.items()}


def group_of(record: ControlRecord) -> str | None:
    """Return the control group of a record, ``None`` if it is unreadable."""
    if record.value is not None and not any(name == CORRUPT_BATCH for name, _ in record.headers):
        with suppress(WireError):
            return head(record.value).group_id
    return None


def landing_of(group: str | None) -> str | None:
    """Return the landing of a control group, ``None`` if it is not one of a landing."""
    prefix = group_id("")
    return group.removeprefix(prefix) if group is not None and group.startswith(prefix) else None
