# SPDX-License-Identifier: Apache-2.0
"""Decide whether a cycle may plan a window now, and how large, so that writers do not bury the committer.

:func:`pressure_of` measures how far commits are behind, by evidence in the log only. Failures are counted per table,
since the last COMMIT_COMPLETE. *Pending* in a table are reported but unpublished slices with files for it, and those of
open windows, estimated by earlier reports.

The first of :func:`refusals` decides and names what clears it; without one the window gets what is left of the
budgets. A refused cycle still opens, with an empty plan, and still commits: that drains the landing. While commits
fail the control topic therefore grows by little per cycle. A table that fails alone stops no other until its budget is
full.

No state may hold itself: a full budget still admits ranges that pending slices wait for, and without pending slices one
slice is always admitted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from uuid import UUID

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.commands import CONNECT_ADOPT, MAINTAIN, RESUME, spoken
from airflow_provider_lakecommit.core.debt import TableDebt
from airflow_provider_lakecommit.core.log import CommitFailed
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Missing
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.core.state import LandingState

UNKNOWN_RECORD_BYTES = 1024
"""Assumed size until records have landed."""
REASON_LENGTH = 500
"""Characters kept of an error message, so that a refused cycle stays small on the control topic."""
BUT_HOLES = frozenset(
    {
        RefusalState.PENDING_SLICES,
        RefusalState.PENDING_FILES,
        RefusalState.PENDING_BYTES,
        RefusalState.DEBT,
        RefusalState.SLOWING,
    }
)
"""States in which ranges that pending slices wait for are planned all the same."""
HANDED_BACK = f"which lands in its place until `{CONNECT_ADOPT}` takes it over"
"""End of the reason of a landing whose table was handed back to a connector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """All that admission depends on.

    :param failed: per table, the last cycles in a row whose commits failed for it
    :param open_cycles: windows that are, or may be, worked on
    :param deadline: when the first of their claims ends
    :param pending: unpublished slices, files and bytes per table; those of unreported slices are estimates
    :param slice_files: files per slice and table, by earlier reports
    :param record_bytes: bytes of a source record, by earlier landings
    :param holes: unread offsets that pending slices wait for
    :param windows_failed: failed cycles that had a window
    :param since_window: cycles opened since the newest with a window
    :param debts: how much each table needs compaction
    """

    failed: Mapping[str, tuple[CommitFailed, ...]]
    open_cycles: int = 0
    deadline: datetime | None = None
    pending: Mapping[str, Counter[str]] = field(default_factory=dict)
    slice_files: int = 1
    record_bytes: int = UNKNOWN_RECORD_BYTES
    holes: int = 0
    windows_failed: int = 0
    since_window: int = 0
    debts: Mapping[str, TableDebt] = field(default_factory=dict)

    @property
    def failures(self) -> int:
        """Return the failed cycles in a row of the table with fewest."""
        return min((len(row) for row in self.failed.values()), default=0)

    @property
    def last_reason(self) -> str:
        return next((row[-1].reason for row in self.failed.values() if row), "")


def pressure_of(
    landing_state: LandingState,
    now: datetime,
    *,
    released: Collection[UUID] = (),
    record_bytes: int = 0,
    holes: int = 0,
    debts: Mapping[str, TableDebt] = MappingProxyType({}),
) -> Pressure:
    """Return the pressure of a state.

    :param released: cycles whose claims are about to end
    :param record_bytes: size of landed records; 0 if unknown
    """
    live = [c for c in landing_state.cycles.values() if c.live(now) and c.cycle.commit_id not in released]
    at_work = [(c, slices) for c in live if (slices := c.unfinished)]
    slice_files, known = _slice_files(landing_state), record_bytes or UNKNOWN_RECORD_BYTES
    pending = {}
    for table in landing_state.ledgers:
        staged = [a for a in landing_state.accepted[table] if a.file_count(table)]
        coming = [s for _, slices in at_work for s in slices if table in s.tables]
        pending[table] = Counter(
            slices=len(staged) + len(coming),
            files=sum(a.file_count(table) for a in staged) + slice_files * len(coming),
            bytes=sum(a.report.bytes for a in staged) + known * sum(len(s) for s in coming),
        )
    failed = {table: landing_state.failed_in_a_row(table) for table in landing_state.ledgers}
    opened = sorted(landing_state.cycles.values(), key=lambda c: c.offset)
    windows = {c.cycle.commit_id: n for n, c in enumerate(opened) if c.plan.slices}
    return Pressure(
        failed=failed,
        open_cycles=len(at_work),
        deadline=min((c.ends(now) for c, _ in at_work), default=None),
        pending=pending,
        slice_files=slice_files,
        record_bytes=known,
        holes=holes,
        windows_failed=sum(f.commit_id in windows for f in min(failed.values(), key=len, default=())),
        debts=debts,
        since_window=len(opened) - 1 - max(windows.values(), default=-1),
    )


def _slice_files(landing_state: LandingState) -> int:
    """Return the files per slice, of the table with most."""
    reports = {a.report.attempt: a.report for some in landing_state.accepted.values() for a in some}
    reports.update({a.report.attempt: a.report for a, _ in landing_state.redundant})
    files: dict[str, list[int]] = {}
    for report in reports.values():
        for t in report.tables:
            files.setdefault(t.table, []).append(t.files)
    return max(1, *(math.ceil(sum(n) / len(n)) for n in files.values())) if files else 1


def only_holes(missing: Missing, landing_state: LandingState) -> Missing:
    """Return the missing ranges that pending slices of the same tables wait for."""
    reach: dict[str, dict[SourcePartition, int]] = {}
    for table in landing_state.ledgers:
        ends = reach.setdefault(table, {})
        for a in landing_state.accepted[table]:
            for p, r in a.coverage.items() if a.file_count(table) else ():
                ends[p] = max(ends.get(p, 0), r.end)
    ranges = {}
    for tables, coverage in missing.ranges.items():
        below = Coverage.of((p, OffsetRange(0, end)) for t in tables for p, end in reach.get(t, {}).items())
        if found := coverage & below:
            ranges[tables] = found
    return replace(missing, ranges=ranges)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """A landing's terms of admission.

    :param stalled_cycles: failed cycles in a row, for all tables, after which no window is planned
    :param slow_down: plan smaller and rarer windows before that
    :param suspended: who paused the landing, and why; else empty
    :param logged: tables whose failures the reader of the plan already knows
    """

    budget: PendingBudget = field(default_factory=PendingBudget)
    stalled_cycles: int = 3
    slow_down: bool = False
    suspended: str = ""
    logged: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Admit:
    """Plan a window of at most so many slices and records, if limited.

    :param share: of the missing records, the part that the window may take
    :param holes_only: only what pending slices wait for
    """

    slices: int | None = None
    records: int | None = None
    share: float = 1.0
    holes_only: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Plan nothing. ``clears`` is the event that ends ``state``."""

    state: RefusalState
    reason: str
    clears: str

    def __str__(self) -> str:
        return f"{self.state}: {self.reason}; cleared by {self.clears}"


def resumed_by(suspended: str) -> str:
    """Return what resumes a landing that was suspended for this reason."""
    if suspended.endswith(HANDED_BACK):
        return f"`{CONNECT_ADOPT}`, or LandingOperationOperator(operation={spoken(CONNECT_ADOPT)!r})"
    return f"`{RESUME}`, or PauseLandingOperator(action={spoken(RESUME)!r})"


def refusals(p: Pressure, t: Terms) -> Iterator[Refuse]:
    """Yield what speaks against a window, the most important reason first."""
    if t.suspended:
        reason, clears = f"by {t.suspended}", resumed_by(t.suspended)
        yield Refuse(state=RefusalState.SUSPENDED, reason=reason, clears=clears)
    if p.failures >= t.stalled_cycles:
        reason = (
            f"commits failed in {_cycles(p.failures)} for {', '.join(sorted(p.failed))}; "
            f"the last one: {_short(p.last_reason)}"
        )
        clears = "one COMMIT_COMPLETE, which the commit task of this run attempts"
        yield Refuse(state=RefusalState.STALLED, reason=reason, clears=clears)
    if t.budget.open_cycles is not None and p.open_cycles >= t.budget.open_cycles:
        reason = f"{p.open_cycles} windows are under way, backpressure.max_open_cycles is {t.budget.open_cycles}"
        at = "" if p.deadline is None else f" at {p.deadline.isoformat(timespec='seconds')}"
        clears = f"the end of one of them, at the latest when its claim expires{at}"
        yield Refuse(state=RefusalState.OPEN_CYCLES, reason=reason, clears=clears)
    yield from _full_budgets(p, t)
    if indebted := {table: debt for table, debt in p.debts.items() if debt.defers}:
        reason = "; ".join(f"{table} has {debt}" for table, debt in indebted.items())
        clears = (
            f"compaction of {', '.join(indebted)}, which each run does after its commit, and "
            f"`{MAINTAIN} SPEC --only compact --yes`"
        )
        yield Refuse(state=RefusalState.DEBT, reason=reason, clears=clears)
    if t.slow_down and p.failures and p.since_window < p.windows_failed:
        reason = (
            f"commits failed in {_cycles(p.failures)}, the next window waits for {p.windows_failed - p.since_window} "
            f"more; the last one: {_short(p.last_reason)}"
        )
        yield Refuse(state=RefusalState.SLOWING, reason=reason, clears="one COMMIT_COMPLETE, or that many cycles")


def _full_budgets(p: Pressure, t: Terms) -> Iterator[Refuse]:
    """Yield the budgets of pending work in which no further slice fits, of some table."""
    for state, kind, per_slice in (
        (RefusalState.PENDING_SLICES, "slices", 1),
        (RefusalState.PENDING_FILES, "files", p.slice_files),
        (RefusalState.PENDING_BYTES, "bytes", p.record_bytes),
    ):
        most = getattr(t.budget, kind)
        pending = {table: of[kind] for table, of in p.pending.items()}
        full = (table for table, n in pending.items() if most is not None and n and n + per_slice > most)
        if (table := next(full, None)) is not None:
            row = p.failed.get(table, ())
            reason = f"{pending[table]} {kind} are pending in {table}, backpressure.max_pending_{kind} is {most}"
            reason += f"; its commits failed in {_cycles(len(row))}: {_short(row[-1].reason)}" if row else ""
            clears = "a snapshot that publishes them: the commit of every run publishes what it can"
            yield Refuse(state=state, reason=reason, clears=clears)


def admit(pressure: Pressure, terms: Terms) -> Admit | Refuse:
    refused = next(refusals(pressure, terms), None)
    if refused is None:
        return _admitted(pressure, terms)
    if refused.state in BUT_HOLES and pressure.holes:
        return Admit(holes_only=True, notes=(f"Planned only what pending slices wait for. {refused}",))
    return refused


def _admitted(p: Pressure, t: Terms) -> Admit:
    """Admit what is left of each budget, in the table that has least."""
    pending, budget = p.pending.values(), t.budget
    slices = [budget.slices - h["slices"] for h in pending if budget.slices is not None]
    slices += [(budget.files - h["files"]) // p.slice_files for h in pending if budget.files is not None]
    records = [(budget.bytes - h["bytes"]) // p.record_bytes for h in pending if budget.bytes is not None]
    most = Admit(
        slices=max(1, min(slices)) if slices else None,
        records=max(1, min(records)) if records else None,
        notes=tuple(
            f"{table}: commits failed in {_cycles(len(row))}, other tables go on"
            + ("" if table in t.logged else f"; the last one: {_short(row[-1].reason)}")
            for table, row in p.failed.items()
            if row and not p.failures
        )
        + tuple(f"WARNING: {table} has {debt}; {debt.remedy}" for table, debt in p.debts.items() if debt.share >= 1),
    )
    return _slower(most, p) if t.slow_down and p.failures else most


def _slower(most: Admit, p: Pressure) -> Admit:
    """Halve the next window once per failed window."""
    share = 0.5**p.windows_failed
    note = f"commits failed in {_cycles(p.failures)}: the window takes {share:.3g} of the backlog"
    return replace(
        most,
        slices=None if most.slices is None else math.ceil(most.slices / 2),
        records=None if most.records is None else math.ceil(most.records / 2),
        share=share,
        notes=(*most.notes, note) if share < 1 else most.notes,
    )


def catalog_away(error: Exception) -> Refuse:
    """Refuse, because without ledgers nothing can be planned."""
    return Refuse(
        state=RefusalState.CATALOG_AWAY,
        reason=_short(str(error)),
        clears="a catalog that answers: the next cycle plans again",
    )


def spec_waits(table: str, reason: str) -> Refuse:
    """Refuse until landed slices are published: another spec must not judge them."""
    return Refuse(
        state=RefusalState.SPEC_CHANGE, reason=_short(reason), clears=f"a snapshot of {table}, by this run's commit"
    )


def _cycles(n: int) -> str:
    return "1 cycle" if n == 1 else f"{n} cycles in a row"


def _short(reason: str) -> str:
    return reason[:REASON_LENGTH]
