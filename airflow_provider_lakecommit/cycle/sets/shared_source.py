# SPDX-License-Identifier: Apache-2.0
"""The source topics of many landings, read together.

Contract: each landing has its own port, which answers like
:class:`~airflow_provider_lakecommit.kafka.source_topic.SourceTopics` of its topics. All ports share one client, one
read of all topics, and one request for concurrent questions. A landing uses each read once: its next call gets a newer
one.

Failure story: if the read of all topics fails (one may not be described, one has no leader), each landing reads its own
through the same client: so the failing topic affects only its landing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from airflow_provider_lakecommit.core import ReadPosition, Retention, SourcePartition, Span, Truncation, Watermark
from airflow_provider_lakecommit.cycle.session.ports import SourcePort
from airflow_provider_lakecommit.cycle.sets.combined import Combined
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.kafka import First, SourceState, SourceTopics

FRESH_SECONDS = 10.0
"""How long a read may be used by a landing that has not used it."""
RETENTION_SECONDS = 60.0
"""How long a topic's retention is cached."""

Times = list[tuple[SourcePartition, datetime]]
Firsts = list[tuple[SourcePartition, datetime, First]]
Positions = list[tuple[SourcePartition, ReadPosition]]
Reading = tuple[SourceState, Mapping[str, Mapping[SourcePartition, Watermark]]]
"""The result of a read, and its partitions by topic."""


class SharedSource:
    """All topics of a set.

    :param topics: topics of all its landings; their maker closes them
    """

    def __init__(self, topics: SourceTopics) -> None:
        self.topics = topics
        self.first = Combined[tuple[Times, float], Firsts](self._request_first)
        self.logs = Combined[Positions, list[Truncation]](self._request_logs)
        self._reading = threading.Lock()
        self._number = 0
        self._fresh_until = 0.0
        self._newest: Reading | None = None
        self._retentions = Combined[float, dict[str, Retention]](self._request_retentions)
        self._kept: tuple[dict[str, Retention], float] = {}, 0.0

    def of(self, topics: tuple[str, ...]) -> SourcePort:
        """Return the port of one landing."""
        return _LandingSource(self, topics)

    def newer_than(self, number: int) -> tuple[int, Reading | None]:
        """Return a read with a greater number, and its result; ``None`` if it failed."""
        with self._reading:
            if self._number <= number or time.monotonic() > self._fresh_until:
                self._read()
            return self._number, self._newest

    def stable(self, topics: tuple[str, ...]) -> dict[SourcePartition, int]:
        """Return how far topics can be read, by the newest read; empty if it failed."""
        _, found = self.newer_than(0)
        return {p: m.stable for t in topics for p, m in found[1].get(t, {}).items()} if found else {}

    def retentions(self, seconds: float) -> dict[str, Retention]:
        """Return the retention of all known topics."""
        kept, until = self._kept
        return kept if time.monotonic() < until else self._retentions.request(seconds)

    def _request_retentions(self, requests: Sequence[float]) -> Sequence[dict[str, Retention]]:
        if time.monotonic() >= self._kept[1]:
            found = self.topics.retentions(max(requests))
            self._kept = found, time.monotonic() + RETENTION_SECONDS
        return [self._kept[0]] * len(requests)

    def _read(self) -> None:
        self._number += 1
        try:
            state = self.topics.watermarks(missing_ok=True)
        except LakecommitError:
            self._newest = None
        else:
            by_topic: dict[str, dict[SourcePartition, Watermark]] = {}
            for p, mark in state.partitions.items():
                by_topic.setdefault(p.topic, {})[p] = mark
            self._newest = state, by_topic
        self._fresh_until = time.monotonic() + FRESH_SECONDS

    def _request_first(self, requests: Sequence[tuple[Times, float]]) -> Sequence[Firsts]:
        requested_times = [times for times, _ in requests]
        found = self.topics.request_first_since(dict.fromkeys(t for times in requested_times for t in times))(
            max(seconds for _, seconds in requests)
        )
        by_time = {(p, t): (p, t, first) for p, t, first in found}
        return [[by_time[t] for t in times if t in by_time] for times in requested_times]

    def _request_logs(self, requests: Sequence[Positions]) -> Sequence[list[Truncation]]:
        found = self.topics.diverged(list(dict.fromkeys(position for some in requests for position in some)))
        return [[t for t in found if (t.partition, t.position) in some] for some in map(set, requests)]


class _LandingSource:
    """The port of one landing."""

    def __init__(self, shared: SharedSource, topics: tuple[str, ...]) -> None:
        self._shared = shared
        self._topics = topics
        self._own = shared.topics.beside(topics)
        self._number = 0

    def of(self, topics: tuple[str, ...]) -> SourcePort:
        return self._shared.topics.of(topics)

    def watermarks(self, *, missing_ok: bool = False) -> SourceState:
        self._number, found = self._shared.newer_than(self._number)
        if found is None or not set(self._topics).isdisjoint(found[0].missing_topics):
            return self._own.watermarks(missing_ok=missing_ok)
        state, by_topic = found
        mine = {p: mark for topic in self._topics for p, mark in by_topic.get(topic, {}).items()}
        return replace(state, partitions=mine, missing_topics=())

    def request_retention(self) -> None:
        self._shared.topics.request_retention()

    def retentions(self, seconds: float) -> dict[str, Retention]:
        found = self._shared.retentions(seconds)
        return {topic: found[topic] for topic in self._topics if topic in found}

    def request_first_since(self, times: Iterable[tuple[SourcePartition, datetime]]) -> Callable[[float], Firsts]:
        requested = list(times)
        return lambda seconds: self._shared.first.request((requested, seconds)) if requested else []

    def diverged(self, positions: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]:
        requested = list(positions)
        try:
            return self._shared.logs.request(requested) if requested else []
        except LakecommitError:
            return self._own.diverged(requested)

    def first_value(self, span: Span) -> int | None:
        return self._own.first_value(span)

    def close(self) -> None:
        """Keep the shared client open."""
