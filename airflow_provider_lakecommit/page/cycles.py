# SPDX-License-Identifier: Apache-2.0
"""The newest cycles of one landing or connector, and how far its partitions are, as its control records tell it.

Contract: pure and frozen, so what a reader thread has made may be shown by others while it goes on. A cycle counts each
slice once, whoever reports it again. What is kept is bounded: :data:`MOST_CYCLES` cycles and :data:`MOST_PARTITIONS`
partitions, however long the log is.

Failure story: an event of a cycle whose beginning was not read, or is not kept any more, changes the partitions and no
cycle. So what is shown of the oldest cycle may be less than what it did.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    EndAsked,
    Entry,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.core.model import Cycle, Plan
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.stall.verdict import EventKind, Seen

__all__ = [
    "MOST_CYCLES",
    "CycleOutcome",
    "LandingCycles",
    "PagePartition",
    "SeenCycle",
    "connector_cycles_after",
    "cycles_after",
    "outcomes",
]

MOST_CYCLES = 100
MOST_PARTITIONS = 1000
MOST_TABLES = 100
MOST_DAGS = 10
NONE: frozenset[UUID] = frozenset()

ENDED_EARLY = "it was ended early"

Place = tuple[str, int]


class CycleOutcome(StrEnum):
    """How a cycle ended, or that it has not."""

    RUNNING = "running"
    LEFT = "left"
    """It did not complete, and a later one did: what it left was planned again."""
    COMPLETE = "complete"
    PARTIAL = "partial"
    """Complete, without all that was planned: ranges are blocked, failed or left to a later cycle."""
    FAILED = "failed"
    EMPTY = "empty"
    """Nothing was there to be planned."""
    REFUSED = "refused"
    """There was, and the plan says why none of it was planned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCycle:
    """One cycle. Times are seconds of the epoch; ``planned`` counts offsets, the other counts are records and files.

    ``done`` counts the slices of this cycle's plan that were read whole or in part, ``undone`` those that were only
    over their budget, or failed; which ones they are is ``reported`` and ``troubled``, and is not kept when it has
    ended: there are a hundred thousand cycles. ``published`` are its tables with their snapshot and when it was told. A
    cycle of a connector has no plan that is known; its ``files`` are those that were announced for it.
    """

    commit_id: str
    began: float
    dag: str = ""
    run: str = ""
    deployment: str = ""
    tables: tuple[str, ...] = ()
    planned: int = 0
    groups: int = 0
    slices: int = 0
    left: int = 0
    reason: str = ""
    refused: bool = False
    connector: bool = False
    done: int = 0
    undone: int = 0
    reported: frozenset[UUID] = frozenset()
    troubled: frozenset[UUID] = frozenset()
    landed: int = 0
    rejected: int = 0
    files: int = 0
    bytes: int = 0
    last_report: float | None = None
    published: tuple[tuple[str, int, float], ...] = ()
    failures: int = 0
    failed: str = ""
    end_asked: str = ""
    ended: float | None = None

    @property
    def outcome(self) -> CycleOutcome:
        """The first that applies, by what is known of this cycle alone."""
        short = self.end_asked or self.undone or self.done < self.slices
        rows = (
            (CycleOutcome.FAILED, self.ended is None and self.failed),
            (CycleOutcome.RUNNING, self.ended is None and (self.slices or self.connector)),
            (CycleOutcome.COMPLETE, self.connector and self.published),
            (CycleOutcome.REFUSED, not self.slices and self.refused),
            (CycleOutcome.EMPTY, not self.slices),
            (CycleOutcome.PARTIAL, short),
        )
        return next((outcome for outcome, applies in rows if applies), CycleOutcome.COMPLETE)


def outcomes(cycles: tuple[SeenCycle, ...]) -> tuple[CycleOutcome, ...]:
    """How each of these ended, the oldest first."""
    later = list(accumulate((c.ended is not None for c in reversed(cycles)), lambda a, b: a or b, initial=False))[::-1]
    alone = (c.outcome for c in cycles)
    return tuple(
        CycleOutcome.LEFT if o is CycleOutcome.RUNNING and passed else o
        for o, passed in zip(alone, later[1:], strict=True)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePartition:
    """How far one partition is: ends of what was planned, reported, published, and of the log when it was looked at."""

    topic: str
    partition: int
    planned: int | None = None
    reported: int | None = None
    published: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingCycles:
    """``cycles`` are the oldest first; ``dags`` are those that ran them, with their deployment, the last one first.
    ``published`` holds, per table, the end of each partition. A partition is published as far as the first table has
    it, which is that of the data: one of dead letters gets a snapshot only where there are some.
    """

    cycles: tuple[SeenCycle, ...] = ()
    dags: tuple[tuple[str, str], ...] = ()
    tables: tuple[str, ...] = ()
    spec_version: str = ""
    planned: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    reported: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))
    published: Mapping[str, Mapping[Place, int]] = field(default_factory=lambda: MappingProxyType({}))
    ends: Mapping[Place, int] = field(default_factory=lambda: MappingProxyType({}))

    def partitions(self, ends: Mapping[Place, int]) -> tuple[PagePartition, ...]:
        """:param ends: of the topics, as they are now; those of the newest plan where that is not known"""
        data = next((self.published[t] for t in self.tables if t in self.published), {})
        places = sorted({*self.ends, *self.planned})
        return tuple(
            PagePartition(
                topic=topic,
                partition=partition,
                planned=self.planned.get((topic, partition)),
                reported=self.reported.get((topic, partition)),
                published=data.get((topic, partition)),
                end=ends.get((topic, partition), self.ends.get((topic, partition))),
            )
            for topic, partition in places[:MOST_PARTITIONS]
        )


def cycles_after(known: LandingCycles, entry: Entry) -> LandingCycles:
    """What is known after one more entry of the landing's log."""
    at = entry.at.timestamp()
    match entry:
        case CycleOpened():
            return _opened(known, entry, at)
        case SliceReported(report=report):
            ok = report.blocked is None and report.failed is None
            known = replace(known, reported=_furthest(known.reported, report.coverage)) if ok else known
            return _changed(known, entry.commit_id, lambda c: _reported(c, entry, at))
        case CommitFailed(reason=reason):
            return _changed(known, entry.commit_id, lambda c: replace(c, failed=reason, failures=c.failures + 1))
        case TablePublished(table=table, coverage=coverage, snapshot_id=snapshot):
            ends = {**known.published, table: _furthest(known.published.get(table, {}), coverage)}
            known = replace(known, published=ends)
            told = (table, snapshot, at)
            return _changed(known, entry.commit_id, lambda c: replace(c, published=(*c.published, told)))
        case EndAsked(job=None, reason=reason):
            return _changed(known, entry.commit_id, lambda c: replace(c, end_asked=reason))
        case CycleClosed():
            return _changed(known, entry.commit_id, lambda c: replace(c, ended=at, reported=NONE, troubled=NONE))
    return known


def connector_cycles_after(known: LandingCycles, seen: Seen) -> LandingCycles:
    """What is known after one more event of a connector's group."""
    commit = UUID(bytes=seen.commit)
    match seen.kind:
        case EventKind.START:
            one = SeenCycle(commit_id=str(commit), began=seen.at, connector=True)
            again = _place(known, commit) is not None
            return known if again else replace(known, cycles=(*known.cycles, one)[-MOST_CYCLES:])
        case EventKind.WRITTEN:
            return _changed(known, commit, lambda c: replace(c, files=c.files + (seen.files or 0)))
        case EventKind.PUBLISHED if seen.table is not None:
            told = (seen.table, 0, seen.at)
            tables = known.tables if seen.table in known.tables else (*known.tables, seen.table)[-MOST_TABLES:]
            known = replace(known, tables=tables)
            return _changed(known, commit, lambda c: replace(c, published=(*c.published, told)))
        case EventKind.COMPLETED:
            return _changed(known, commit, lambda c: replace(c, ended=seen.at))
    return known


def _opened(known: LandingCycles, entry: CycleOpened, at: float) -> LandingCycles:
    plan, cycle = entry.plan, entry.cycle
    tables = tuple(t.table for t in plan.targets)
    # One and the same for all its cycles.
    tables = known.tables if tables in ((), known.tables) else tables
    if _place(known, entry.commit_id) is not None:
        # Planned again by the same run, as after a Clear: what counts is the newest plan of it.
        return _changed(known, entry.commit_id, lambda c: replace(c, **_planned(plan, tables)))
    one = SeenCycle(commit_id=str(entry.commit_id), began=at, **_run(cycle), **_planned(plan, tables))
    dag = (cycle.deployment, cycle.dag)
    return replace(
        known,
        cycles=(*known.cycles, one)[-MOST_CYCLES:],
        dags=(dag, *(d for d in known.dags if d != dag))[:MOST_DAGS],
        tables=tables,
        spec_version=plan.spec_version,
        planned=_furthest(known.planned, plan.coverage),
        ends={(p.topic, p.partition): end for p, end in plan.ends.items()} or known.ends,
    )


def _run(cycle: Cycle) -> dict[str, Any]:
    return {"deployment": cycle.deployment, "dag": cycle.dag, "run": cycle.run}


def _planned(plan: Plan, tables: tuple[str, ...]) -> dict[str, Any]:
    """What a cycle has of its plan."""
    return {
        "tables": tables,
        "planned": sum(len(span.range) for s in plan.slices for span in s.spans),
        "groups": len({s.group for s in plan.slices}),
        "slices": len(plan.slices),
        "left": plan.left,
        "reason": plan.reason or "",
        "refused": plan.refused is not None,
    }


def _reported(cycle: SeenCycle, entry: SliceReported, at: float) -> SeenCycle:
    report = entry.report
    of = report.whole or report.slice_id
    if cycle.ended is not None or report.slice_id in cycle.reported or of in cycle.reported:
        return cycle
    if report.blocked is not None or report.failed is not None:
        troubled = cycle.troubled | {of}
        return replace(cycle, troubled=troubled, undone=len(troubled), last_report=at)
    return replace(
        cycle,
        reported=cycle.reported | {of},
        done=cycle.done + 1,
        last_report=at,
        troubled=cycle.troubled - {of},
        undone=len(cycle.troubled - {of}),
        landed=cycle.landed + sum(s.counts.landed for s in report.spans),
        rejected=cycle.rejected + sum(s.counts.rejected for s in report.spans),
        files=cycle.files + sum(t.files for t in report.tables),
        bytes=cycle.bytes + report.bytes,
        end_asked=cycle.end_asked or (ENDED_EARLY if report.whole else ""),
    )


def _furthest(known: Mapping[Place, int], more: Coverage) -> Mapping[Place, int]:
    """The highest end of each partition."""
    ends = {(p.topic, p.partition): r.end for p, r in more.items()}
    return {**known, **{place: max(end, known.get(place, 0)) for place, end in ends.items()}}


def _changed(known: LandingCycles, commit_id: UUID, change: Callable[[SeenCycle], SeenCycle]) -> LandingCycles:
    place = _place(known, commit_id)
    if place is None:
        return known
    before = known.cycles
    return replace(known, cycles=(*before[:place], change(before[place]), *before[place + 1 :]))


def _place(known: LandingCycles, commit_id: UUID) -> int | None:
    """The newest cycles are at the end, and those that change are among them."""
    wanted = str(commit_id)
    return next((i for i in range(len(known.cycles) - 1, -1, -1) if known.cycles[i].commit_id == wanted), None)
