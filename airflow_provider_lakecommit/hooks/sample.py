# SPDX-License-Identifier: Apache-2.0
"""A sample of a topic's records, from the begin, the middle and the end of every partition.

Contract: bounded in records, bytes and time, whichever comes first; no group is joined and no offset is committed.
Committed records only.

Failure story: brokers that do not answer are a :class:`SourceUnavailableError`; a topic that may not be read a
:class:`SourceError`. A sample that is cut short by time or bytes is a smaller sample.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.hooks.kafka_config import Trouble, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.hooks.source_topic import SourceTopics

__all__ = ["sample", "starts"]

MAX_BYTES = 64 << 20
MAX_SECONDS = 30.0
_POLL_SECONDS = 0.2
_DENIED = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)


def starts(marks: Mapping[SourcePartition, Watermark], each: int) -> list[dict[SourcePartition, int]]:
    """From which offsets to read ``each`` records: three rounds, without those that an earlier one has read."""
    rounds: list[dict[SourcePartition, int]] = [{}, {}, {}]
    for p, mark in marks.items():
        read = mark.start
        for n, wish in enumerate((mark.start, (mark.start + mark.stable) // 2, mark.stable - each)):
            first = max(wish, read)
            if first < mark.stable:
                rounds[n][p] = first
                read = first + each
    return rounds


def sample(
    kafka: Mapping[str, Any], topics: Sequence[str], records: int, *, seconds: float = MAX_SECONDS
) -> list[tuple[str, bytes | None]]:
    """Up to about ``records`` values with their places (``orders[3]@17``).

    :raises SourceError: a topic does not exist or may not be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    with SourceTopics(kafka, tuple(topics)) as source:
        marks = {p: m for p, m in source.watermarks().partitions.items() if m.start < m.stable}
    each = max(1, -(-records // (3 * max(1, len(marks)))))
    trouble, deadline, left = Trouble(), time.monotonic() + seconds, MAX_BYTES
    # A consumer needs the name of a group; it never joins it.
    ours = {"group.id": "lakecommit-sample", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer: Consumer = made(Consumer, kafka, trouble, **ours, **{"isolation.level": "read_committed"})
    out: list[tuple[str, bytes | None]] = []
    try:
        for begin in starts(marks, each):
            for message in _read(consumer, kafka, trouble, begin, each, deadline):
                value = message.value()
                out.append((f"{message.topic()}[{message.partition()}]@{message.offset()}", value))
                left -= len(value or b"")
                if left <= 0:
                    return out
    finally:
        consumer.close()
    if marks and not out:
        raise unreachable(SourceUnavailableError, f"reading {', '.join(topics)}", kafka, trouble, seconds)
    return out


def _read(
    consumer: Consumer,
    kafka: Mapping[str, Any],
    trouble: Trouble,
    begin: Mapping[SourcePartition, int],
    each: int,
    deadline: float,
) -> Iterator[Message]:
    """``each`` records of every partition from where it begins, or fewer where it ends."""
    wanted = {(p.topic, p.partition): each for p in begin}
    places = [TopicPartition(p.topic, p.partition, offset) for p, offset in begin.items()]
    consumer.assign(places)
    # Else those stay paused that an earlier round was done with.
    consumer.resume(places)
    while wanted and time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            continue
        place = (message.topic() or "", message.partition() or 0)
        if (error := message.error()) is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                wanted.pop(place, None)
            elif error.code() in _DENIED:
                raise SourceError(
                    f"reading {place[0]}: Kafka at {bootstrap_servers(kafka)} says: {error.str()}; grant this "
                    "principal READ on the topic"
                )
            continue
        if place not in wanted:
            continue
        yield message
        wanted[place] -= 1
        if not wanted[place]:
            del wanted[place]
            consumer.pause([TopicPartition(*place)])
