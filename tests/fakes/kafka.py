# SPDX-License-Identifier: Apache-2.0
"""Control topic and source topics in memory, as a cycle sees them.

Contract: the control log has the offsets of a real one: each transaction ends with a marker, which has an offset and is
no record; the writer that was opened last under a transactional id is the only one that can send. What both do alike is
held by ``tests/integration/test_kafka_ports.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from airflow_provider_lakecommit.control.control_log import (
    ControlLog,
    ControlRecord,
    ControlTopicInfo,
    Recent,
    recent_records,
)
from airflow_provider_lakecommit.control.control_topic_settings import partition_of
from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.headroom import Retention
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.planning.truncation import Truncation
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError, SourceError
from airflow_provider_lakecommit.kafka.source_topic import First, SourceState

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@dataclass
class Clock:
    """A clock that only a test moves."""

    now: datetime = NOON

    def __call__(self) -> datetime:
        return self.now

    def passes(self, time: timedelta) -> None:
        self.now += time


@dataclass
class FakeControl:
    """A control topic.

    :param away: raised by every read and send, while it is set
    :param before_send: called before each transaction, with its transactional id
    """

    name: str = "control"
    partitions: int = 3
    cluster_id: str = "cluster"
    topic_id: str = "control-1"
    clock: Callable[[], datetime] = field(default_factory=Clock)
    away: Exception | None = None
    kept: timedelta | None = None
    before_send: Callable[[str], None] = lambda _: None
    logs: dict[int, list[ControlRecord | None]] = field(default_factory=dict)
    begins: dict[int, int] = field(default_factory=dict)
    writers: dict[str, object] = field(default_factory=dict)
    closed: bool = False
    others: dict[str, FakeControl] = field(default_factory=dict)
    """Further topics of the cluster, by name."""
    groups: set[str] = field(default_factory=set)

    def other(self, name: str) -> FakeControl:
        return self.others.get(name, FakeControl(name=name, topic_id=""))

    def exists(self) -> bool:
        self._check()
        return bool(self.topic_id)

    def answers(self) -> bool:
        return True

    def ensure(self) -> ControlTopicInfo:
        return self.describe()

    def describe(self) -> ControlTopicInfo:
        self._check()
        return ControlTopicInfo(cluster_id=self.cluster_id, topic_id=self.topic_id, partitions=self.partitions)

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self.describe().partitions)

    def kept_for(self) -> timedelta | None:
        return self.kept

    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog:
        self._check()
        if not 0 <= partition < self.partitions:
            raise ControlTopicError(
                "LC9999", f"{self.name} has {self.partitions} partitions, so no partition {partition}"
            )
        log, begin = self.logs.get(partition, []), self.begins.get(partition, 0)
        if until is not None and until >= len(log):
            raise ControlTopicError("LC9999", f"{self.name}[{partition}] can be read to offset {len(log)} only")
        return ControlLog(
            records=tuple(r for r in log[max(begin, start or 0) :] if r is not None),
            begin=begin,
            end=len(log),
            high=len(log),
            cluster_id=self.cluster_id,
            topic_id=self.topic_id,
            partition=partition,
            partitions=self.partitions,
        )

    def read_together(self, starts: Mapping[int, int]) -> dict[int, ControlLog]:
        return {partition: self.read(partition, start) for partition, start in starts.items()}

    def first_since(self, partition: int, moment: datetime) -> int | None:
        return next((r.offset for r in self.read(partition).records if r.timestamp >= moment), None)

    def read_all(self) -> Iterator[ControlRecord]:
        records = (r for p in range(self.partitions) for r in self.read(p).records)
        return iter(sorted(records, key=lambda r: r.timestamp))

    def recent(self, prefix: str = "") -> Recent:
        return recent_records(self, prefix)

    def writer(self, transactional_id: str, partition: int) -> FakeWriter:
        return FakeWriter(self, transactional_id, partition)

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> FakeControl:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, partition: int, begin: int) -> None:
        """As retention does."""
        self.begins[partition] = begin

    def _check(self) -> None:
        if self.away is not None:
            raise self.away


class FakeWriter:
    """Opened at its first use, like the real one."""

    def __init__(self, control: FakeControl, transactional_id: str, partition: int) -> None:
        self._control, self._id, self._partition = control, transactional_id, partition
        self._opened = False

    def open(self) -> None:
        self._control.writers[self._id], self._opened = self, True

    def close(self) -> None: ...

    def __enter__(self) -> FakeWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, records: Sequence[Outgoing]) -> tuple[int, ...]:
        control = self._control
        if not self._opened:
            self.open()
        control.before_send(self._id)
        control._check()
        if control.writers[self._id] is not self:
            raise FencedError("LC9999", f"{self._id} was taken over")
        log = control.logs.setdefault(self._partition, [])
        first = len(log)
        for n, (key, value, headers) in enumerate(records):
            at = control.clock()
            log.append(
                ControlRecord(
                    partition=self._partition,
                    offset=first + n,
                    timestamp=at,
                    key=key,
                    value=value,
                    headers=tuple(headers),
                )
            )
        log.append(None)
        return tuple(range(first, first + len(records)))


@dataclass
class FakeSource:
    """Source topics, by how far each partition reaches. ``missing`` are topics that do not exist."""

    ends: dict[SourcePartition, int]
    starts: Mapping[SourcePartition, int] = field(default_factory=dict)
    held_up: Mapping[SourcePartition, int] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    cluster_id: str = "cluster"
    clock: Callable[[], datetime] = field(default_factory=Clock)
    kept: dict[str, Retention] = field(default_factory=dict)
    first_since: Callable[[SourcePartition, datetime], First] = lambda _p, _t: None
    requests: list[tuple[SourcePartition, datetime]] = field(default_factory=list)
    epochs: dict[SourcePartition, list[int]] = field(default_factory=dict)
    """Where the records of each leader epoch begin, from epoch 0 on."""
    values: Callable[[Span], int | None] = lambda _: None
    others: list[FakeSource] = field(default_factory=list)
    """Further topics of the cluster."""

    def of(self, topics: tuple[str, ...]) -> FakeSource:
        ends = {p: e for one in (self, *self.others) for p, e in one.ends.items() if p.topic in topics}
        starts = {p: o for one in (self, *self.others) for p, o in one.starts.items() if p.topic in topics}
        missing = tuple(t for t in topics if t not in {p.topic for p in ends})
        return FakeSource(ends, starts=starts, missing=missing, cluster_id=self.cluster_id, clock=self.clock)

    def watermarks(self, *, missing_ok: bool = False) -> SourceState:
        if self.missing and not missing_ok:
            raise SourceError("LC9999", f"topic {', '.join(self.missing)} does not exist")
        partitions = {
            p: Watermark(
                start=self.starts.get(p, 0),
                stable=end,
                high=end + self.held_up.get(p, 0),
                leader_epoch=len(self.epochs.get(p, [0])) - 1,
            )
            for p, end in self.ends.items()
        }
        return SourceState(
            cluster_id=self.cluster_id, requested_at=self.clock(), partitions=partitions, missing_topics=self.missing
        )

    def first_value(self, span: Span) -> int | None:
        return self.values(span)

    def request_retention(self) -> None: ...

    def retentions(self, seconds: float) -> dict[str, Retention]:
        return self.kept

    def request_first_since(
        self, times: Iterable[tuple[SourcePartition, datetime]]
    ) -> Callable[[float], list[tuple[SourcePartition, datetime, First]]]:
        requested = list(times)
        self.requests += requested
        return lambda _: [(p, t, self.first_since(p, t)) for p, t in requested]

    def diverged(self, positions: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]:
        found = [Truncation(partition=p, position=at, end=self._end(p, at.leader_epoch)) for p, at in positions]
        return [d for d in found if d.end is None or d.end < d.position.offset]

    def _end(self, p: SourcePartition, epoch: int) -> int | None:
        """Where the records of a leader epoch end."""
        begins = [*self.epochs.get(p, [0]), self.ends[p] + self.held_up.get(p, 0)]
        return begins[epoch + 1] if epoch + 1 < len(begins) else None

    def close(self) -> None: ...
