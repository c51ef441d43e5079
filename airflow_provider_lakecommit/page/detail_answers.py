# SPDX-License-Identifier: Apache-2.0
"""The status API's answers about one landing beyond its row: detail, trend and actions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel

from airflow_provider_lakecommit.core import Coverage, PendingBudget, partition_fields
from airflow_provider_lakecommit.page.actions import ActionAnswer
from airflow_provider_lakecommit.page.answers import LandingAnswer, in_common
from airflow_provider_lakecommit.page.cycle_answers import CycleAnswer, WindowAnswer, cycle_of, moment, windows_of
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.partitions import hot
from airflow_provider_lakecommit.page.sensors import HeldSensor
from airflow_provider_lakecommit.stall import State, waiting

MOST_BLOCKED = 20
_COUNTED = re.compile(r" \(\d+(?: of \d+)? rejected records?\)$")


class PartitionAnswer(BaseModel):
    """The progress of a partition: in the data table, by reports, and at the end of its log, by plans; ``hot`` is one
    whose lag is a multiple of the others'.
    """

    partition: str
    landed: int | None
    reported: int | None
    stable: int | None
    lag: int | None
    planned: int | None
    hot: bool


class ConnectorTaskAnswer(BaseModel):
    """A task of a connector that answers its coordinator: since when, when last, and for which partitions. ``silent``
    is whether every other one has answered since then.
    """

    id: str
    since: datetime
    at: datetime
    answers: int
    partitions: list[str]
    silent: bool


class AnnouncedAnswer(BaseModel):
    """Files of a connector that no commit has taken: since when they wait. ``passed_over`` is whether a cycle completed
    without them.
    """

    table: str
    files: int
    since: datetime
    passed_over: bool


class BlockedAnswer(BaseModel):
    """Blocked ranges of one kind: how many, since when, and the reason of the newest."""

    kind: str
    ranges: str
    parts: int
    offsets: int
    since: datetime
    reason: str


class DecisionAnswer(BaseModel):
    """A manual decision of a user."""

    at: str
    command: str
    actor: str
    host: str
    reason: str
    what: str


class RejectAnswer(BaseModel):
    """Rejected records of one kind: ``records`` were committed, ``ranges`` are of the newest slice with some."""

    kind: str
    records: int
    since: datetime
    at: datetime
    ranges: list[str]
    reason: str


class LandingDetail(LandingAnswer):
    """All details of a landing. ``decisions`` and ``rejects`` are newest first."""

    spec_version: str
    partitions: list[PartitionAnswer]
    windows: list[WindowAnswer]
    tasks: list[ConnectorTaskAnswer]
    announced: list[AnnouncedAnswer]
    blocked_ranges: list[BlockedAnswer]
    decisions: list[DecisionAnswer]
    rejects: list[RejectAnswer]
    history: list[CycleAnswer]


def detail_of(
    row: LandingRow, sensors: Sequence[HeldSensor], now: float, budget: PendingBudget | None = None
) -> LandingDetail:
    notes = row.cycles.notes
    pairs = list(zip(row.cycles.cycles, row.outcomes, strict=True))
    hottest = hot(row.partitions)
    partitions = [
        PartitionAnswer(
            **partition_fields(
                partition=f"{p.topic}[{p.partition}]", landed=p.published, reported=p.reported, stable=p.end, lag=p.lag
            ),
            planned=p.planned,
            hot=(p.topic, p.partition) in hottest,
        )
        for p in row.partitions
    ]
    return LandingDetail(
        **in_common(row, sensors, now, budget),
        spec_version=row.cycles.spec_version,
        partitions=partitions,
        windows=windows_of(pairs),
        tasks=[
            ConnectorTaskAnswer(
                id=t.id,
                since=moment(t.since),
                at=moment(t.at),
                answers=t.answers,
                partitions=[f"{topic}[{n}]" for topic, n in t.partitions],
                silent=t.missed >= 2 * len(row.cycles.tasks),
            )
            for t in row.cycles.tasks
        ],
        announced=_announced(row.state),
        blocked_ranges=_blocked(row.state),
        decisions=[DecisionAnswer.model_validate(d, from_attributes=True) for d in reversed(notes.decisions)],
        rejects=[
            RejectAnswer.model_validate({**r._asdict(), "since": moment(r.since), "at": moment(r.at)})
            for r in reversed(notes.rejects)
        ],
        history=[cycle_of(c, o) for c, o in reversed(pairs)],
    )


def _blocked(state: State) -> list[BlockedAnswer]:
    """Return what is blocked, by kind, the largest first."""
    kinds: dict[str, list[tuple[Coverage, str, float]]] = {}
    for blocked in state.blocked:
        # The cause that a reason begins with, without its numbers.
        kind = _COUNTED.sub("", blocked[1].partition(": slice ")[0]).partition(": ")[0]
        kinds.setdefault(kind, []).append(blocked)
    found = []
    for kind, those in kinds.items():
        ranges = Coverage.union(c for c, _, _ in those)
        found.append(
            BlockedAnswer(
                kind=kind,
                ranges=str(ranges),
                parts=len(those),
                offsets=len(ranges),
                since=moment(min(at for _, _, at in those)),
                reason=those[-1][1],
            )
        )
    return sorted(found, key=lambda b: -b.offsets)[:MOST_BLOCKED]


def _announced(state: State) -> list[AnnouncedAnswer]:
    """Return the announced files of a connector; files of landings are in their slices."""
    if state.landing:
        return []
    over = [(table, p.files, p.at, True) for (table, _), p in state.over.items()]
    waits = [(w.table[0], w.files, w.at, False) for w in waiting(state)]
    return [AnnouncedAnswer(table=t, files=n, since=moment(at), passed_over=o) for t, n, at, o in (*over, *waits) if n]


class StepsAnswer(BaseModel):
    """Buckets of ``step_seconds``, the first of which starts at ``begin``. Read and committed offsets are summed in
    each; lags, in records and in seconds, and seconds of commits are the maximum of each. The lag of the table is that
    of all that it lacks, read or not.
    """

    step_seconds: int
    begin: datetime
    read: list[float]
    committed: list[float]
    read_lag: list[float | None]
    commit_lag: list[float | None]
    read_lag_seconds: list[float | None]
    table_lag_seconds: list[float | None]
    commit_seconds: list[float | None]


class TrendAnswer(BaseModel):
    """The activity of a landing, the finest buckets first; empty without a trend."""

    steps: list[StepsAnswer]


def trend_of(row: LandingRow, now: float) -> TrendAnswer:
    rings = row.trend.steps(now) if row.trend is not None else {}
    values = [{"step_seconds": step, "begin": moment(begin), **ring} for step, (begin, ring) in rings.items()]
    return TrendAnswer(steps=[StepsAnswer.model_validate(each) for each in values])


class ActionsAnswer(BaseModel):
    """All actions of a landing."""

    enabled: bool
    actions: list[ActionAnswer]
