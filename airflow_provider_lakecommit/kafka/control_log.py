# SPDX-License-Identifier: Apache-2.0
"""What is read of the control topic: records as they are on the wire, and one look at a partition's log.

Contract: nothing is decoded here. A record's headers keep their order and their repetitions; a header without a
value has an empty one. Times are those of the record, in UTC, to the millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Message

__all__ = ["ControlLog", "ControlRecord", "ControlTopicInfo", "control_record"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""A time that a producer stated may be any number: beyond this it is this."""
_LATEST_MS = (_LATEST - _EPOCH) // timedelta(milliseconds=1)


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
        timestamp=_EPOCH + timedelta(milliseconds=min(max(milliseconds, 0), _LATEST_MS)),
        key=message.key(),
        value=message.value(),
        headers=tuple((name, _bytes(value)) for name, value in _pairs(message)),
    )


def _pairs(message: Message) -> list[tuple[str, Any]]:
    headers = message.headers()
    return list(headers.items()) if isinstance(headers, dict) else list(headers or ())


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value or b"")
