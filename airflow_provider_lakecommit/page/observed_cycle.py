# SPDX-License-Identifier: Apache-2.0
"""One commit cycle by the control log, with its slices while it is open.

Frozen, and cheap to change. A slice is counted once, however often it is reported. Ended cycles, and all but the
:data:`~airflow_provider_lakecommit.page.cycles.MOST_OPEN` newest, lose their slices; reports of those change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core import Counts, SliceReported, Span

MOST_WORK = 8000
"""Distinct slices of one cycle: twice the limit of a plan, for slices that are cut again."""
NO_GROUP = -1
"""Group of a part of a planned slice."""
ENDED_EARLY = "ended early"
_COUNTS = tuple(f.name for f in fields(Counts))


class CycleOutcome(StrEnum):
    """How a cycle ended, or that it is open."""

    RUNNING = "running"
    LEFT = "left"
    """It did not complete, but a later one did: the rest was planned again."""
    COMPLETE = "complete"
    PARTIAL = "partial"
    """Complete, without all planned ranges: some are blocked, failed or left to a later cycle."""
    FAILED = "failed"
    EMPTY = "empty"
    """There was nothing to plan."""
    BLOCKED = "blocked"
    """There was, but all of it waits for a user's decision."""
    REFUSED = "refused"
    """There was, but the plan has a reason why none of it was planned."""


class SliceOutcome(StrEnum):
    """The progress of a slice."""

    WAITING = "waiting"
    """Without a report."""
    DONE = "done"
    PART = "part"
    """Its task was stopped, and reported what it had."""
    BLOCKED = "blocked"
    FAILED = "failed"


FINISHED = (SliceOutcome.DONE, SliceOutcome.PART)
TROUBLED = (SliceOutcome.BLOCKED, SliceOutcome.FAILED)


class SliceWork(NamedTuple):
    """A slice of an open cycle. ``reports`` counts all attempts; all else is of the one that counts. ``waits`` are its
    files, by table, that are in no snapshot yet.
    """

    slice_id: UUID
    group: int
    spans: tuple[Span, ...] = ()
    outcome: SliceOutcome = SliceOutcome.WAITING
    reports: int = 0
    attempt: UUID | None = None
    at: float | None = None
    counts: Counts = Counts()
    rows: int = 0
    files: int = 0
    waits: tuple[tuple[str, int], ...] = ()
    bytes: int = 0
    seconds: float | None = None
    reason: str = ""


class ObservedCycle(NamedTuple):
    """One cycle. Times are seconds of the epoch; ``planned`` counts offsets, ``behind`` is whether records were left
    that no other cycle was reading.

    ``done`` counts slices that were read completely or in part, ``undone`` those only over budget or failed; ``work``
    and ``files_of`` (files by table) are kept while it is open. ``redundant`` counts repeated reports. ``published``
    are its tables with commit times, ``dead_letters`` the rejected records in these snapshots, whichever cycle read
    them. Of a connector's cycle, ``files`` are the announced ones and ``recorded`` their records.
    """

    commit_id: str
    began: float
    dag: str = ""
    run: str = ""
    tables: tuple[str, ...] = ()
    planned: int = 0
    groups: int = 0
    slices: int = 0
    left: int = 0
    reason: str = ""
    refused: bool = False
    behind: bool = False
    connector: bool = False
    done: int = 0
    undone: int = 0
    redundant: int = 0
    work: Mapping[UUID, SliceWork] = MappingProxyType({})
    counts: Counts = Counts()
    rows: tuple[tuple[str, int], ...] = ()
    recorded: int = 0
    files: int = 0
    files_of: tuple[tuple[str, int], ...] = ()
    bytes: int = 0
    last_report: float | None = None
    published: tuple[tuple[str, float], ...] = ()
    dead_letters: int = 0
    failures: int = 0
    failed: str = ""
    end_asked: str = ""
    ended: float | None = None

    @property
    def records(self) -> int:
        """Return the number of landed records; for a connector, those in its announced files."""
        return self.recorded if self.connector else self.counts.landed

    @property
    def outcome(self) -> CycleOutcome:
        """Return the first outcome that applies, by this cycle alone."""
        short = self.end_asked or self.undone or self.refused or self.done < self.slices
        rows = (
            (CycleOutcome.FAILED, self.ended is None and self.failed),
            (CycleOutcome.RUNNING, self.ended is None and (self.slices or self.connector)),
            (CycleOutcome.COMPLETE, self.connector and self.published),
            (CycleOutcome.REFUSED, not self.slices and self.refused),
            (CycleOutcome.BLOCKED, not self.slices and self.behind),
            (CycleOutcome.EMPTY, not self.slices),
            (CycleOutcome.PARTIAL, short),
        )
        return next((outcome for outcome, applies in rows if applies), CycleOutcome.COMPLETE)


def outcomes(cycles: tuple[ObservedCycle, ...]) -> tuple[CycleOutcome, ...]:
    """Return how each of these ended, oldest first."""
    later = list(accumulate((c.ended is not None for c in reversed(cycles)), lambda a, b: a or b, initial=False))[::-1]
    alone = (c.outcome for c in cycles)
    return tuple(
        CycleOutcome.LEFT if o is CycleOutcome.RUNNING and passed else o
        for o, passed in zip(alone, later[1:], strict=True)
    )


def under_way(cycles: tuple[ObservedCycle, ...]) -> tuple[ObservedCycle, ...]:
    """Return the cycles that are not over: a later one that completed has published what an earlier one had read."""
    last = max((n for n, c in enumerate(cycles) if c.ended is not None), default=-1)
    return tuple(c for c in cycles[last + 1 :] if c.slices or c.connector)


def with_report(cycle: ObservedCycle, entry: SliceReported, at: float) -> ObservedCycle:
    """Return the cycle after a report on one of its slices; unchanged, if the report does not count."""
    report = entry.report
    of = report.planned_slice or report.slice_id
    before = cycle.work.get(of, SliceWork(of, NO_GROUP))
    full = not cycle.work or (of not in cycle.work and len(cycle.work) >= MOST_WORK)
    if cycle.ended is not None or full:
        return cycle
    if before.outcome in FINISHED and report.voids is None:
        again = before._replace(reports=before.reports + 1)
        return cycle._replace(work={**cycle.work, of: again}, redundant=cycle.redundant + 1)
    counts, cost = _sum(Counts(), (s.counts for s in report.spans)), report.cost
    after = before._replace(
        outcome=_outcome(entry),
        reports=before.reports + 1,
        attempt=report.attempt,
        at=at,
        counts=counts,
        rows=sum(t.rows for t in report.tables),
        files=sum(t.files for t in report.tables),
        waits=tuple((t.table, t.files) for t in report.tables if t.files),
        bytes=report.bytes,
        seconds=None if cost is None else cost.read_seconds + cost.decode_seconds + cost.write_seconds,
        reason=report.blocked or report.failed or "",
    )
    work = {**cycle.work, of: after}
    undone = cycle.undone + (after.outcome in TROUBLED) - (before.outcome in TROUBLED)
    if after.outcome in TROUBLED:
        return cycle._replace(work=work, undone=undone, last_report=at)
    rows, files = dict(cycle.rows), dict(cycle.files_of)
    for t in report.tables:
        rows[t.table] = rows.get(t.table, 0) + t.rows
        files[t.table] = files.get(t.table, 0) + t.files
    return cycle._replace(
        work=work,
        undone=undone,
        done=cycle.done + 1,
        last_report=at,
        counts=_sum(cycle.counts, (counts,)),
        rows=tuple(rows.items()),
        files=cycle.files + after.files,
        files_of=tuple(files.items()),
        bytes=cycle.bytes + report.bytes,
        end_asked=cycle.end_asked or (ENDED_EARLY if report.planned_slice else ""),
    )


def _sum(first: Counts, more: Iterable[Counts]) -> Counts:
    """Return their sum in one step, as this runs several times per event."""
    every = (first, *more)
    return Counts(**{name: sum([getattr(c, name) for c in every]) for name in _COUNTS})


def _outcome(entry: SliceReported) -> SliceOutcome:
    report = entry.report
    if report.blocked is not None:
        return SliceOutcome.BLOCKED
    if report.failed is not None:
        return SliceOutcome.FAILED
    return SliceOutcome.PART if report.planned_slice else SliceOutcome.DONE
