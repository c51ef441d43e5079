# SPDX-License-Identifier: Apache-2.0
"""The fold: control log and ledgers to what is open, accepted, blocked.

Contract: :func:`fold` is a function of the entries in log order, the ledgers and nothing else; every reader of the same
log and the same ledgers gets the same :class:`LandingState`. Cooperation is not needed: a complete report is
*accepted*, per table, if its epoch is current and its ranges are disjoint from the ledger and from what was accepted
before it; otherwise it is *redundant*. This one rule serves retries, replicas, zombies and speculative tasks. A slice
of several partitions is not accepted while a blocked or failing range of one of them would keep the others waiting, nor
one for a table whose ranges another table of the landing has by other rules
(:mod:`~airflow_provider_lakecommit.core.rules`).

Nobody is believed for being in the log. A report counts only for a slice that a plan in the log set out to do
(:mod:`~airflow_provider_lakecommit.core.planned`), an attempt reports once, and a record that comes again, word for
word, says nothing the second time. A COMMIT_COMPLETE of a cycle that the log does not hold ends no row of failures.

Invariants: per table, accepted slices are disjoint from each other and from the ledger; the claims of open cycles are
disjoint from each other at the time each was made, their slots always; clocks only end claims, that is they only ever
allow extra work.

Failure story: entries lost at the head of the log (retention) can only make reports incomplete, and an incomplete
report is redundant: its range is planned again. Nothing is accepted that the log does not hold whole. A record that
cannot be read, and a report that contradicts itself, is named and passed over: whatever it was about is planned again,
and no other record is held up by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from uuid import UUID

from airflow_provider_lakecommit.core.accounting import report_problem
from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    Entry,
    Raised,
    SliceFiles,
    SliceReported,
    TablePublished,
    Unreadable,
)
from airflow_provider_lakecommit.core.model import Cycle, Slice, SliceReport
from airflow_provider_lakecommit.core.offsets import NOTHING, Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planned import not_planned
from airflow_provider_lakecommit.core.rules import UNKNOWN, otherwise
from airflow_provider_lakecommit.core.state import (
    AcceptedSlice,
    Blocked,
    CycleState,
    FailedCycle,
    LandingState,
    Quarantined,
    Redundant,
    TableLedger,
    granted,
)

__all__ = ["FAILURES_TO_BLOCK", "MOST_QUARANTINED", "fold"]

FAILURES_TO_BLOCK = 3
"""A range whose slices reported a failure in this many cycles is blocked by name, once one of these was its alone."""
MOST_QUARANTINED = 20
"""Records that were passed over are named up to this many, the newest ones; the others are counted."""


def fold(entries: Iterable[Entry], ledgers: Sequence[TableLedger], completion_timeout: timedelta) -> LandingState:
    """Fold the log over the ledgers.

    :param entries: of one landing and lane, in log order
    :param ledgers: of every table of the landing, as just read from the tables
    :param completion_timeout: how long a claim lives from its START
    """
    folding, log = _Folding(ledgers, completion_timeout), tuple(entries)
    for entry, seen in zip(log, _times_of_sight(log), strict=True):
        folding.seen = seen
        folding.take(entry)
    return folding.state()


def _times_of_sight(log: Sequence[Entry]) -> list[datetime | None]:
    """For each entry the earliest time of the later ones: by then it stood in the log, if one clock was right."""
    seen: list[datetime | None] = [None]
    for later in reversed(log[1:]):
        # The time of a record that nobody reads is as little believed as the rest of it.
        told = seen[-1] if isinstance(later, Unreadable) else later.at
        seen.append(told if seen[-1] is None or told is None else min(told, seen[-1]))
    return seen[::-1] if log else []


class _Folding:
    """Mutable state while folding; one method per kind of entry."""

    def __init__(self, ledgers: Sequence[TableLedger], timeout: timedelta) -> None:
        self.ledgers = {t.table: t for t in ledgers}
        self.timeout = timeout
        self.taken: dict[str, dict[SourcePartition, RangeSet]] = {
            t.table: dict((t.section.covered | t.others).parts) for t in ledgers
        }
        self.rules: dict[str, set[str]] = {t.table: set() for t in ledgers}
        self.cycles: dict[UUID, CycleState] = {}
        self.files: dict[UUID, list[SliceFiles]] = {}
        self.accepted: dict[str, list[AcceptedSlice]] = {t.table: [] for t in ledgers}
        self.redundant: list[Redundant] = []
        self.blocked: list[Blocked] = []
        self.raised: list[Raised] = []
        self.recut = Coverage()
        self.failures = [Coverage() for _ in range(FAILURES_TO_BLOCK)]
        self.failed_in: set[tuple[UUID, UUID]] = set()
        self.evidence: list[tuple[Coverage, int]] = []
        self.raised_at: list[int] = []
        self.announced: set[UUID] = set()
        self.events: set[UUID] = set()
        self.attempts: set[UUID] = set()
        self.planned: dict[UUID, dict[UUID, Slice]] = {}
        self.landed = _common([t.section.covered | t.others for t in ledgers])
        self.failing: dict[UUID, FailedCycle] = {}
        self.quarantined: deque[Quarantined] = deque(maxlen=MOST_QUARANTINED)
        self.quarantined_count = 0
        self.seen: datetime | None = None

    def take(self, entry: Entry) -> None:
        if entry.event is not None:
            if entry.event in self.events:
                return
            self.events.add(entry.event)
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
            case Unreadable():
                self.set_aside(entry, entry.reason)

    def set_aside(self, e: Entry, reason: str) -> None:
        self.quarantined.append(Quarantined(offset=e.offset, at=e.at, reason=reason))
        self.quarantined_count += 1

    def opened(self, e: CycleOpened) -> None:
        if e.commit_id in self.cycles:
            return
        self.apply(e.directives, e.offset)
        wanted = e.plan.coverage
        earlier = [c for c in self.cycles.values() if c.live(e.at) and c.claim.overlaps(wanted)]
        claim = wanted - Coverage.of(item for c in earlier for item in c.claim.items())
        self.planned[e.commit_id] = {s.slice_id: s for s in e.plan.slices}
        own = granted(e.plan, claim) if wanted.overlaps(self.landed) else ()
        slot, holders = self.slot_of(e.cycle)
        self.cycles[e.commit_id] = CycleState(
            offset=e.offset,
            since=min([e.offset, *(c.since for c in (*earlier, *holders))]),
            at=e.at,
            cycle=replace(e.cycle, slot=slot),
            plan=e.plan,
            claim=claim,
            timeout=self.timeout,
            seen=self.seen,
            # What all tables have is done, also where the log that told so is cut off.
            finished=frozenset(s.slice_id for s in own if not s.coverage - self.landed),
        )

    def slot_of(self, cycle: Cycle) -> tuple[int, tuple[CycleState, ...]]:
        """The slot that a cycle is granted, and the cycles that kept it from the one it wished for: of planners that
        did not see each other's STARTs the first has it, so that no transactional id is of two open cycles.
        """
        holders = tuple(c for c in self.cycles.values() if not c.over)
        used = {c.cycle.slot for c in holders}
        if cycle.slot not in used:
            return cycle.slot, ()
        return next(n for n in range(len(used) + 1) if n not in used), holders

    def commit_failed(self, e: CommitFailed) -> None:
        if (c := self.cycles.get(e.commit_id)) is not None:
            self.cycles[e.commit_id] = replace(c, failed={**c.failed, e.task_attempt: e.reason})
        self.failing[e.commit_id] = FailedCycle.of(e, c)
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
        elif (reason := self.unasked(e, report)) is not None:
            self.turn_down(e, report, files, reason)
        elif report.blocked is not None:
            self.over_budget(e, report)
        elif report.failed is not None:
            self.slice_failed(e, report)
        else:
            self.judge(e, report, files)

    def unasked(self, e: SliceReported, report: SliceReport) -> str | None:
        """Why a report is not of a slice that was planned, or ``None``. Of one that was not done nothing is published,
        so that it may outlive its plan.
        """
        cycle = self.cycles.get(e.commit_id)
        if cycle is not None:
            # A block is over when all tables have its range; the report on what was given up of it is the same one.
            waits = [] if cycle.plan.slices else [*(b.coverage for b in self.blocked), self.done()]
            return not_planned(report, cycle.plan, self.planned[e.commit_id], waits)
        done = report.blocked is None and report.failed is None
        return "the plan of its cycle is not in the control log" if done else None

    def turn_down(self, e: SliceReported, report: SliceReport, files: list[SliceFiles], reason: str) -> None:
        whole = self.whole(e, report, files)
        if e.commit_id in self.cycles:
            self.set_aside(e, f"the report of slice {report.slice_id} was not asked for: {reason}")
        self.redundant += [Redundant(slice=whole, table=t, reason=reason) for t in self.ledgers if report.table(t)]

    def over_budget(self, e: SliceReported, report: SliceReport) -> None:
        if self.raised_since(e.commit_id, report.coverage):
            return
        # Also of one that is blocked: what a person gives up then is known by it, until all tables have it.
        self.evidence.append((report.coverage, e.offset))
        if len(report.spans) > 1:
            self.recut = self.recut | report.coverage
        else:
            self.block(report.coverage, str(report.blocked), e)

    def raised_since(self, commit_id: UUID, coverage: Coverage) -> bool:
        """Did a person raise the budget after this cycle was planned? Then it judged by a budget that is past."""
        opened = self.cycles[commit_id].offset if commit_id in self.cycles else -1
        raised = zip(self.raised, self.raised_at, strict=True)
        return any(at > opened and r.coverage.overlaps(coverage) for r, at in raised)

    def slice_failed(self, e: SliceReported, report: SliceReport) -> None:
        if (e.commit_id, report.slice_id) in self.failed_in:
            return
        self.failed_in.add((e.commit_id, report.slice_id))
        for k in range(FAILURES_TO_BLOCK - 1, 0, -1):
            self.failures[k] = self.failures[k] | (self.failures[k - 1] & report.coverage)
        self.failures[0] = self.failures[0] | report.coverage
        self.evidence.append((report.coverage, e.offset))
        # What several ranges have failed together tells of none of them.
        if len(report.spans) == 1 and (often := self.failures[-1] & report.coverage):
            self.block(often, f"failed in {FAILURES_TO_BLOCK} cycles: {report.failed}", e)
        self.disentangle()

    def block(self, coverage: Coverage, reason: str, e: SliceReported) -> None:
        if new := coverage - Coverage.of(item for b in self.blocked for item in b.coverage.items()):
            version, rules = e.report.spec_version, e.report.rules
            self.blocked.append(
                Blocked(coverage=new, reason=reason, offset=e.offset, at=e.at, spec_version=version, rules=rules)
            )
            self.lift_blocks()
            self.disentangle()

    def lift_blocks(self) -> None:
        """A block is over as soon as every table has its range."""
        if self.blocked:
            self.unblock(self.done())

    def done(self) -> Coverage:
        """What every table has, or has accepted."""
        return _common([Coverage(dict(t)) for t in self.taken.values()])

    def disentangle(self) -> None:
        """Slices of several partitions that a block, or a range that fails, keeps from being published are given up, so
        that their other partitions go on.
        """
        for table, slices in self.accepted.items():
            for s in [s for s in slices if self.held_by(s, table)]:
                self.give_up(s, table, f"it is held by the blocked range of {self.held_by(s, table)}")

    def held_by(self, s: AcceptedSlice, table: str) -> SourcePartition | None:
        """The partition in which a slice of several stands behind a blocked or failing range that the table lacks."""
        parts = s.coverage.parts
        if len(parts) < 2 or not (self.blocked or self.failures[0]):
            return None
        blocked = Coverage.of(item for b in self.blocked for item in b.coverage.items())
        blocked = blocked | (self.failures[0] - s.coverage)
        for p, ranges in parts.items():
            lacking = blocked[p] - self.taken[table].get(p, NOTHING)
            if lacking and lacking.ranges[0].start < ranges.ranges[-1].end:
                return p
        return None

    def whole(self, e: SliceReported, report: SliceReport, files: list[SliceFiles]) -> AcceptedSlice:
        """A report with its files. It needs the log from its plan on, and is as old as that."""
        cycle = self.cycles.get(e.commit_id)
        plan = [] if cycle is None else [cycle]
        return AcceptedSlice(
            report=report,
            commit_id=e.commit_id,
            offset=min([e.offset, *(f.offset for f in files), *(c.offset for c in plan)]),
            at=e.at,
            asked_at=None if cycle is None else cycle.plan.asked_at,
            seen=self.seen,
            files={t.table: tuple(f.value for f in files if f.table == t.table) for t in report.tables},
        )

    def judge(self, e: SliceReported, report: SliceReport, files: list[SliceFiles]) -> None:
        whole = self.whole(e, report, files)
        for name in [t.table for t in report.tables if t.table in self.ledgers]:
            reason = self.objection(whole, name)
            if reason is None:
                self.accepted[name].append(whole)
                self.rules[name].add(report.rules)
                self.add(name, report.coverage)
            else:
                self.redundant.append(Redundant(slice=whole, table=name, reason=reason))
        if (c := self.cycles.get(e.commit_id)) is not None:
            part = Coverage() if report.slice_id in self.planned[e.commit_id] else report.coverage
            self.cycles[e.commit_id] = replace(
                c, finished=c.finished | {report.slice_id}, in_parts=c.in_parts | part if part else c.in_parts
            )

    def contradiction(self, e: SliceReported, report: SliceReport, wrong: str, files: list[SliceFiles]) -> None:
        """What it is about counts as not reported, so it is planned again."""
        self.set_aside(e, f"the report of slice {report.slice_id} contradicts itself: {wrong}")
        named = dict.fromkeys(t.table for t in report.tables if t.table in self.ledgers)
        self.redundant += [Redundant(slice=self.whole(e, report, files), table=name, reason=wrong) for name in named]

    def objection(self, s: AcceptedSlice, table: str) -> str | None:
        """Why a report is not taken for a table, or ``None``."""
        of, ledger = s.report.table(table), self.ledgers[table]
        if of is None:
            return "it is not about this table"
        if of.events != len(s.files[table]):
            return f"{len(s.files[table])} of its {of.events} file lists are in the control log"
        if of.uuid != ledger.uuid:
            return "it was written for a table of this name that is gone"
        if of.epoch != ledger.section.epoch:
            return "its epoch is void"
        taken = self.taken[table]
        if any(taken.get(p, NOTHING).overlaps(r) for p, r in s.coverage.items()):
            return "its ranges are in the ledger or accepted already"
        if (p := self.held_by(s, table)) is not None:
            return f"it is held by the blocked range of {p}"
        others = ((t, self.judged_otherwise(s, t)) for t in self.ledgers if t != table)
        return next((f"{t} has {ranges} by other rules" for t, ranges in others if ranges), None)

    def judged_otherwise(self, s: AcceptedSlice, table: str) -> Coverage:
        """What of a slice a table has, or has accepted, by rules that are known to be others."""
        rules = s.report.rules
        found = otherwise(self.ledgers[table].judged, s.coverage, rules)
        if rules != UNKNOWN and self.rules[table] - {rules, UNKNOWN}:
            for a in self.accepted[table]:
                if a.report.rules not in (rules, UNKNOWN):
                    found = found | (a.coverage & s.coverage)
        return found

    def add(self, table: str, coverage: Coverage) -> None:
        taken = self.taken[table]
        for p, s in coverage.parts.items():
            taken[p] = taken.get(p, NOTHING) | s
        self.failures = [f - coverage for f in self.failures]
        self.lift_blocks()

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
            if c.closed_at is None and c.offset < opened and (e.at >= c.ends(e.at) or c.released or not c.unfinished):
                self.cycles[commit_id] = replace(c, closed_at=e.offset)

    def apply(self, d: Directives, offset: int) -> None:
        for commit_id in d.released:
            if (c := self.cycles.get(commit_id)) is not None:
                self.cycles[commit_id] = replace(c, released=True)
        for attempt in d.voided:
            self.void(attempt)
        for raised in d.raised:
            self.raised.append(raised)
            self.raised_at.append(offset)
            self.failures = [f - raised.coverage for f in self.failures]
            self.evidence = [(c - raised.coverage, at) for c, at in self.evidence]
            self.evidence.append((raised.coverage, offset))
            self.unblock(raised.coverage)

    def void(self, attempt: UUID) -> None:
        for table, slices in self.accepted.items():
            for gone in [s for s in slices if s.report.attempt == attempt]:
                self.give_up(gone, table, "it was voided")

    def give_up(self, s: AcceptedSlice, table: str, reason: str) -> None:
        self.accepted[table].remove(s)
        for p, ranges in s.coverage.parts.items():
            self.taken[table][p] = self.taken[table][p] - ranges
        self.redundant.append(Redundant(slice=s, table=table, reason=reason))

    def unblock(self, coverage: Coverage) -> None:
        kept = [replace(b, coverage=b.coverage - coverage) for b in self.blocked]
        self.blocked = [b for b in kept if b.coverage]

    def state(self) -> LandingState:
        done = self.done()
        landed = _common([t.section.covered | t.others for t in self.ledgers.values()])
        return LandingState(
            ledgers=self.ledgers,
            cycles=self.cycles,
            accepted={t: tuple(s) for t, s in self.accepted.items()},
            redundant=tuple(self.redundant),
            blocked=tuple(self.blocked),
            raised=tuple(self.raised),
            recut=self.recut - done,
            failed=self.failures[0] - done,
            evidence=tuple(at for c, at in self.evidence if c - landed),
            announced=frozenset(self.announced),
            failing=tuple(self.failing.values()),
            quarantined=tuple(self.quarantined),
            quarantined_count=self.quarantined_count,
        )


def _common(coverages: Sequence[Coverage]) -> Coverage:
    """What all of them cover; nothing for none."""
    out = coverages[0] if coverages else Coverage()
    for other in coverages[1:]:
        out = out & other
    return out
