# SPDX-License-Identifier: Apache-2.0
"""Decide whether a cycle may plan a window now, and how large, so that writers do not bury the committer.

The first of :func:`refusals` decides and names what clears it; without one the window gets what is left of the
budgets. A refused cycle still opens, with an empty plan, and still commits: that drains the landing. While commits
fail the control topic therefore grows by little per cycle. A table that fails alone stops no other until its budget is
full. Admission depends on evidence in the log only (:mod:`~airflow_provider_lakecommit.core.planning.pressure`).

No state may hold itself: a full budget still admits ranges that pending slices wait for, and without pending slices one
slice is always admitted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.commands import CONNECT_ADOPT, MAINTAIN, RESUME, spoken
from airflow_provider_lakecommit.core.planning.pressure import Pressure
from airflow_provider_lakecommit.core.refusal import RefusalState

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


HANDED_BACK = f"which lands in its place until `{CONNECT_ADOPT}` takes it over"
"""End of the reason of a landing whose table was handed back to a connector."""


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
        pending = {table: getattr(of, kind) for table, of in p.pending.items()}
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
    slices = [budget.slices - h.slices for h in pending if budget.slices is not None]
    slices += [(budget.files - h.files) // p.slice_files for h in pending if budget.files is not None]
    records = [(budget.bytes - h.bytes) // p.record_bytes for h in pending if budget.bytes is not None]
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
        state=RefusalState.SPEC_CHANGE,
        reason=_short(reason),
        clears=f"a snapshot of {table}, by this run's commit",
    )


def _cycles(n: int) -> str:
    return "1 cycle" if n == 1 else f"{n} cycles in a row"


def _short(reason: str) -> str:
    return reason[:REASON_LENGTH]
