# SPDX-License-Identifier: Apache-2.0
"""What is read of the control topic: records as they are on the wire, and one look at a partition's log.

Contract: nothing is decoded here. A record's headers keep their order and their repetitions; a header without a
value has an empty one; headers that the client cannot tell are none, so that the record is nobody's. Times are those of
the record, in UTC, to the millisecond; one that no calendar has is the nearest that can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from confluent_kafka import Message

from airflow_provider_lakecommit.kafka.record import bounded_time, headers_of

__all__ = ["ControlLog", "ControlRecord", "ControlTopicInfo", "control_record"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRecord:
    """One record of the control topic, not decoded."""

    partition: int
    offset: int
    timestamp: datetime
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


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
    """A record of the client as one of ours."""
    _, milliseconds = message.timestamp()
    return ControlRecord(
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=bounded_time(milliseconds),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, value or b"") for name, value in headers_of(message) or ()),
    )
