# SPDX-License-Identifier: Apache-2.0
"""Samples of a topic's records, from the beginning, the middle and the end of every partition: the records
(:func:`sample`), those of some ranges (:func:`sample_of`), single records (:func:`records_at`), or only their sizes
(:func:`sizes`).

Contract: limited by records, bytes and time, whichever comes first; joins no group and commits no offset. Committed
records only.

Failure story: unreachable brokers are a :class:`SourceUnavailableError`; a topic without read rights is a
:class:`SourceError`. A sample that time or bytes cut short is a smaller sample. Sizes are for planning only, so the
reader of the records reports why they are unknown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from airflow_provider_lakecommit.core import Coverage, OffsetRange, RangeSet, SourcePartition, Watermark
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.config import LastError, bootstrap_servers, made, unreachable
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics

MAX_BYTES = 64 << 20
MAX_SECONDS = 30.0
RANGES_BYTES = 16 << 20
SIZES_EACH = 4
SIZES_PARTITIONS = 8
SIZES_BYTES = 64 << 20
SIZES_SECONDS = 2.0
_POLL_SECONDS = 0.2

ValueOf = Callable[[Message], bytes | None]
# A consumer needs the name of a group; it never joins it.
_OURS: dict[str, Any] = {
    "group.id": "lakecommit-sample",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
}
# Of the batches that lie at a place, the first is enough; a broker gives one however big it is.
_FIRST_BATCH: dict[str, Any] = {
    "max.partition.fetch.bytes": 64 << 10,
    "queued.max.messages.kbytes": 8192,
    "fetch.queue.backoff.ms": 5,
    "fetch.wait.max.ms": 20,
}


def shares(marks: Mapping[SourcePartition, Watermark], records: int) -> dict[SourcePartition, int]:
    """Return how many records to read of each partition in each of three rounds, about ``records`` in all: what small
    partitions do not need goes to the large ones.
    """
    out, left = dict[SourcePartition, int](), records
    for n, (p, mark) in enumerate(sorted(marks.items(), key=lambda item: item[1].stable - item[1].start)):
        taken = min(mark.stable - mark.start, left // (len(marks) - n))
        out[p] = max(1, -(-taken // 3))
        left = max(0, left - taken)
    return out


def starts(
    marks: Mapping[SourcePartition, Watermark], each: Mapping[SourcePartition, int]
) -> list[dict[SourcePartition, int]]:
    """From which offsets to read ``each`` records: three rounds, without those that an earlier one has read. What three
    rounds can read whole they do.
    """
    rounds: list[dict[SourcePartition, int]] = [{}, {}, {}]
    for p, mark in marks.items():
        read, whole = mark.start, mark.stable - mark.start <= 3 * each[p]
        middle = mark.start if whole else (mark.start + mark.stable) // 2
        for n, wish in enumerate((mark.start, middle, mark.start if whole else mark.stable - each[p])):
            first = max(wish, read)
            if first < mark.stable:
                rounds[n][p] = first
                read = first + each[p]
    return rounds


def sample(
    kafka: Mapping[str, Any],
    topics: Sequence[str],
    records: int,
    *,
    seconds: float = MAX_SECONDS,
    value_of: ValueOf = Message.value,
    keys: list[bytes | None] | None = None,
) -> list[tuple[str, bytes | None]]:
    """Up to about ``records`` values with their places (``orders[3]@17``).

    :param value_of: takes the value that is meant from a record
    :param keys: gets the key of each record
    :raises SourceError: a topic does not exist or may not be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    with SourceTopics(kafka, tuple(topics)) as source:
        marks = {p: m for p, m in source.watermarks().partitions.items() if m.start < m.stable}

    def value(message: Message) -> bytes | None:
        if keys is not None:
            keys.append(message.key())
        return value_of(message)

    return [(_position_text(m), value(m)) for m in _drawn(kafka, marks, records, seconds, MAX_BYTES)]


def sample_of(
    kafka: Mapping[str, Any], ranges: Coverage, records: int, *, seconds: float, value_of: ValueOf = Message.value
) -> list[tuple[str, bytes | None]]:
    """The same of these ranges, with nothing that lies between or behind them, where as many are drawn.

    :param value_of: takes the value that is meant from a record
    :raises SourceError: a topic may not be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    own = {(p.topic, p.partition): found.ranges for p, found in ranges.parts.items()}
    drawn = _drawn(kafka, _marks(ranges.parts), records, seconds, RANGES_BYTES)
    return [(_position_text(m), value_of(m)) for m in drawn if _lies_in(m, own)]


def records_at(
    kafka: Mapping[str, Any], offsets: Coverage, *, seconds: float, value_of: ValueOf = Message.value
) -> list[tuple[str, bytes | None]]:
    """The values of these offsets, with their places, without those that the source has no more; few, as each is read
    by itself.

    :raises SourceError: a topic may not be read
    """
    if not offsets:
        return []
    queues = [[(p, offset) for r in ranges for offset in range(r.start, r.end)] for p, ranges in offsets.parts.items()]
    with closing(_Reader(kafka, seconds, _FIRST_BATCH)) as reader:
        rounds = (dict(filter(None, some)) for some in zip_longest(*queues))
        found = [m for begin in rounds for m in reader.read(begin, dict.fromkeys(begin, 1))]
    requested = {(p.topic, p.partition, offset) for queue in queues for p, offset in queue}
    return [(_position_text(m), value_of(m)) for m in found if (m.topic(), m.partition(), m.offset()) in requested]


def _position_text(message: Message) -> str:
    return f"{message.topic()}[{message.partition()}]@{message.offset()}"


def _marks(parts: Mapping[SourcePartition, RangeSet]) -> dict[SourcePartition, Watermark]:
    """Return each partition from the beginning of its ranges to the end."""
    return {
        p: Watermark(start=r.ranges[0].start, stable=r.ranges[-1].end, high=r.ranges[-1].end) for p, r in parts.items()
    }


def _drawn(
    kafka: Mapping[str, Any], marks: Mapping[SourcePartition, Watermark], records: int, seconds: float, most_bytes: int
) -> list[Message]:
    """Return so many records, each partition's share of them."""
    with closing(_Reader(kafka, seconds)) as reader:
        out = list(reader.drawn(marks, shares(marks, records), most_bytes))
        # Ranges may hold nothing but markers of transactions: then their ends came at once.
        if marks and not out and time.monotonic() >= reader.deadline:
            topics = ", ".join(sorted({p.topic for p in marks}))
            raise unreachable(SourceUnavailableError, f"reading {topics}", kafka, reader.trouble, seconds)
    return out


def _lies_in(message: Message, ranges: Mapping[tuple[str, int], Sequence[OffsetRange]]) -> bool:
    offset = message.offset() or 0
    return any(r.start <= offset < r.end for r in ranges[message.topic() or "", message.partition() or 0])


def sizes(kafka: Mapping[str, Any], ranges: Coverage) -> dict[SourcePartition, int]:
    """Return the mean size in bytes of the values in these ranges, from a few of each of the largest partitions,
    without those of which nothing was read.
    """
    most = sorted(ranges.parts.items(), key=lambda item: len(item[1]), reverse=True)[:SIZES_PARTITIONS]
    marks = _marks(dict(most))
    by_name = {(p.topic, p.partition): p for p in marks}
    counts: dict[SourcePartition, list[int]] = {}
    # The reader of the records meets and reports the error.
    with (
        suppress(KafkaException, SourceError, SourceUnavailableError),
        closing(_Reader(kafka, SIZES_SECONDS, _FIRST_BATCH)) as reader,
    ):
        for message in reader.drawn(marks, dict.fromkeys(marks, SIZES_EACH), SIZES_BYTES):
            partition = by_name[message.topic() or "", message.partition() or 0]
            counts.setdefault(partition, []).append(len(message.value() or b""))
    return {p: max(1, sum(each) // len(each)) for p, each in counts.items()}


class _Reader:
    """A consumer that reads until its time is over."""

    def __init__(
        self, kafka: Mapping[str, Any], seconds: float, settings: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._kafka = kafka
        self.trouble, self.deadline = LastError(), time.monotonic() + seconds
        self._consumer: Consumer = made(Consumer, kafka, self.trouble, **_OURS, **settings)

    def close(self) -> None:
        self._consumer.close()

    def drawn(
        self, marks: Mapping[SourcePartition, Watermark], each: Mapping[SourcePartition, int], most_bytes: int
    ) -> Iterator[Message]:
        """Yield ``each`` records from each place of every partition, until there are so many bytes."""
        left = most_bytes
        for begin in starts(marks, each):
            for message in self.read(begin, each):
                yield message
                left -= len(message.value() or b"")
                if left <= 0:
                    return

    def read(self, begin: Mapping[SourcePartition, int], each: Mapping[SourcePartition, int]) -> Iterator[Message]:
        """Yield ``each`` records of every partition from where it begins, or fewer where it ends."""
        requested = {(p.topic, p.partition): each[p] for p in begin}
        self._consumer.assign([TopicPartition(p.topic, p.partition, offset) for p, offset in begin.items()])
        while requested and time.monotonic() < self.deadline:
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            partition = (message.topic() or "", message.partition() or 0)
            if (error := message.error()) is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    requested.pop(partition, None)
                elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise SourceError(
                        "LC2005",
                        f"reading {partition[0]}: Kafka at {bootstrap_servers(self._kafka)} reports: {error.str()}; "
                        "grant this principal READ on the topic",
                    )
                continue
            if partition not in requested:
                continue
            yield message
            requested[partition] -= 1
            if not requested[partition]:
                del requested[partition]
                # Not `pause`: a partition that is paused and assigned again may never be fetched.
                self._consumer.incremental_unassign([TopicPartition(*partition)])
