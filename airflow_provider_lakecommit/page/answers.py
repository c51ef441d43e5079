# SPDX-License-Identifier: Apache-2.0
"""The answers of the status API, version 1: shapes, units and how they are made from rows.

Fields are added and never change their meaning within a version. Times are ISO 8601 in UTC, counts are records unless
the name differs, and unknown values are ``null``, never 0. Texts come from control records and Airflow's database:
clients must treat them as text only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel

from airflow_provider_lakecommit.core import PendingBudget, lag_fields, pending_fields
from airflow_provider_lakecommit.page.cycle_answers import CycleMark, mark_of, time_or_none
from airflow_provider_lakecommit.page.landings import DAY, LandingRow, TopicReading
from airflow_provider_lakecommit.page.observed_cycle import CycleOutcome, under_way
from airflow_provider_lakecommit.page.remedies import remedies
from airflow_provider_lakecommit.page.sensors import HeldSensor
from airflow_provider_lakecommit.page.summary import summary_of
from airflow_provider_lakecommit.stall import waiting

STRIP = 50
MOST_SENSORS = 20


class TopicAnswer(BaseModel):
    """A watched control topic. ``as_of``: when it was last read to its end; ``trouble``: the error that prevents it."""

    connection: str
    topic: str
    as_of: datetime | None
    trouble: str
    overlooked: int


class SensorAnswer(BaseModel):
    """A StalledCommitSensor that waits, or that skipped or failed its run within a day."""

    dag: str
    run: str
    task: str
    map_index: int
    state: str
    waits: bool
    since: datetime | None
    reason: str


class HeldAnswer(BaseModel):
    """The number of holding sensors, and the newest of them that the user may see."""

    waiting: int
    ended: int
    sensors: list[SensorAnswer]


class PendingAnswer(BaseModel):
    """Reported slices that wait for their commit; ``files_most`` are those of the table that has most of them."""

    slices: int
    files: int
    files_most: int
    bytes: int


class BudgetAnswer(BaseModel):
    """Limits on pending work in each table; ``null`` is no limit."""

    open_cycles: int | None
    slices: int | None
    files: int | None
    bytes: int | None


class RemedyAnswer(BaseModel):
    """A command that helps now, and its effect."""

    command: str
    does: str


class LandingAnswer(BaseModel):
    """A landing or a connector's group. ``kind`` is `landing` or `connector`. One that only a parsed DAG declares has
    no connection and no control topic; ``never_ran`` is set if its DAG has no run. ``budget`` is known for landings
    that a parsed DAG declares; ``debt`` is how much its tables need compaction, as a share of the limit, by the newest
    commits. ``word`` names the state, ``if_nothing`` is what happens without a decision of a user, ``warning`` is worth
    a look in a calm state. ``read_lag_since`` is the latest time since when records wait to be read,
    ``table_lag_since`` since when the table lacks some, read or not.
    """

    id: str
    kind: str
    name: str
    connection: str
    control_topic: str
    verdict: str
    word: str
    headline: str
    cause: str
    reason: str
    clears: str
    if_nothing: str
    warning: str
    since: datetime | None
    never_ran: bool
    last_commit: datetime | None
    read_lag: int | None
    commit_lag: int | None
    read_lag_since: datetime | None
    table_lag_since: datetime | None
    valid_through: datetime | None
    pending: PendingAnswer
    budget: BudgetAnswer | None
    debt: float | None
    open_cycles: int
    blocked: int
    rejected_24h: int
    topics: list[str]
    tables: list[str]
    dags: list[str]
    held: HeldAnswer
    remedies: list[RemedyAnswer]
    cycles: list[CycleMark]


class LandingList(BaseModel):
    """One page of rows, worst first. ``verdicts`` counts all rows of the search, for any requested verdict; ``total``
    those that match both.
    """

    version: int
    topics: list[TopicAnswer]
    verdicts: dict[str, int]
    total: int
    offset: int
    landings: list[LandingAnswer]


class Change(BaseModel):
    """Sent when rows changed, and periodically: ``topics`` show how fresh the rest is."""

    version: int
    topics: list[TopicAnswer]


def topics_of(topics: Iterable[TopicReading]) -> list[TopicAnswer]:
    return [
        TopicAnswer(
            connection=t.control_topic.connection,
            topic=t.control_topic.topic,
            as_of=time_or_none(t.as_of),
            trouble=t.trouble,
            overlooked=t.overlooked,
        )
        for t in topics
    ]


def landing_of(
    row: LandingRow, sensors: Sequence[HeldSensor], now: float, budget: PendingBudget | None = None
) -> LandingAnswer:
    return LandingAnswer(**in_common(row, sensors, now, budget))


def list_json(
    version: int,
    topics: Iterable[TopicReading],
    verdicts: Mapping[str, int],
    total: int,
    offset: int,
    landings: Iterable[bytes],
) -> bytes:
    """Return a :class:`LandingList` of rows that are JSON already."""
    head = LandingList(
        version=version, topics=topics_of(topics), verdicts=dict(verdicts), total=total, offset=offset, landings=[]
    )
    return head.model_dump_json().encode().removesuffix(b"[]}") + b"[" + b",".join(landings) + b"]}"


def in_common(
    row: LandingRow, sensors: Sequence[HeldSensor], now: float, budget: PendingBudget | None
) -> dict[str, Any]:
    state, cycles = row.state, row.cycles
    outcomes = row.outcomes
    newest = list(zip(cycles.cycles, outcomes, strict=True))[-STRIP:]
    going = under_way(cycles.cycles)
    waits = sum(1 for s in sensors if s.waits)
    # Slices of cycles that are over wait behind a blocked range.
    staged = [w for w in cycles.staged if w.waits and not any(w.slice_id in c.work for c in going)]
    works = [*(w for c in going for w in c.work.values() if w.waits), *staged]
    bare = [c for c in going if not c.work]
    of_tables = (*(c.files_of for c in bare), *(w.waits for w in works))
    files_of = sum((Counter(dict(each)) for each in of_tables), Counter[str]())
    files = files_of.total() if state.landing else sum(w.files for w in waiting(state))
    return {
        "id": row.key,
        "kind": "landing" if state.landing else "connector",
        "name": row.name,
        "connection": row.control_topic.connection,
        "control_topic": row.control_topic.topic,
        "verdict": row.found.verdict.value,
        **summary_of(row)._asdict(),
        "reason": row.found.reason,
        "since": time_or_none(row.since),
        "never_ran": row.never_ran,
        "last_commit": time_or_none(state.completed_at),
        "read_lag_since": time_or_none(row.read_since if row.read_lag else None),
        "table_lag_since": time_or_none(row.table_since if row.read_lag or row.commit_lag else None),
        **lag_fields(read_lag=row.read_lag, commit_lag=row.commit_lag, valid_through=time_or_none(state.valid_through)),
        "pending": {
            **pending_fields(
                slices=sum(c.done for c in bare) + len(works),
                files=files,
                bytes=sum(c.bytes for c in bare) + sum(w.bytes for w in works),
            ),
            "files_most": max(files_of.values(), default=files),
        },
        "budget": None if budget is None else BudgetAnswer.model_validate(budget, from_attributes=True),
        "debt": max(cycles.debts.values(), default=None),
        "open_cycles": outcomes.count(CycleOutcome.RUNNING),
        "blocked": sum(len(c) for c, _, _ in state.blocked),
        "rejected_24h": row.rejected_since(now - DAY),
        "topics": sorted({p.topic for p in row.partitions}),
        "tables": list(cycles.tables),
        "dags": list(row.dags),
        "held": HeldAnswer(
            waiting=waits,
            ended=len(sensors) - waits,
            sensors=[SensorAnswer.model_validate(s, from_attributes=True) for s in sensors[:MOST_SENSORS]],
        ),
        "remedies": [RemedyAnswer(command=command, does=does) for command, does in remedies(row)],
        "cycles": [mark_of(c, o) for c, o in newest],
    }
