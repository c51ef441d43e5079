# SPDX-License-Identifier: Apache-2.0
"""What is kept of the groups of one control topic while it is read: their cycles, their trends, and how far it is read.

Contract: written by the thread that reads the topic. Positions are those behind the records that count here, so what is
read again from there on is counted once. :meth:`TopicMemory.to_json` gives lines that :meth:`TopicMemory.from_json`
takes, with the states that the stall fold has; at most :data:`MOST_SAVED` cycles, of each group the newest.

Invariant: what was saved is for display. It decides no commit, and is taken only for the topic, the brokers and the
leader epochs that it was read of.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core.log import CycleOpened
from airflow_provider_lakecommit.core.model import LIVE, ReadPosition
from airflow_provider_lakecommit.kafka.control_log import ControlRecord
from airflow_provider_lakecommit.page.codec import DAMAGE, decoder, encoder
from airflow_provider_lakecommit.page.cycles import (
    LandingCycles,
    Totals,
    connector_cycles_after,
    cycles_after,
)
from airflow_provider_lakecommit.page.lag_clock import LagClock
from airflow_provider_lakecommit.page.partitions import Ends, lags
from airflow_provider_lakecommit.page.trend import Trend
from airflow_provider_lakecommit.stall.events import SeenRecord
from airflow_provider_lakecommit.stall.state import Chain, PendingFiles, Table, WorkerAnswer, items
from airflow_provider_lakecommit.stall.verdict import EventKind, State
from airflow_provider_lakecommit.wire.events import PayloadType
from airflow_provider_lakecommit.wire.records import entry_told

__all__ = ["DAMAGE", "TopicMemory"]

MOST_TRENDS = 5000
"""Groups whose trend is kept; of those that come later none is shown."""
MOST_SAVED = 200_000
LEAST_SAVED = 5
TURNS = frozenset({EventKind.START, EventKind.PUBLISHED})
"""Events at which the lags of a landing are known by its log, and are the most."""

_PAYLOADS = {kind: PayloadType[kind.value] for kind in EventKind}


class TopicMemory:
    """Mutable, for the thread that reads the topic; trends may be looked at by others."""

    def __init__(self) -> None:
        self.cycles: dict[str, LandingCycles] = {}
        self.trends: dict[str, Trend] = {}
        self.clocks: dict[str, LagClock] = {}
        self.positions: dict[int, ReadPosition] = {}

    def heard(self, told: SeenRecord, record: ControlRecord, landing: bool) -> None:
        """One more record that is believed."""
        group, seen, header = told
        if record.leader_epoch is not None:
            position = ReadPosition(offset=record.offset + 1, leader_epoch=record.leader_epoch)
            self.positions[record.partition] = position
        known = self.cycles.get(group) or LandingCycles()
        if not landing:
            after = connector_cycles_after(known, seen)
        elif header is None or header.get("lane") != LIVE or seen.kind is EventKind.WRITTEN:
            # Files are told again by the report on their slice.
            return
        else:
            covers = seen.covers if seen.kind is EventKind.PUBLISHED else None
            entry = entry_told(record, _PAYLOADS[seen.kind], UUID(bytes=seen.commit), header, covers)
            after = known if entry is None else cycles_after(known, entry)
            if isinstance(entry, CycleOpened) and entry.plan.ends:
                self._looked(group, after, entry.plan.asked_at.timestamp(), after.ends)
        if after is not known:
            self.cycles[group] = after
            self._tell(group, known, after, told)

    def lagging(self, ends: Ends) -> None:
        """The ends of the topics were looked at just now."""
        now = time.time()
        for group, known in self.cycles.items():
            there = {p: ends[p] for p in known.ends if p in ends}
            if there and (trend := self._trend(group)) is not None:
                read, commit = lags(known.reported, known.in_table, there)
                clock = self._looked(group, known, now, there)
                late = _late(clock, known, now)
                trend.add(now, now, {"read_lag": read, "commit_lag": commit, **late})

    def since(self, group: str) -> tuple[float | None, float | None]:
        """Since when records wait to be read, and since when the table lacks some."""
        known, clock = self.cycles.get(group), self.clocks.get(group)
        if known is None or clock is None:
            return None, None
        return clock.since(known.read_upto), clock.since(known.in_table)

    def _looked(self, group: str, known: LandingCycles, at: float, ends: Ends) -> LagClock:
        clock = self.clocks.get(group) or LagClock()
        if len(self.clocks) < MOST_TRENDS:
            self.clocks[group] = clock
        clock.looked(at, time.time(), ends)
        clock.forget(known.in_table)
        return clock

    def _tell(self, group: str, before: LandingCycles, after: LandingCycles, told: SeenRecord) -> None:
        """Tell the trend what changed."""
        kind, turn = told.seen.kind, told.seen.kind in TURNS and bool(after.ends or after.reported)
        if not turn and after.totals is before.totals:
            return
        trend = self._trend(group)
        if trend is None:
            return
        amounts: dict[str, float | None] = {}
        if after.totals is not before.totals:
            pairs = zip(Totals._fields, before.totals, after.totals, strict=True)
            amounts = {name: b - a for name, a, b in pairs if a != b}
            if "commits" in amounts:
                amounts["commit_seconds"] = after.took
        if turn:
            # The most is waiting just before it is published.
            at = before if kind is EventKind.PUBLISHED else after
            amounts["read_lag"], amounts["commit_lag"] = lags(at.reported, at.in_table, at.ends)
            if (clock := self.clocks.get(group)) is not None:
                amounts |= _late(clock, at, told.seen.at)
        trend.add(told.seen.at, time.time(), amounts)

    def _trend(self, group: str) -> Trend | None:
        found = self.trends.get(group)
        if found is None and len(self.trends) < MOST_TRENDS:
            found = self.trends[group] = Trend()
        return found

    # -- kept over restarts -------------------------------------------------------------------------------------------

    def to_json(self, states: Mapping[str, State]) -> Iterator[Any]:
        """The positions, then each group, as JSON values."""
        yield _POSITIONS[0](self.positions)
        most = max(LEAST_SAVED, MOST_SAVED // max(1, len(states)))
        for group, state in states.items():
            known, trend = self.cycles.get(group) or LandingCycles(), self.trends.get(group)
            cycles = _CYCLES[0](known._replace(cycles=known.cycles[-most:]))
            clock = self.clocks.get(group) or LagClock()
            looks = _LOOKS[0](tuple(clock.looks))
            yield [group, _state_to_json(state), cycles, None if trend is None else trend.to_json(), looks]

    @classmethod
    def from_json(cls, lines: Iterable[Any]) -> tuple[TopicMemory, dict[str, State]]:
        """What was saved, and the states of the groups.

        :raises ValueError: or another one of :data:`DAMAGE`: it is damaged
        """
        rest = iter(lines)
        made, states = cls(), dict[str, State]()
        made.positions = dict(_POSITIONS[1](next(rest, None)))
        for group, state, cycles, trend, looks in rest:
            states[group] = _state_from_json(state)
            made.cycles[group] = _CYCLES[1](cycles)
            if looks:
                made.clocks[group] = LagClock(_LOOKS[1](looks))
            if trend is not None:
                made.trends[group] = Trend.from_json(trend)
        return made, states


class _Chains(NamedTuple):
    """What a state holds as chains, the oldest first: in the journal files that were announced, or a table."""

    answers: tuple[WorkerAnswer, ...]
    journal: tuple[tuple[PendingFiles | None, Table | None], ...]


def _pair(hint: Any) -> tuple[Any, Any]:
    return encoder(hint), decoder(hint)


_POSITIONS = _pair(Mapping[int, ReadPosition])
_CYCLES = _pair(LandingCycles)
_LOOKS = _pair(tuple[tuple[float, Ends], ...])
_STATE = _pair(State)
_CHAINS = _pair(_Chains)


def _late(clock: LagClock, known: LandingCycles, at: float) -> dict[str, float | None]:
    read, table = clock.seconds(known.read_upto, at), clock.seconds(known.in_table, at)
    return {"read_lag_seconds": read, "table_lag_seconds": table}


def _state_to_json(state: State) -> list[Any]:
    journal = [(i, None) if isinstance(i, PendingFiles) else (None, i) for i in items(state.journal)]
    chains = _Chains(answers=tuple(items(state.answers))[::-1], journal=tuple(journal)[::-1])
    return [_STATE[0](state._replace(answers=None, journal=None)), _CHAINS[0](chains)]


def _state_from_json(told: Any) -> State:
    plain, linked = told
    chains: _Chains = _CHAINS[1](linked)
    state: State = _STATE[1](plain)
    answers: Chain = None
    journal: Chain = None
    for answer in chains.answers:
        answers = (answer, answers)
    for files, table in chains.journal:
        journal = (files if table is None else table, journal)
    return state._replace(answers=answers, journal=journal)
