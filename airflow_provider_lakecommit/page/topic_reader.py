# SPDX-License-Identifier: Apache-2.0
"""One control topic read for the page: its newest records folded to rows, by one thread at a time.

It starts :data:`MOST_OFFSETS` before the end of the topic, so the first read takes bounded time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.control import ControlRecord, PayloadType, entry_from_values
from airflow_provider_lakecommit.core import LIVE, CycleOpened
from airflow_provider_lakecommit.exceptions import SourceUnavailableError
from airflow_provider_lakecommit.kafka import ClusterAdmin
from airflow_provider_lakecommit.page.cycles import LandingCycles, connector_cycles_after, cycles_after
from airflow_provider_lakecommit.page.lag_clock import LagClock
from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic, TopicReading, key_of
from airflow_provider_lakecommit.page.partitions import Ends, lags
from airflow_provider_lakecommit.page.trend import Trend
from airflow_provider_lakecommit.stall import (
    CommitWatch,
    EventKind,
    ObservedRecord,
    StallRules,
    State,
    WatchedTopic,
    evaluate,
)

ENDS_SECONDS = 10.0
"""Time between two reads of source topics' ends, per :data:`ENDS_AT_ONCE` partitions."""
ENDS_AT_ONCE = 1000
ANSWER_SECONDS = 2.0
COMPLETION_SECONDS = 3600.0
"""The default completion timeout of landings, as their own is not in the log."""
MOST_OFFSETS = 1_000_000
"""Offsets that are read first, transaction markers included: some 100,000 cycles."""

Settings = Callable[[str], Mapping[str, Any]]


class TopicReader:
    """One control topic, for one thread at a time.

    :param deployment: of this Airflow: DAGs of others are foreign
    """

    def __init__(self, topic: PageTopic, settings: Settings, deployment: str) -> None:
        self.reading = TopicReading(control_topic=topic)
        self.rows: Mapping[str, LandingRow] = {}
        self._topic, self._settings, self._deployment = topic, settings, deployment
        self._known: dict[str, tuple[State, Ends, LandingRow]] = {}
        """Rows and their inputs."""
        self.memory = TopicMemory()
        watched = WatchedTopic(topic=topic.topic, completion_timeout=COMPLETION_SECONDS, newest=MOST_OFFSETS)
        self._watch = CommitWatch(watched, lambda: settings(topic.connection), heard=self.memory.heard)
        self._ends = SourceEnds(lambda: settings(topic.connection))

    def read(self) -> bool:
        """Read on for about a second; return True if anything has changed."""
        commits = self._watch.read()
        if commits is None:
            return False
        current = commits.groups is not None and not commits.trouble
        self.reading = replace(
            self.reading,
            as_of=commits.at if current else self.reading.as_of,
            trouble=commits.trouble or "",
            overlooked=commits.overlooked,
        )
        if commits.groups is None:
            return True
        known = self._ends.known
        ends = self._ends.read(p for c in self.memory.cycles.values() for p in c.ends)
        if ends is not known:
            self.memory.lagging(ends)
        made = [self._row(group, state, commits.at, ends) for group, state in commits.groups.items()]
        if len(made) != len(self.rows) or any(self.rows.get(row.key) is not row for row in made):
            self.rows = {row.key: row for row in made}
        return True

    def close(self) -> None:
        self._watch.close()
        self._ends.close()

    def _row(self, group: str, state: State, now: float, ends: Ends) -> LandingRow:
        """Return the known row while nothing in it has changed."""
        inputs, cycles = self._known.get(group), self.memory.cycles.get(group) or LandingCycles()
        known = inputs and inputs[2]
        same = inputs and inputs[0] is state and inputs[1] is ends and inputs[2].cycles is cycles
        if known is not None and same and state.landing:
            return known
        read_since, table_since = self.memory.since(group)
        made = LandingRow(
            control_topic=self._topic,
            group=group,
            key=known.key if known else key_of(self._topic, group),
            state=state,
            # For a connector, silence is also a change.
            found=evaluate(state, now, StallRules(landing=state.landing)),
            cycles=cycles,
            dags=tuple(dag for deployment, dag in cycles.dags if deployment == self._deployment),
            partitions=cycles.partitions(ends),
            read_since=read_since,
            table_since=table_since,
            trend=self.memory.trends.get(group),
        )
        row = known if known is not None and known == made else made
        self._known[group] = state, ends, row
        return row


class SourceEnds:
    """Ends of source topics, read periodically; unanswered ones stay unchanged."""

    def __init__(self, settings: Callable[[], Mapping[str, Any]]) -> None:
        self._settings = settings
        self._admin: ClusterAdmin | None = None
        self._next = float("-inf")
        self.known: dict[tuple[str, int], int] = {}

    def read(self, partitions: Any) -> Ends:
        if time.monotonic() >= self._next:
            requested = tuple(partitions)
            self._next = time.monotonic() + ENDS_SECONDS * max(1.0, len(requested) / ENDS_AT_ONCE)
            if self._admin is None:
                away = SourceUnavailableError
                self._admin = ClusterAdmin(
                    self._settings(), timeout=ANSWER_SECONDS, away=away, refused=away, remedy=lambda: "grant DESCRIBE"
                )
            found = self._admin.request_stable_ends(requested).within(ANSWER_SECONDS)
            self.known = {p: end for p in requested if (end := found.get(p, self.known.get(p))) is not None}
        return self.known

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


MOST_TRENDS = 5000
TURNS = frozenset({EventKind.START, EventKind.PUBLISHED})
"""Events at which a landing's lags peak."""

_PAYLOADS = {kind: PayloadType[kind.value] for kind in EventKind}


class TopicMemory:
    """Mutable, for the thread that reads the topic; other threads may read trends."""

    def __init__(self) -> None:
        self.cycles: dict[str, LandingCycles] = {}
        self.trends: dict[str, Trend] = {}
        self.clocks: dict[str, LagClock] = {}

    def heard(self, observed: ObservedRecord, record: ControlRecord, landing: bool) -> None:
        group, event, header = observed
        known = self.cycles.get(group) or LandingCycles()
        if not landing:
            after = connector_cycles_after(known, event)
        elif header is None or header.get("lane") != LIVE or event.kind is EventKind.WRITTEN:
            # The report on their slice repeats files.
            return
        else:
            covers = event.covers if event.kind is EventKind.PUBLISHED else None
            entry = entry_from_values(record, _PAYLOADS[event.kind], UUID(bytes=event.commit), header, covers)
            after = known if entry is None else cycles_after(known, entry)
            if isinstance(entry, CycleOpened) and entry.plan.ends:
                self._clock_after(group, after, entry.plan.requested_at.timestamp(), after.ends)
        if after is not known:
            self.cycles[group] = after
            self._notify(group, known, after, observed)

    def lagging(self, ends: Ends) -> None:
        now = time.time()
        for group, known in self.cycles.items():
            there = {p: ends[p] for p in known.ends if p in ends}
            if there and (trend := self._trend(group)) is not None:
                read, commit = lags(known.reported, known.in_table, there)
                clock = self._clock_after(group, known, now, there)
                late = _late(clock, known, now)
                trend.add(now, now, {"read_lag": read, "commit_lag": commit, **late})

    def since(self, group: str) -> tuple[float | None, float | None]:
        """Return since when records wait to be read, and since when the table lacks some."""
        known, clock = self.cycles.get(group), self.clocks.get(group)
        if known is None or clock is None:
            return None, None
        return clock.since(known.read_upto), clock.since(known.in_table)

    def _clock_after(self, group: str, known: LandingCycles, at: float, ends: Ends) -> LagClock:
        clock = self.clocks.get(group) or LagClock()
        if len(self.clocks) < MOST_TRENDS:
            self.clocks[group] = clock
        clock.add(at, time.time(), ends)
        clock.forget(known.in_table)
        return clock

    def _notify(self, group: str, before: LandingCycles, after: LandingCycles, observed: ObservedRecord) -> None:
        kind, turn = observed.event.kind, observed.event.kind in TURNS and bool(after.ends or after.reported)
        if not turn and after.totals is before.totals:
            return
        trend = self._trend(group)
        if trend is None:
            return
        amounts: dict[str, float | None] = {}
        if after.totals is not before.totals:
            was, now = before.totals, after.totals
            amounts = {"read": now.read - was.read, "committed": now.committed - was.committed}
            if now.commits > was.commits:
                amounts["commit_seconds"] = after.took
        if turn:
            # The backlog peaks just before it is published.
            at = before if kind is EventKind.PUBLISHED else after
            amounts["read_lag"], amounts["commit_lag"] = lags(at.reported, at.in_table, at.ends)
            if (clock := self.clocks.get(group)) is not None:
                amounts |= _late(clock, at, observed.event.at)
        trend.add(observed.event.at, time.time(), amounts)

    def _trend(self, group: str) -> Trend | None:
        found = self.trends.get(group)
        if found is None and len(self.trends) < MOST_TRENDS:
            found = self.trends[group] = Trend()
        return found


def _late(clock: LagClock, known: LandingCycles, at: float) -> dict[str, float | None]:
    read, table = clock.seconds(known.read_upto, at), clock.seconds(known.in_table, at)
    return {"read_lag_seconds": read, "table_lag_seconds": table}
