# SPDX-License-Identifier: Apache-2.0
"""The groups of one control topic while it is read: their cycles and trends, for display only."""

from __future__ import annotations

import time
from uuid import UUID

from airflow_provider_lakecommit.control import ControlRecord, PayloadType, entry_from_values
from airflow_provider_lakecommit.core import LIVE, CycleOpened
from airflow_provider_lakecommit.page.cycles import LandingCycles, connector_cycles_after, cycles_after
from airflow_provider_lakecommit.page.lag_clock import LagClock
from airflow_provider_lakecommit.page.partitions import Ends, lags
from airflow_provider_lakecommit.page.trend import Trend
from airflow_provider_lakecommit.stall import EventKind, ObservedRecord

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
