# SPDX-License-Identifier: Apache-2.0
"""The control topic of many landings: each partition is read once for all of them, and their records are sent together.

Contract: each landing has its own port, which answers like
:class:`~airflow_provider_lakecommit.control.control_topic.ControlTopic`, but yields only the records of its own landing
and unreadable ones. Ownership is computed once. Concurrent callers share a read, which begins after each of their
calls. Concurrent sends are one transaction per partition.

Invariants: the set's transactions use few ids (:data:`WRITERS` per partition) instead of one per landing and cycle.
This fences a dead process of the set, whose open transaction would hold up readers. It does not fence a landing's other
planner, and need not: the log's order decides claims, slots and reports, so two that do not see each other only lose
work. A fenced writer continues under the next id.

Failure story: if a transaction for several fails because of one (a too large record), each is sent by itself. An
unknown outcome is unknown for all in it; the log has the answer.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from airflow_provider_lakecommit.control import (
    RECENT,
    ControlLog,
    ControlRecord,
    ControlTopic,
    ControlTopicInfo,
    ControlWriter,
    Outgoing,
    Recent,
    group_of,
    landing_of,
    offset_of,
    partition_of,
)
from airflow_provider_lakecommit.core import LIVE, group_id, transactional_id
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND
from airflow_provider_lakecommit.cycle.session.ports import ControlPort, WriterPort
from airflow_provider_lakecommit.cycle.sets.combined import Combined
from airflow_provider_lakecommit.exceptions import FencedError, WireError

WRITERS = 8
"""Ids per partition: so many processes of a set may send at once without fencing each other."""
TOGETHER = 200
"""Most landings whose records are sent in one transaction."""
KNOWN_SECONDS = 10.0
"""How long the topic's description is cached."""
GATHER_SECONDS = 0.03
"""How long a request waits for others to join it."""
POLL_SECONDS = 0.02
OWN_SECONDS = 30.0
"""How long to wait for one's own record."""

RECENT_OF_EACH = 20
"""Further records to read for former landings, per landing of the set."""

MOST_RECORDS = 40_000
"""Records of a partition to keep by owner; an earlier start reads the log again."""


class SharedControl:
    """One control topic.

    :param topic: its maker closes it
    :param name: name of the set, for its ids
    :param deployment: the owner of the ids
    :param landings: how many landings the set has
    """

    def __init__(self, topic: ControlTopic, name: str, deployment: str, landings: int = 0) -> None:
        self.topic = topic
        self._name, self._deployment = name, deployment
        self._most = min(RECENT + RECENT_OF_EACH * landings, MOST_RECORDS)
        self._reads = Combined[tuple[int, int, str], ControlLog](self._read, gather=GATHER_SECONDS)
        self._logs: dict[int, _PartitionLog] = {}
        self._outboxes: dict[int, _Outbox] = {}
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._info: tuple[ControlTopicInfo, float] | None = None

    def of(self, landing: str) -> ControlPort:
        """Return the port of one landing."""
        self.topic.groups.add(group_id(landing))
        return _LandingControl(self, landing)

    def info(self, *, ensure: bool = False) -> ControlTopicInfo:
        """Return the topic's recent description."""
        with self._asking:
            if self._info is None or self._info[1] < time.monotonic():
                found = self.topic.ensure() if ensure else self.topic.describe()
                self._info = found, time.monotonic() + KNOWN_SECONDS
            return self._info[0]

    def log_of(self, partition: int, start: int, landing: str) -> ControlLog:
        """Return the log of one landing, from an offset on."""
        return self._reads.request((partition, start, group_id(landing)))

    def recent(self, prefix: str = "") -> dict[str, tuple[ControlRecord, ...]]:
        """Return the newest records of the landings whose names begin with the prefix.

        :raises ControlTopicError: the topic cannot be read
        """
        found: dict[str, tuple[ControlRecord, ...]] = {}
        for partition in range(self.info().partitions):
            borders = self.log_of(partition, BEYOND, "")
            start, log = max(borders.begin, borders.end - self._most), self._logs[partition]
            if not log.holds(start):
                self.log_of(partition, start, "")
            for name in (each for each in log.names() if each.startswith(prefix)):
                found[name] = (*found.get(name, ()), *log.of(group_id(name), 0))
        return found

    def outbox(self, partition: int) -> _Outbox:
        """Return the records to send to a partition."""
        with self._lock:
            if partition not in self._outboxes:
                self._outboxes[partition] = _Outbox(partial(self._writer, partition))
            return self._outboxes[partition]

    def close(self) -> None:
        """Close the writers."""
        for outbox in self._outboxes.values():
            outbox.close()

    def _writer(self, partition: int, number: int) -> ControlWriter:
        own = transactional_id(self._name, LIVE, self._deployment, number % WRITERS, f"set-{partition}")
        return self.topic.writer(own, partition)

    def _read(self, requests: Sequence[tuple[int, int, str]]) -> Sequence[ControlLog]:
        starts: dict[int, int] = {}
        for partition, start, _ in requests:
            starts[partition] = min(start, starts.get(partition, start))
        found = self.topic.read_together(starts)
        for partition, log in found.items():
            mine = self._logs.setdefault(partition, _PartitionLog())
            # A caller that only needs the bounds has read nothing.
            if starts[partition] <= log.end:
                mine.take(log, starts[partition])
        own = [self._logs[partition].of(group, start) for partition, start, group in requests]
        return [replace(found[partition], records=some) for (partition, *_), some in zip(requests, own, strict=True)]


class _PartitionLog:
    """The records read of one partition, by owner. Not thread-safe."""

    def __init__(self) -> None:
        self._groups: dict[str, list[ControlRecord]] = {}
        self._nobodys: list[ControlRecord] = []
        self._topic = ""
        self._first = self._next = self._count = 0

    def take(self, log: ControlLog, start: int) -> None:
        """Add a read that began at *start*."""
        begin = max(start, log.begin)
        other = log.topic_id != self._topic or log.end < self._next
        if other or self._count > MOST_RECORDS or not self.holds(begin):
            self._groups, self._nobodys, self._count = {}, [], 0
            self._topic, self._first, self._next = log.topic_id, begin, begin
        new = log.records[bisect_left(log.records, self._next, key=offset_of) :]
        for record in new:
            group = group_of(record)
            (self._nobodys if group is None else self._groups.setdefault(group, [])).append(record)
        self._count += len(new)
        self._next = log.end

    def of(self, group: str, start: int) -> tuple[ControlRecord, ...]:
        """Return the records of a group, and those without an owner."""
        own = self._groups.get(group, [])
        found = [*own[bisect_left(own, start, key=offset_of) :], *(r for r in self._nobodys if r.offset >= start)]
        return tuple(sorted(found, key=offset_of) if self._nobodys else found)

    def holds(self, start: int) -> bool:
        """Return True if it was read from that offset on."""
        return bool(self._topic) and self._first <= start <= self._next

    def names(self) -> list[str]:
        """Return the landings that have records here."""
        return [name for group in list(self._groups) if (name := landing_of(group)) is not None]


class _Outbox:
    """The records to send to one partition.

    :param make: makes a writer by its number
    """

    def __init__(self, make: Callable[[int], ControlWriter]) -> None:
        self._make = make
        self._sends = Combined[Sequence[Outgoing], tuple[int, ...]](
            self._send_all, most=TOGETHER, gather=GATHER_SECONDS
        )
        self._number = 0
        self._writer: ControlWriter | None = None

    def send(self, records: Sequence[Outgoing]) -> tuple[int, ...]:
        """Send in one transaction, possibly with others' records."""
        return self._sends.request(records)

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _send_all(self, requests: Sequence[Sequence[Outgoing]]) -> Sequence[tuple[int, ...] | Exception]:
        try:
            offsets = iter(self._sent([record for records in requests for record in records]))
            return [tuple(next(offsets) for _ in records) for records in requests]
        except WireError as e:
            return [e] if len(requests) == 1 else [each for records in requests for each in self._send_all([records])]

    def _sent(self, records: Sequence[Outgoing]) -> tuple[int, ...]:
        for _ in range(WRITERS):
            self._writer = self._writer or self._make(self._number)
            try:
                return self._writer.send(records)
            except FencedError:
                # Fenced by another process of the set that is also sending.
                self.close()
                self._number += 1
            except BaseException:
                # The broker aborts its open transaction with it.
                self.close()
                raise
        raise FencedError(
            "LC6232", f"other processes took over all {WRITERS} ids of this set while it was sending; try again"
        )


class _LandingControl:
    """The port of one landing."""

    def __init__(self, shared: SharedControl, landing: str) -> None:
        self._shared = shared
        self._landing = landing
        self.name = shared.topic.name

    def other(self, name: str) -> ControlPort:
        return self._shared.topic.other(name)

    def exists(self) -> bool:
        return self._shared.topic.exists()

    def answers(self) -> bool:
        return self._shared.topic.answers()

    def ensure(self) -> ControlTopicInfo:
        return self._shared.info(ensure=True)

    def describe(self) -> ControlTopicInfo:
        return self._shared.info()

    def partition_for(self, group_id: str) -> int:
        return partition_of(group_id, self.describe().partitions)

    def kept_for(self) -> timedelta | None:
        return self._shared.topic.kept_for()

    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog:
        deadline = time.monotonic() + OWN_SECONDS
        while True:
            log = self._shared.log_of(partition, start or 0, self._landing)
            if until is None or log.end > until:
                return log
            if time.monotonic() > deadline:
                # The error names the landing in the way.
                return self._shared.topic.read(partition, start, until=until)
            time.sleep(POLL_SECONDS)

    def first_since(self, partition: int, moment: datetime) -> int | None:
        return self._shared.topic.first_since(partition, moment)

    def read_all(self) -> Iterator[ControlRecord]:
        return self._shared.topic.read_all()

    def recent(self, prefix: str = "") -> Recent:
        return self._shared.recent(prefix)

    def writer(self, transactional_id: str, partition: int) -> AbstractContextManager[WriterPort]:
        return nullcontext(self._shared.outbox(partition))

    def close(self) -> None:
        """Keep the shared connections open."""
