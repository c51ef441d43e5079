# SPDX-License-Identifier: Apache-2.0
"""Fold the control log over the ledgers into the state of a landing.

Every reader of the same log and ledgers gets the same :class:`LandingState`. Retries, replicas, zombies and speculative
tasks need no coordination: per table, a complete report is accepted or redundant by one rule
(:mod:`~airflow_provider_lakecommit.core.acceptance`); repeated failures block
(:mod:`~airflow_provider_lakecommit.core.blocks`).

The log is not trusted: a report counts only for a planned slice, an attempt reports once, and copies of a record are
ignored. Unreadable records and contradictory reports are quarantined; their ranges are planned again.

Invariants: claims of open cycles are disjoint when made, their slots always. Clocks only end claims, so a wrong clock
causes extra work, never wrong results. A log whose head was removed can only make reports incomplete, hence redundant.
Accepted slices are never given up here: only a caller that asks the source knows whether their records still exist
(:func:`~airflow_provider_lakecommit.core.blocks.blocked_slices`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from airflow_provider_lakecommit.core.acceptance import Acceptance, not_planned
from airflow_provider_lakecommit.core.accounting import report_problem
from airflow_provider_lakecommit.core.blocks import Blocks
from airflow_provider_lakecommit.core.log import (
    AttemptsVoided,
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    EndRequested,
    Entry,
    SliceFiles,
    SliceReported,
    TablePublished,
    Unreadable,
)
from airflow_provider_lakecommit.core.model import Cycle, Slice, SliceReport
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState, TableLedger, granted

MOST_QUARANTINED = 20
"""Quarantined records that are named, the newest ones; the others are counted."""


def fold(entries: Iterable[Entry], ledgers: Sequence[TableLedger], completion_timeout: timedelta) -> LandingState:
    """Fold the log over the ledgers.

    :param entries: of one landing and lane, in log order
    :param ledgers: of every table of the landing, as just read
    :param completion_timeout: how long a claim lives from its START
    """
    folding, log = _Folding(ledgers, completion_timeout), tuple(entries)
    for entry, observed in zip(log, _times_of_sight(log), strict=True):
        folding.observed = observed
        if not folding.is_copy(entry):
            folding.take(entry)
    return folding.state()


def _times_of_sight(log: Sequence[Entry]) -> list[datetime | None]:
    """Return for each entry the earliest time of later ones: by then it was in the log, if one clock was right."""
    observed: list[datetime | None] = [None]
    for later in reversed(log[1:]):
        # The time of a record that nobody reads is as little believed as the rest of it.
        at = observed[-1] if isinstance(later, Unreadable) else later.at
        observed.append(at if observed[-1] is None or at is None else min(at, observed[-1]))
    return observed[::-1] if log else []


class _Folding:
    """Mutable state while folding; one method per kind of entry."""

    def __init__(self, ledgers: Sequence[TableLedger], timeout: timedelta) -> None:
        self.timeout = timeout
        self.blocks = Blocks()
        self.acceptance = Acceptance(ledgers, self.blocks)
        self.cycles: dict[UUID, CycleState] = {}
        self.files: dict[UUID, list[SliceFiles]] = {}
        self.announced: set[UUID] = set()
        self.events: set[UUID] = set()
        self.attempts: set[UUID] = set()
        self.swept: set[UUID] = set()
        self.planned: dict[UUID, dict[UUID, Slice]] = {}
        self.reported_slices: dict[UUID, set[UUID]] = {}
        self.failing: dict[UUID, CommitFailed] = {}
        self.quarantined: deque[Unreadable] = deque(maxlen=MOST_QUARANTINED)
        self.quarantined_count = 0
        self.observed: datetime | None = None

    def is_copy(self, entry: Entry) -> bool:
        """Return True if the same decision was recorded before."""
        if entry.event is None:
            return False
        known = entry.event in self.events
        self.events.add(entry.event)
        return known

    def take(self, entry: Entry) -> None:
        match entry:
            case CycleOpened():
                self.opened(entry)
            case CommitFailed():
                self.commit_failed(entry)
            case SliceFiles():
                self.files.setdefault(entry.attempt, []).append(entry)
            case SliceReported():
                self.reported(entry)
            case TablePublished():
                self.announced.add(entry.token)
                self.apply(entry.directives, entry.offset)
            case CycleClosed():
                self.closed(entry)
            case EndRequested():
                self.end_requested(entry)
            case AttemptsVoided():
                self.swept.update(entry.attempts)
            case Unreadable():
                self.set_aside(entry, entry.reason)

    def set_aside(self, e: Entry, reason: str) -> None:
        self.quarantined.append(Unreadable(offset=e.offset, at=e.at, commit_id=e.commit_id, reason=reason))
        self.quarantined_count += 1

    def opened(self, e: CycleOpened) -> None:
        if e.commit_id in self.cycles:
            return
        self.apply(e.directives, e.offset)
        coverage = e.plan.coverage
        earlier = [c for c in self.cycles.values() if c.live(e.at) and c.claim.overlaps(coverage)]
        claim = coverage - Coverage.union(c.claim for c in earlier)
        self.planned[e.commit_id] = {s.slice_id: s for s in e.plan.slices}
        own = granted(e.plan, claim) if coverage.overlaps(self.acceptance.landed) else ()
        slot, holders = self.slot_of(e.cycle)
        self.cycles[e.commit_id] = CycleState(
            offset=e.offset,
            since=min([e.offset, *(c.since for c in (*earlier, *holders))]),
            at=e.at,
            cycle=replace(e.cycle, slot=slot),
            plan=e.plan,
            claim=claim,
            timeout=self.timeout,
            observed=self.observed,
            # Offsets that all tables have are done, even if the part of the log that reported them is cut off.
            finished=frozenset(s.slice_id for s in own if not s.coverage - self.acceptance.landed),
        )

    def slot_of(self, cycle: Cycle) -> tuple[int, tuple[CycleState, ...]]:
        """Return the slot that a cycle gets, and the cycles that held the one it wished for.

        Of planners that missed each other's STARTs the first keeps its slot, so no transactional id has two open
        cycles.
        """
        holders = tuple(c for c in self.cycles.values() if not c.over)
        used = {c.cycle.slot for c in holders}
        if cycle.slot not in used:
            return cycle.slot, ()
        return next(n for n in range(len(used) + 1) if n not in used), holders

    def commit_failed(self, e: CommitFailed) -> None:
        if (c := self.cycles.get(e.commit_id)) is not None:
            self.cycles[e.commit_id] = replace(c, failed={**c.failed, e.task_attempt: e.reason})
        self.failing[e.commit_id] = e
        self.apply(e.directives, e.offset)

    def reported(self, e: SliceReported) -> None:
        report = e.report
        files = self.files.pop(report.attempt, [])
        if report.attempt in self.attempts:
            return
        self.attempts.add(report.attempt)
        cycle = self.cycles.get(e.commit_id)
        if wrong := report_problem(report, cycle.plan.ends if cycle else {}):
            self.contradiction(e, report, wrong, files)
        elif (reason := self.unrequested(e, report)) is not None:
            self.turn_down(e, report, files, reason)
        elif report.attempt in self.swept:
            self.acceptance.turn_down(
                self.accepted_slice(e, report, files), "its files were swept before it was reported"
            )
        elif report.blocked is not None:
            self.over_budget(e)
        elif report.failed is not None:
            self.slice_failed(e)
        else:
            self.evaluate(e, report, files)

    def unrequested(self, e: SliceReported, report: SliceReport) -> str | None:
        """Return why a report matches no planned slice, or ``None``. An unfinished one may outlive its plan."""
        cycle = self.cycles.get(e.commit_id)
        if cycle is not None:
            # A block is over when all tables have its range; the report on what was given up of it is the same one.
            waits = [] if cycle.plan.slices else [*(b.coverage for b in self.blocks.blocked), self.acceptance.done()]
            return not_planned(report, cycle.plan, self.planned[e.commit_id], waits)
        done = report.blocked is None and report.failed is None
        return "the plan of its cycle is not in the control log" if done else None

    def turn_down(self, e: SliceReported, report: SliceReport, files: list[SliceFiles], reason: str) -> None:
        if e.commit_id in self.cycles:
            self.set_aside(e, f"the report of slice {report.slice_id} was not planned: {reason}")
        self.acceptance.turn_down(self.accepted_slice(e, report, files), reason)

    def over_budget(self, e: SliceReported) -> None:
        if e.report.voids is not None:
            self.acceptance.void(e.report.voids)
        opened = self.cycles[e.commit_id].offset if e.commit_id in self.cycles else -1
        if self.blocks.note_rejects(e, opened):
            self.acceptance.lift_blocks()

    def slice_failed(self, e: SliceReported) -> None:
        if self.blocks.note_failure(e):
            self.acceptance.lift_blocks()

    def accepted_slice(self, e: SliceReported, report: SliceReport, files: list[SliceFiles]) -> AcceptedSlice:
        """Return a report with its files. Its offset is the smallest that it needs, its plan's included."""
        cycle = self.cycles.get(e.commit_id)
        plan = [] if cycle is None else [cycle]
        return AcceptedSlice(
            report=report,
            commit_id=e.commit_id,
            offset=min([e.offset, *(f.offset for f in files), *(c.offset for c in plan)]),
            at=e.at,
            requested_at=None if cycle is None else cycle.plan.requested_at,
            observed=self.observed,
            files={t.table: tuple(f.value for f in files if f.table == t.table) for t in report.tables},
        )

    def evaluate(self, e: SliceReported, report: SliceReport, files: list[SliceFiles]) -> None:
        self.acceptance.evaluate(self.accepted_slice(e, report, files))
        if (c := self.cycles.get(e.commit_id)) is None:
            return
        if self.is_redundant(c, report):
            self.cycles[e.commit_id] = replace(c, redundant=c.redundant | {report.attempt})
            return
        self.reported_slices.setdefault(e.commit_id, set()).add(report.slice_id)
        part = Coverage() if report.slice_id in self.planned[e.commit_id] else report.coverage
        self.cycles[e.commit_id] = replace(
            c, finished=c.finished | {report.slice_id}, in_parts=c.in_parts | part if part else c.in_parts
        )

    def is_redundant(self, c: CycleState, report: SliceReport) -> bool:
        """Return True if this cycle already has a report on some of it."""
        reported, slices = self.reported_slices.get(c.cycle.commit_id, set()), self.planned[c.cycle.commit_id]
        if report.slice_id in reported or c.in_parts.overlaps(report.coverage):
            return True
        if report.slice_id in slices:
            return False
        return any(s.slice_id in reported and s.coverage.overlaps(report.coverage) for s in slices.values())

    def contradiction(self, e: SliceReported, report: SliceReport, wrong: str, files: list[SliceFiles]) -> None:
        self.set_aside(e, f"the report of slice {report.slice_id} contradicts itself: {wrong}")
        self.acceptance.turn_down(self.accepted_slice(e, report, files), wrong)

    def closed(self, e: CycleClosed) -> None:
        self.apply(e.directives, e.offset)
        own = self.cycles.get(e.commit_id)
        if own is not None and not own.complete:
            self.failing = {}
        if own is not None:
            closed_at = e.offset if own.closed_at is None else own.closed_at
            self.cycles[e.commit_id] = replace(own, closed_at=closed_at, complete=True)
        opened = e.offset if own is None else own.offset
        for commit_id, c in self.cycles.items():
            done = c.released or c.ended_early or not c.unfinished
            if c.closed_at is None and c.offset < opened and (done or e.at >= c.ends(e.at)):
                self.cycles[commit_id] = replace(c, closed_at=e.offset)

    def end_requested(self, e: EndRequested) -> None:
        """The claim stays until the cycle is closed: its tasks are about to report."""
        if e.job is None and (c := self.cycles.get(e.commit_id)) is not None and not c.over:
            self.cycles[e.commit_id] = replace(c, ended_early=e.reason)

    def apply(self, d: Directives, offset: int) -> None:
        for commit_id in d.released:
            if (c := self.cycles.get(commit_id)) is not None:
                self.cycles[commit_id] = replace(c, released=True)
        for attempt in d.voided:
            self.acceptance.void(attempt)
        for raised in d.raised:
            self.blocks.raise_budget(raised, offset)

    def state(self) -> LandingState:
        acceptance, done = self.acceptance, self.acceptance.done()
        return LandingState(
            ledgers=acceptance.ledgers,
            cycles=self.cycles,
            accepted={t: tuple(s) for t, s in acceptance.accepted.items()},
            redundant=tuple(acceptance.redundant),
            blocked=tuple(self.blocks.blocked),
            raised=tuple(raised for raised, _ in self.blocks.raised),
            recut=self.blocks.recut - done,
            failed=self.blocks.failed - done,
            evidence=tuple(at for c, at in self.blocks.evidence if c - acceptance.landed),
            announced=frozenset(self.announced),
            failing=tuple(self.failing.values()),
            quarantined=tuple(self.quarantined),
            quarantined_count=self.quarantined_count,
        )
