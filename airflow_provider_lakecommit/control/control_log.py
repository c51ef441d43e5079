# SPDX-License-Identifier: Apache-2.0
"""What is read of the control topic: records as they are on the wire, and one look at a partition's log.

Contract: nothing is decoded here. A record's headers keep their order and their repetitions; a header without a
value has an empty one. Times are those of the record, in UTC, to the millisecond; one beyond any calendar becomes the
nearest that can be reckoned with.

Failure story: names of headers are bytes to Kafka and text to the client. A record with a name that is no text, or with
headers that the client cannot tell, has one header for all of them:
:data:`~airflow_provider_lakecommit.control.headers.DAMAGED_HEADERS`. Records that are not what was written have one in
their place, with what is wrong in its header: :data:`~airflow_provider_lakecommit.control.headers.DAMAGED_BATCH`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from confluent_kafka import Message

from airflow_provider_lakecommit.control.headers import DAMAGED_BATCH, DAMAGED_HEADERS, HEADER
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.kafka import UNREADABLE_NAME, DamagedBatch, bounded_time, headers_of
from airflow_provider_lakecommit.signing import Place, SigningKeys

BEYOND = 1 << 62
"""An offset past every log: reading from it tells the borders only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record of the control topic, not decoded. ``doubt`` says why one with our header is not believed."""

    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    doubt: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlTopicInfo:
    """Which topic it is."""

    cluster_id: str
    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlLog:
    """What a partition held from where the read started.

    :param begin: first offset of the log.
    :param end: its last stable offset, where the next read starts.
    :param high: its high watermark; above ``end`` while a transaction is open.
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


def damaged_record(partition: int, batch: DamagedBatch) -> ControlRecord:
    """What stands in the place of records that cannot be read; nobody knows when they were written."""
    return ControlRecord(
        partition=partition,
        offset=batch.start,
        timestamp=bounded_time(0),
        key=None,
        value=None,
        headers=((DAMAGED_BATCH, batch.said.encode()),),
    )


def checked(record: ControlRecord, keys: SigningKeys | None, topic: str, where: ControlTopicInfo) -> ControlRecord:
    """A record with what speaks against believing it. Those of others are not signed, and nothing is asked of them."""
    if keys is None or not any(name == HEADER for name, _ in record.headers):
        return record
    if not keys.needed(where.topic_id, record.partition, record.offset):
        return record
    place = Place(cluster_id=where.cluster_id, topic=topic, partition=record.partition)
    doubt = keys.doubt(place, record.key, record.value, record.headers)
    return record if doubt is None else replace(record, doubt=f"{topic} {record.partition}@{record.offset}: {doubt}")


def _headers(message: Message) -> tuple[tuple[str, bytes], ...]:
    found = headers_of(message)
    if found is None or any(name == UNREADABLE_NAME for name, _ in found):
        return ((DAMAGED_HEADERS, b""),)
    return tuple((name, value or b"") for name, value in found)


class LogReader(Protocol):
    """What reads the partitions of one control topic."""

    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog: ...


def read_decided(control: LogReader, partition: int, start: int) -> ControlLog:
    """The log from ``start`` to all that was sent before this call.

    A transaction is over for its sender a moment before its markers let readers pass. A transaction that stays open is
    waited for as long as the control topic's timeout; then the log is taken as far as it can be read.
    """
    log = control.read(partition, start)
    if log.high <= log.end:
        return log
    try:
        rest = control.read(partition, log.end, until=log.high - 1)
    except ControlTopicError:
        return log
    return replace(rest, records=(*log.records, *rest.records))
