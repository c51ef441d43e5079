# SPDX-License-Identifier: Apache-2.0
"""One commit cycle as the control log tells it, with its slices one by one while it is under way.

Contract: frozen, and cheap to change: a stream of events makes a new one for each. A slice is counted once, whoever
reports it again. Its accounting is that of source records: what was read is what landed, was rejected, was filtered,
had no record (gaps) or was given up (skipped), and rows are a sum of their own.

Failure story: which slice a report is of is known while the cycle is under way. There are a hundred thousand cycles, so
that is not kept of one that has ended, nor of more than the :data:`~airflow_provider_lakecommit.page.cycles.MOST_OPEN`
newest; reports of those change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core import Counts, SliceReported, Span

__all__ = ["NO_GROUP", "CycleOutcome", "SeenCycle", "SliceOutcome", "SliceWork", "outcomes", "with_report"]

MOST_WORK = 8000
"""Slices of one cycle that are told apart: twice as many as a plan may have, for those that are cut again."""
NO_GROUP = -1
"""Of a slice that is not in the plan: a part of one that was cut again."""
ENDED_EARLY = "it was ended early"


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


class SliceOutcome(StrEnum):
    """How far a slice is."""

    WAITING = "waiting"
    """Nothing was reported of it."""
    DONE = "done"
    PART = "part"
    """Its task was told to end, and reported what it had."""
    BLOCKED = "blocked"
    FAILED = "failed"


FINISHED = (SliceOutcome.DONE, SliceOutcome.PART)
TROUBLED = (SliceOutcome.BLOCKED, SliceOutcome.FAILED)


class SliceWork(NamedTuple):
    """A slice of a cycle under way. ``reports`` counts those of all who did it, replicas among them; all else is of the
    one that counts: its ``attempt``, the time of its report, and the seconds that it took, where it told them.
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
    bytes: int = 0
    seconds: float | None = None
    reason: str = ""


class SeenCycle(NamedTuple):
    """One cycle. Times are seconds of the epoch; ``planned`` counts offsets.

    ``done`` counts the slices of this cycle's plan that were read whole or in part, ``undone`` those that were only
    over their budget, or failed; ``work`` are all of them, while it is under way, as are ``files_of``, the files for
    each table. ``redundant`` counts reports on slices that had been reported. ``rows`` are those written for each
    table. ``published`` are its tables with the time of their commit, ``dead_letters`` the rejected records
    in these snapshots, whichever cycle read them. A cycle of a connector has no plan
    that is known; its ``files`` are those that were announced for it, ``recorded`` their records.
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
        """Records that were landed; of a connector, those in the files that it announced."""
        return self.recorded if self.connector else self.counts.landed

    @property
    def outcome(self) -> CycleOutcome:
        """The first that applies, by what is known of this cycle alone."""
        short = self.end_asked or self.undone or self.refused or self.done < self.slices
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


def with_report(cycle: SeenCycle, entry: SliceReported, at: float) -> SeenCycle:
    """The cycle after a report on one of its slices; the same one, if that is not counted."""
    report = entry.report
    of = report.whole or report.slice_id
    before = cycle.work.get(of, SliceWork(of, NO_GROUP))
    full = not cycle.work or (of not in cycle.work and len(cycle.work) >= MOST_WORK)
    if cycle.ended is not None or full:
        return cycle
    if before.outcome in FINISHED:
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
        end_asked=cycle.end_asked or (ENDED_EARLY if report.whole else ""),
    )


def _sum(first: Counts, more: Iterable[Counts]) -> Counts:
    """As their addition, in one step: there are several for each event of a stream."""
    landed, rejected, filtered, gaps, skipped = first.landed, first.rejected, first.filtered, first.gaps, first.skipped
    for c in more:
        landed += c.landed
        rejected += c.rejected
        filtered += c.filtered
        gaps += c.gaps
        skipped += c.skipped
    return Counts(landed=landed, rejected=rejected, filtered=filtered, gaps=gaps, skipped=skipped)


def _outcome(entry: SliceReported) -> SliceOutcome:
    report = entry.report
    if report.blocked is not None:
        return SliceOutcome.BLOCKED
    if report.failed is not None:
        return SliceOutcome.FAILED
    return SliceOutcome.PART if report.whole else SliceOutcome.DONE
