# SPDX-License-Identifier: Apache-2.0
"""The folded state of a landing's log and ledgers, which all decisions read.

Readers of the same entries and ledgers get equal values. What follows from them (claims, coverage, the smallest log
offset still needed) is derived here only.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.log import CommitFailed, Raised, Unreadable
from airflow_provider_lakecommit.core.model import Cycle, LedgerSection, Plan, ReadPosition, Slice, SliceReport, Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.rules import UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLedger:
    """One table: our section, and what other landings and lanes have in it.

    ``evaluated`` are the known rules of all of that. ``elsewhere`` is how far the landing's other lanes read this
    cluster.
    """

    table: str
    uuid: UUID
    section: LedgerSection
    others: Coverage = field(default_factory=Coverage)
    evaluated: Mapping[str, Coverage] = field(default_factory=dict)
    elsewhere: tuple[tuple[SourcePartition, ReadPosition], ...] = ()

    @property
    def all_covered(self) -> Coverage:
        """Return what the table has, from all lanes."""
        return self.section.covered | self.others

    @property
    def as_needed(self) -> TableLedger:
        """Return the ledger of a lane that replaces as if the table had nothing of the lane's range."""
        s = self.section
        return replace(self, others=self.others - s.bounds, evaluated=s.evaluated) if s.replaces else self

    def has(self, p: SourcePartition) -> RangeSet:
        return self.section.covered[p] | self.others[p]

    def end(self, p: SourcePartition) -> int:
        """Return the next offset that the section needs: the end of the interval at its start, over all lanes."""
        reached = self.has(p).reach(self.section.starts.get(p, 0))
        return min(reached, self.section.ends.get(p, reached))


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleState:
    """One cycle in the log.

    ``claim`` is what its plan got after earlier live claims, and ``since`` the smallest log offset that decides it.
    ``closed_at`` is a log offset. ``in_parts`` is reported of slices that were not done as planned; ``redundant``
    attempts repeated a report. ``at`` is its sender's time of the START, ``observed`` the earliest time of a later
    record: by then the START existed. ``ended_early`` is why no attempt continues it though it is open.
    """

    offset: int
    since: int
    at: datetime
    cycle: Cycle
    plan: Plan
    claim: Coverage
    timeout: timedelta
    observed: datetime | None = field(default=None, compare=False)
    failed: Mapping[str, str] = field(default_factory=dict)
    finished: frozenset[UUID] = frozenset()
    in_parts: Coverage = field(default_factory=Coverage)
    redundant: frozenset[UUID] = frozenset()
    closed_at: int | None = None
    complete: bool = False
    released: bool = False
    ended_early: str = ""

    def ends(self, now: datetime) -> datetime:
        """Return when the claim ends at the latest.

        For a START from the future its first sight counts, so that a wrong clock holds no claim longer.
        """
        began = self.at if self.at <= now else min(now, self.observed or now)
        return began + self.timeout

    def live(self, now: datetime) -> bool:
        """Return True if the claim still excludes others."""
        return self.closed_at is None and not self.released and now < self.ends(now)

    def left_of(self, s: Slice) -> Slice | None:
        """Return the unreported part of a slice, under an id of its own; ``None`` if nothing is left."""
        if s.slice_id in self.finished:
            return None
        left = s.coverage - self.in_parts if self.in_parts else s.coverage
        if left == s.coverage:
            return s
        spans = tuple(Span(p, r) for p, r in left.items())
        return replace(s, spans=spans, slice_id=slice_id(self.plan.window_id, spans, s.tables)) if spans else None

    @property
    def over(self) -> bool:
        """Return True if no more work is done for it: later cycles plan what it lacks."""
        return self.closed_at is not None or self.released

    @property
    def unfinished(self) -> tuple[Slice, ...]:
        """Return granted slices without an accepted report."""
        return tuple(s for s in granted(self.plan, self.claim) if self.left_of(s) is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedSlice:
    """A complete report with the bytes of its files per table.

    ``offset`` is the smallest log offset that it needs, ``observed`` the earliest time of a later record.
    ``requested_at`` is when its plan read the source: the slice is no younger.
    """

    report: SliceReport
    commit_id: UUID
    offset: int
    at: datetime
    files: Mapping[str, tuple[bytes, ...]]
    observed: datetime | None = field(default=None, compare=False)
    requested_at: datetime | None = None

    def age(self, now: datetime) -> timedelta:
        """Return the time since it was planned or reported; by its first sight if its own time is in the future."""
        reported = self.at if self.at <= now else min(now, self.observed or now)
        return now - min(reported, self.requested_at or reported)

    def young(self, now: datetime, age: timedelta) -> bool:
        """Return True if it was planned and reported within this time. One from the future proves nothing."""
        reported = min(self.at, self.observed or self.at)
        return reported <= now and now - min(reported, self.requested_at or reported) <= age

    @property
    def coverage(self) -> Coverage:
        return self.report.coverage

    def file_count(self, table: str) -> int:
        of = self.report.table(table)
        return of.files if of else 0

    def changes(self, table: str) -> int:
        """Return how many rows and deletes it has for a table."""
        of = self.report.table(table)
        return of.rows + sum(r.counts.deleted for r in self.report.spans) if of else 0

    def matters(self, table: str) -> bool:
        """Return True if it needs a snapshot: for files, or because an operator skipped records."""
        return self.file_count(table) > 0 or any(r.counts.skipped for r in self.report.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """Ranges that are not planned until a user decides, or the spec or known rules that judged them change."""

    coverage: Coverage
    reason: str
    offset: int
    at: datetime
    spec_version: str = ""
    rules: str = UNKNOWN

    def __str__(self) -> str:
        return f"{self.coverage}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandingState:
    """The state of a landing: the ledgers and the log, folded.

    ``recut`` ranges were over budget together, ``failed`` ones failed: each is tried alone. ``evidence`` are the log
    offsets of failures, recuts and raised budgets of ranges that some ledger lacks. ``failing`` has, of each cycle
    whose commits failed since the last COMMIT_COMPLETE, the newest failure, by first failure. ``quarantined`` are the
    newest ignored records of ``quarantined_count``. ``redundant`` are reports that were not accepted for a table, with
    the reasons.
    """

    ledgers: Mapping[str, TableLedger]
    cycles: Mapping[UUID, CycleState]
    accepted: Mapping[str, tuple[AcceptedSlice, ...]]
    redundant: tuple[tuple[AcceptedSlice, str], ...]
    blocked: tuple[Blocked, ...]
    raised: tuple[Raised, ...]
    recut: Coverage
    evidence: tuple[int, ...]
    announced: frozenset[UUID]
    failing: tuple[CommitFailed, ...] = ()
    quarantined: tuple[Unreadable, ...] = ()
    quarantined_count: int = 0
    failed: Coverage = field(default_factory=Coverage)

    @property
    def suspects(self) -> Coverage:
        """Return what is to be tried alone."""
        return self.recut | self.failed

    def failed_in_a_row(self, table: str) -> tuple[CommitFailed, ...]:
        """Return the newest cycles in a row whose commits failed for this table."""
        row: list[CommitFailed] = []
        for failed in reversed(self.failing):
            if not failed.concerns(table):
                break
            row.append(failed)
        return tuple(reversed(row))

    def claims(self, now: datetime, released: Collection[UUID] = ()) -> Coverage:
        """Return ranges that open cycles hold, except ``released`` ones."""
        live = (c for c in self.cycles.values() if c.live(now) and c.cycle.commit_id not in released)
        return Coverage.union(c.claim for c in live)

    def accepted_coverage(self, table: str) -> Coverage:
        return Coverage.union(a.coverage for a in self.accepted.get(table, ()))

    def lacking(self, slices: Iterable[Slice], voided: Collection[UUID] = ()) -> tuple[Slice, ...]:
        """Return what of these slices some table has neither landed nor accepted, ignoring ``voided`` attempts.

        Ranges that a user blocked or gave up are not returned.
        """
        given_up = self.blocked_coverage
        has = {
            t: Coverage.of(
                [
                    *(item for c in (given_up, ledger.all_covered) for item in c.items()),
                    *((p, OffsetRange(0, start)) for p, start in ledger.section.starts.items()),
                    *(i for a in self.accepted[t] if a.report.attempt not in voided for i in a.coverage.items()),
                ]
            )
            for t, ledger in self.ledgers.items()
        }
        left = ((s, Coverage.union(s.coverage - has.get(t, given_up) for t in _known(s.tables, has))) for s in slices)
        return tuple(replace(s, spans=tuple(Span(p, r) for p, r in lack.items())) for s, lack in left if lack)

    @property
    def blocked_coverage(self) -> Coverage:
        return Coverage.union(b.coverage for b in self.blocked)

    def open_cycles(self) -> list[CycleState]:
        return sorted((c for c in self.cycles.values() if c.closed_at is None), key=lambda c: c.offset)

    def low(self, without: UUID | None = None, landed: Collection[tuple[str, UUID]] = ()) -> int | None:
        """Return the smallest log offset that an accepted slice, open cycle, block or evidence needs.

        Ignored are the cycle ``without`` and attempts that are about to be ``landed``, each in a table.
        """
        needed = [a.offset for t, some in self.accepted.items() for a in some if (t, a.report.attempt) not in landed]
        needed += [c.since for c in self.open_cycles() if c.cycle.commit_id != without]
        needed += [b.offset for b in self.blocked]
        needed += self.evidence
        return min(needed, default=None)


def granted(plan: Plan, claim: Coverage) -> tuple[Slice, ...]:
    """Return the slices of a plan that its claim allows; a reduced one gets another id."""
    out: list[Slice] = []
    for s in plan.slices:
        kept = tuple(
            replace(span, range=r) for span in s.spans for r in (claim[span.partition] & RangeSet.of(span.range))
        )
        if kept == s.spans:
            out.append(s)
        elif kept:
            out.append(replace(s, spans=kept, slice_id=slice_id(plan.window_id, kept, s.tables)))
    return tuple(out)


def _known(tables: tuple[str, ...], has: Collection[str]) -> tuple[str, ...]:
    """Ignore tables that the landing no longer has, unless there are no others."""
    return tuple(t for t in tables if t in has) or tables
