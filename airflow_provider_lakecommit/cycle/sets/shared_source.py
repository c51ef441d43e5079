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
from dataclasses import dataclass, replace
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


class SharedSource:
    """All topics of a set.

    :param topics: topics of all its landings; their maker closes them
    """

    def __init__(self, topics: SourceTopics) -> None:
        self.topics = topics
        self.first = Combined[tuple[Times, float], Firsts](self._ask_first)
        self.logs = Combined[Positions, list[Truncation]](self._ask_logs)
        self._looking = threading.Lock()
        self._number = 0
        self._fresh_until = 0.0
        self._seen: _Seen | None = None
        self._retentions = Combined[float, dict[str, Retention]](self._ask_retentions)
        self._kept: tuple[dict[str, Retention], float] = {}, 0.0

    def of(self, topics: tuple[str, ...]) -> SourcePort:
        """Return the port of one landing."""
        return _LandingSource(self, topics)

    def newer_than(self, number: int) -> tuple[int, _Seen | None]:
        """Return a read with a greater number, and its result; ``None`` if it failed."""
        with self._looking:
            if self._number <= number or time.monotonic() > self._fresh_until:
                self._look()
            return self._number, self._seen

    def stable(self, topics: tuple[str, ...]) -> dict[SourcePartition, int]:
        """Return how far topics can be read, by the newest read; empty if it failed."""
        _, found = self.newer_than(0)
        return {p: m.stable for t in topics for p, m in found.by_topic.get(t, {}).items()} if found else {}

    def retentions(self, seconds: float) -> dict[str, Retention]:
        """Return the retention of all known topics."""
        kept, until = self._kept
        return kept if time.monotonic() < until else self._retentions.ask(seconds)

    def _ask_retentions(self, asked: Sequence[float]) -> Sequence[dict[str, Retention]]:
        if time.monotonic() >= self._kept[1]:
            found = self.topics.retentions(max(asked))
            self._kept = found, time.monotonic() + RETENTION_SECONDS
        return [self._kept[0]] * len(asked)

    def _look(self) -> None:
        self._number += 1
        try:
            self._seen = _Seen.of(self.topics.watermarks(missing_ok=True))
        except LakecommitError:
            self._seen = None
        self._fresh_until = time.monotonic() + FRESH_SECONDS

    def _ask_first(self, asked: Sequence[tuple[Times, float]]) -> Sequence[Firsts]:
        places = [times for times, _ in asked]
        found = self.topics.request_first_since(dict.fromkeys(t for times in places for t in times))(
            max(seconds for _, seconds in asked)
        )
        by_place = {(p, t): (p, t, first) for p, t, first in found}
        return [[by_place[t] for t in times if t in by_place] for times in places]

    def _ask_logs(self, asked: Sequence[Positions]) -> Sequence[list[Truncation]]:
        found = self.topics.diverged(list(dict.fromkeys(place for some in asked for place in some)))
        return [[t for t in found if (t.partition, t.position) in some] for some in map(set, asked)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The result of a read, by topic."""

    whole: SourceState
    missing: frozenset[str]
    by_topic: Mapping[str, Mapping[SourcePartition, Watermark]]

    @classmethod
    def of(cls, whole: SourceState) -> _Seen:
        by_topic: dict[str, dict[SourcePartition, Watermark]] = {}
        for p, mark in whole.partitions.items():
            by_topic.setdefault(p.topic, {})[p] = mark
        return cls(whole=whole, missing=frozenset(whole.missing_topics), by_topic=by_topic)


class _LandingSource:
    """The port of one landing."""

    def __init__(self, shared: SharedSource, topics: tuple[str, ...]) -> None:
        self._shared = shared
        self._topics = topics
        self._own = shared.topics.beside(topics)
        self._seen = 0

    def of(self, topics: tuple[str, ...]) -> SourcePort:
        return self._shared.topics.of(topics)

    def watermarks(self, *, missing_ok: bool = False) -> SourceState:
        self._seen, found = self._shared.newer_than(self._seen)
        if found is None or not found.missing.isdisjoint(self._topics):
            return self._own.watermarks(missing_ok=missing_ok)
        mine = {p: mark for topic in self._topics for p, mark in found.by_topic.get(topic, {}).items()}
        return replace(found.whole, partitions=mine, missing_topics=())

    def request_retention(self) -> None:
        self._shared.topics.request_retention()

    def retentions(self, seconds: float) -> dict[str, Retention]:
        found = self._shared.retentions(seconds)
        return {topic: found[topic] for topic in self._topics if topic in found}

    def request_first_since(self, times: Iterable[tuple[SourcePartition, datetime]]) -> Callable[[float], Firsts]:
        asked = list(times)
        return lambda seconds: self._shared.first.ask((asked, seconds)) if asked else []

    def diverged(self, positions: Iterable[tuple[SourcePartition, ReadPosition]]) -> list[Truncation]:
        asked = list(positions)
        try:
            return self._shared.logs.ask(asked) if asked else []
        except LakecommitError:
            return self._own.diverged(asked)

    def first_value(self, span: Span) -> int | None:
        return self._own.first_value(span)

    def close(self) -> None:
        """Keep the shared client open."""
