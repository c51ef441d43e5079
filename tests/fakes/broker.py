# SPDX-License-Identifier: Apache-2.0
"""A Kafka cluster in memory that holds real records.

Contract: offsets, topic ids, leader epochs and log starts behave as on a broker. The tests `test_kafka_ports.py` and
`test_reads_alike.py` in `tests/integration` hold both to one contract. Nothing is replicated, compacted or compressed,
and nothing ever waits. :mod:`tests.fakes.plugged` gives it to the package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import First
from airflow_provider_lakecommit.spark.chunks import Chunk, Run, chunk_of
from tests.fakes.kafka import FakeControl, FakeSource

__all__ = ["MemoryAdmin", "MemoryBroker", "MemoryReader", "MemoryRecord", "MemorySource"]

CREATE_TIME = 1
"""The kind of a timestamp that a producer sets."""


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """A record with the methods of :class:`confluent_kafka.Message`."""

    _topic: str
    _partition: int
    _offset: int
    _key: bytes | None
    _value: bytes | None
    _millis: int
    _epoch: int
    _headers: tuple[tuple[str, bytes], ...] = ()

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return CREATE_TIME, self._millis

    def leader_epoch(self) -> int:
        return self._epoch

    def headers(self) -> list[tuple[str, bytes]] | None:
        return [*self._headers] or None

    def error(self) -> None:
        return None


@dataclass(slots=True)
class MemoryPartition:
    """One log. ``epochs`` are the offsets at which the leader epochs begin; an offset may have no record."""

    records: list[MemoryRecord] = field(default_factory=list)
    start: int = 0
    end: int = 0
    epochs: list[int] = field(default_factory=lambda: [0])

    def between(self, start: int, end: int) -> list[MemoryRecord]:
        return [r for r in self.records if max(start, self.start) <= r.offset() < end]


@dataclass(slots=True)
class MemoryTopic:
    """The newest incarnation of a topic."""

    topic_id: str
    partitions: list[MemoryPartition]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass
class MemoryBroker:
    """Topics by name. Control topics are made when they are first used."""

    cluster_id: str = "cluster"
    clock: Callable[[], datetime] = _now
    topics: dict[str, MemoryTopic] = field(default_factory=dict)
    controls: dict[str, FakeControl] = field(default_factory=dict)
    groups: dict[str, dict[tuple[str, int], int]] = field(default_factory=dict)
    """The committed offsets of consumer groups."""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The client ids of the members of consumer groups."""

    def create(self, topic: str, partitions: int) -> None:
        """Make a topic, or make it anew; consumer groups have no offsets of a topic that was deleted."""
        self.groups = {g: {p: o for p, o in at.items() if p[0] != topic} for g, at in self.groups.items()}
        self.topics[topic] = MemoryTopic(uuid4().hex, [MemoryPartition() for _ in range(partitions)])

    def grow(self, topic: str, partitions: int) -> None:
        found = self.topics[topic].partitions
        found += [MemoryPartition() for _ in range(partitions - len(found))]

    def remove_before(self, topic: str, partition: int, offset: int) -> None:
        """As retention does."""
        log = self.topics[topic].partitions[partition]
        log.start = max(log.start, min(offset, log.end))

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """The log loses its end, as in an unclean election; what comes next is of another leader epoch."""
        log = self.topics[topic].partitions[partition]
        log.records = [r for r in log.records if r.offset() < offset]
        log.end, log.start = offset, min(log.start, offset)
        # What began behind the new end is forgotten, so that the epochs before it end there.
        log.epochs[:] = [*(min(begin, offset) for begin in log.epochs), offset]

    def produce(self, topic: str, values: Sequence[tuple[Any, ...]], partition: int, *, aborted: bool = False) -> None:
        """Append keys and values, with headers behind them if there are any; those of an aborted transaction take
        offsets, as its marker does, and are no records.
        """
        log = self.topics[topic].partitions[partition]
        if aborted:
            log.end += len(values) + 1
            return
        millis = int(self.clock().timestamp() * 1000)
        for key, value, *headers in values:
            parts = (part.encode() if isinstance(part, str) else part for part in (key, value))
            epoch = len(log.epochs) - 1
            log.records.append(MemoryRecord(topic, partition, log.end, *parts, millis, epoch, tuple(headers)))
            log.end += 1

    def log(self, p: SourcePartition) -> MemoryPartition:
        """:raises SourceError: the topic is missing, was made anew, or lacks the partition"""
        topic = self.topics.get(p.topic)
        if topic is None:
            raise SourceError("LC9999", f"{p}: the topic does not exist")
        if topic.topic_id != p.topic_id:
            raise SourceError(
                "LC5045", f"{p}: topic {p.topic} has id {topic.topic_id}, the plan was made for {p.topic_id}"
            )
        if p.partition >= len(topic.partitions):
            raise SourceError("LC9999", f"{p}: topic {p.topic} has only {len(topic.partitions)} partitions")
        return topic.partitions[p.partition]

    def control(self, name: str) -> FakeControl:
        return self.controls.setdefault(
            name, FakeControl(name=name, cluster_id=self.cluster_id, topic_id=uuid4().hex, clock=self.clock)
        )

    def source(self, topics: Iterable[str]) -> MemorySource:
        return MemorySource(self, tuple(topics))


class MemoryAdmin:
    """What a landing set asks of the cluster."""

    def __init__(self, broker: MemoryBroker) -> None:
        self._broker = broker

    def listed(self) -> tuple[str, ...]:
        return tuple(self._broker.topics)

    def close(self) -> None: ...


class MemorySource:
    """The source port: what :class:`~tests.fakes.kafka.FakeSource` reports the logs as they are at each call."""

    def __init__(self, broker: MemoryBroker, topics: tuple[str, ...]) -> None:
        self._broker, self._topics = broker, topics

    def __getattr__(self, name: str) -> Any:
        return getattr(self._snapshot(), name)

    def of(self, topics: tuple[str, ...]) -> MemorySource:
        return MemorySource(self._broker, topics)

    beside = of

    def __enter__(self) -> MemorySource:
        return self

    def __exit__(self, *_: object) -> None: ...

    def _snapshot(self) -> FakeSource:
        broker = self._broker
        logs = {
            SourcePartition(name, n, topic.topic_id): log
            for name in self._topics
            if (topic := broker.topics.get(name)) is not None
            for n, log in enumerate(topic.partitions)
        }
        return FakeSource(
            ends={p: log.end for p, log in logs.items()},
            starts={p: log.start for p, log in logs.items()},
            missing=tuple(name for name in self._topics if name not in broker.topics),
            cluster_id=broker.cluster_id,
            clock=broker.clock,
            first_since=lambda p, moment: _first_since(logs[p], moment),
            epochs={p: log.epochs for p, log in logs.items()},
            values=lambda span: _first_value(logs, span),
        )


def _first_since(log: MemoryPartition, moment: datetime) -> First:
    millis = int(moment.timestamp() * 1000)
    found = next((r for r in log.between(log.start, log.end) if r.timestamp()[1] >= millis), None)
    return None if found is None else (found.offset(), datetime.fromtimestamp(found.timestamp()[1] / 1000, UTC))


def _first_value(logs: Mapping[SourcePartition, MemoryPartition], span: Span) -> int | None:
    if (log := logs.get(span.partition)) is None:
        return None
    records = log.between(span.range.start, span.range.end)
    return next((r.offset() for r in records if r.value() is not None), None)


class MemoryReader:
    """Reads spans as :class:`~airflow_provider_lakecommit.spark.read.SliceReader` does."""

    def __init__(
        self,
        broker: MemoryBroker,
        spans: Sequence[Span],
        *,
        should_stop: Callable[[], bool] = lambda: False,
        known: Mapping[SourcePartition, ReadPosition] = MappingProxyType({}),
        **_: Any,
    ) -> None:
        self._broker, self._spans, self._should_stop, self._known = broker, spans, should_stop, known
        self.observed: dict[int, ReadPosition] = {}
        self.reached: dict[int, int] = {}
        self.stopped = False

    def __enter__(self) -> MemoryReader:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self) -> Iterator[Chunk]:
        messages: list[Any] = []
        runs: list[Run] = []
        for n, span in enumerate(self._spans):
            if self._should_stop():
                self.stopped = True
                break
            found = self._records(span)
            if found:
                runs.append(Run(n, len(messages), len(messages) + len(found)))
                messages += found
            self.reached[n] = span.range.end
        if messages:
            yield chunk_of(messages, runs)

    def _records(self, span: Span) -> list[MemoryRecord]:
        """:raises SourceError: the log has not all of a span, or is another one than was read before"""
        log, p, r = self._broker.log(span.partition), span.partition, span.range
        known = self._known.get(p)
        if known is not None and known.offset == r.start and self._broker.source((p.topic,)).diverged([(p, known)]):
            raise SourceError(
                "LC9999", f"{span} cannot be read: the partition's log is another one than was read up to {r.start}"
            )
        if r.start < log.start:
            removed = OffsetRange(r.start, min(log.start, r.end))
            raise SourceError(
                "LC9999",
                f"{span}: {removed} is no longer in the topic, which begins at {log.start}",
                (Span(p, removed),),
            )
        if r.end > log.end:
            raise SourceError("LC9999", f"{span} was planned, but the partition ends at {log.end}")
        found = log.between(r.start, r.end)
        if found:
            position = ReadPosition(offset=found[-1].offset() + 1, leader_epoch=found[-1].leader_epoch())
            self.observed[self._spans.index(span)] = position
        return found
