# SPDX-License-Identifier: Apache-2.0
"""Check whether the brokers' logs still have what was read of them (KIP-320).

Contract: :func:`diverged` returns the positions that are no longer valid, and where the log's records of their leader
epoch end. librdkafka asks the leader (OffsetForLeaderEpoch) before it fetches from a position with an epoch; if it
returns anything, a record or the end of the partition, the position is valid. Nothing is committed to a consumer group.

Failure story: no answer within the time is a :class:`SourceUnavailableError`, never "all is well". Without read rights
on a topic there is never an answer, so this is a :class:`SourceError` at once. Offsets that retention has removed are
not checked here.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_provider_lakecommit.core import ReadPosition, SourcePartition, Truncation
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.config import LastError, made, unreachable

POLL_SECONDS = 0.1
_OURS: dict[str, Any] = {
    "group.id": "lakecommit-truncation",
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # A record of an open transaction also proves the position.
    "isolation.level": "read_uncommitted",
}
_SMALL: dict[str, Any] = {
    "max.partition.fetch.bytes": 1024,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 64,
    "fetch.wait.max.ms": 10,
}
# Only the text shows it; the code is that of any offset that cannot be reset.
_TRUNCATION = str(KafkaError(KafkaError._LOG_TRUNCATION).str())
_END = re.compile(r"broker end offset is (-?\d+)")

PositionsByPartition = dict[tuple[str, int], tuple[SourcePartition, ReadPosition]]


def is_truncation(error: KafkaError) -> bool:
    """Return True if the leader reports other records in its log at a position."""
    refused = error.code() == KafkaError._AUTO_OFFSET_RESET
    return error.code() == KafkaError._LOG_TRUNCATION or (refused and _TRUNCATION in error.str())


def end_of_epoch(error: KafkaError) -> int | None:
    """Where the log's records of a position's leader epoch end, if it knows one as old."""
    found = _END.search(error.str())
    return int(found[1]) if found and int(found[1]) >= 0 else None


def diverged(
    kafka: Mapping[str, Any], positions: Iterable[tuple[SourcePartition, ReadPosition]], timeout: float
) -> list[Truncation]:
    """Return the positions that do not hold."""
    left, out = list(positions), list[Truncation]()
    if not left:
        return out
    trouble, deadline = LastError(kafka.get("error_cb")), time.monotonic() + timeout
    while left:
        # One position of each partition at a time, and each time a consumer that has not heard of another one.
        now: PositionsByPartition = {}
        for p, at in left:
            now.setdefault((p.topic, p.partition), (p, at))
        left = [position for position in left if position not in now.values()]
        consumer: Consumer = made(Consumer, kafka, trouble, **_SMALL, **_OURS)
        with closing(consumer):
            answers = _answers(consumer, now, deadline)
        out += (found for found in answers.values() if found is not None)
        if unanswered := sorted(now.keys() - answers.keys()):
            doing = f"asking for the leader epochs of {', '.join(f'{t}[{n}]' for t, n in unanswered[:4])}"
            raise unreachable(SourceUnavailableError, doing, kafka, trouble, timeout)
    return out


def _answers(
    consumer: Consumer, positions: PositionsByPartition, deadline: float
) -> dict[tuple[str, int], Truncation | None]:
    """Return the answers so far, ``None`` for a position that holds."""
    answers: dict[tuple[str, int], Truncation | None] = {}
    assignment = [
        TopicPartition(topic, n, at.offset, leader_epoch=at.leader_epoch) for (topic, n), (_, at) in positions.items()
    ]
    consumer.assign(assignment)
    while len(answers) < len(positions) and time.monotonic() < deadline:
        try:
            message = consumer.poll(POLL_SECONDS)
        except KafkaException:
            continue
        if message is None:
            continue
        _check_allowed(message)
        key = message.topic() or "", message.partition() or 0
        if key in answers or key not in positions:
            continue
        error = message.error()
        if error is not None and is_truncation(error):
            p, at = positions[key]
            answers[key] = Truncation(partition=p, position=at, end=end_of_epoch(error))
        elif error is None or error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
            answers[key] = None
        if key in answers:
            # Not `pause`: see `kafka.sample`.
            consumer.incremental_unassign([TopicPartition(*key)])
    return answers


def _check_allowed(message: Message) -> None:
    """:raises SourceError: the topic may not be read, so that none of its partitions will ever answer"""
    error = message.error()
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise SourceError(
            "LC2007",
            f"topic {message.topic()} cannot be read ({error.str()}), so its log cannot be compared with the landed "
            "one: grant this principal READ on it",
        )
