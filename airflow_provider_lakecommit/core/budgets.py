# SPDX-License-Identifier: Apache-2.0
"""Budgets of rejected records, and of unpublished work.

The ratio is that of all records that a window's cycle has reported, so it does not depend on how the window was sliced.
The commit evaluates it (:func:`over_by_window`): if it is exceeded, the slices with most rejected records are left out
until the rest is within it. Left out are only slices that exceed the ratio themselves and are in no table. A writer
blocks a slice with more than ``max_records``, one that alone exceeds the ratio of its window, and one that exceeds its
own budget, which an operator has given it; the latter do not count for their window.

======================================  ============================================================================
the slice's cycle                       its window is evaluated
======================================  ============================================================================
has all of its reports                  now, and ranges that are left out are blocked
is under way                            when it has all of its reports; until then, what is left out waits
is over, with slices missing            with the window that reads the rest, which then is that of the current commit
======================================  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from airflow_provider_lakecommit.core.identity import slice_id
from airflow_provider_lakecommit.core.log import Entry, SliceReported
from airflow_provider_lakecommit.core.model import Budget, Plan, SliceReport, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import AcceptedSlice, CycleState, LandingState
from airflow_provider_lakecommit.exceptions import SpecError

LEAST_ALL = 5
"""Records of a window that are too many if all are rejected, though they are no sample of the ratio."""
WARNED_RATIO = 0.01
"""The share of rejected records from which a warning reports it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingBudget:
    """Limits of open and unpublished work per table; ``None`` is no limit. ``bytes`` are those of source records."""

    open_cycles: int | None = None
    slices: int | None = None
    files: int | None = None
    bytes: int | None = None


def over_budget(rejected: int, records: int, budget: Budget) -> str | None:
    """Return why ``rejected`` of ``records`` exceeds the budget, or ``None``."""
    if rejected > budget.max_records:
        return f"{rejected} rejected records of {records} are over dead_letters.max_records={budget.max_records}"
    if over_ratio(rejected, records, budget.max_ratio):
        return f"{rejected} rejected records of {records} are over dead_letters.max_ratio={budget.max_ratio:g}"
    return None


def over_ratio(rejected: int, records: int, max_ratio: float) -> bool:
    """Return True if too large a share is rejected.

    ==========================  =========================================
    ratio                       too many rejected records
    ==========================  =========================================
    0                           any
    up to 1                     ``1 / max_ratio`` and more, which is the smallest sample, and more than the ratio
    below 1                     all records, if there are :data:`LEAST_ALL`
    ==========================  =========================================
    """
    enough = rejected * max_ratio >= (max_ratio > 0) or LEAST_ALL <= rejected >= records
    return enough and rejected > max_ratio * records


def parse_budget(text: str) -> tuple[int, float]:
    """Parse ``500:0.2``, dead letters and their ratio; the ratio is 1 by default.

    :raises SpecError: *text* has another form
    """
    records, _, ratio = text.strip().partition(":")
    with suppress(ValueError):
        most = int(records), float(ratio or 1)
        if most[0] >= 0 and 0 <= most[1] <= 1:
            return most
    raise SpecError("LC1301", f"{text!r} is not N or N:RATIO, as in 500 or 500:0.2")


class Over(NamedTuple):
    """Slices of one window to leave out, its reports, and whether these are all."""

    slices: Sequence[AcceptedSlice]
    of_window: Sequence[SliceReport]
    decided: bool


def done_reports(landing_state: LandingState, entries: Iterable[Entry], commit_id: UUID) -> tuple[SliceReport, ...]:
    """Return one report per done slice of a cycle, without those that were taken back."""
    reports = [e.report for e in entries if isinstance(e, SliceReported) and e.commit_id == commit_id]
    cycle = landing_state.cycles.get(commit_id)
    no_more = {*(cycle.redundant if cycle else ()), *(r.voids for r in reports)}
    done = (r for r in reports if r.blocked is None and r.failed is None and r.attempt not in no_more)
    return tuple({r.slice_id: r for r in done}.values())


def over_by_window(
    landing_state: LandingState,
    entries: Sequence[Entry],
    budget: Budget,
    own: UUID,
    now: datetime,
    replaceable: Callable[[AcceptedSlice], bool] = lambda _: True,
) -> list[Over]:
    """Return what to leave out of each window that has too many rejected records.

    :param budget: the landing's own
    :param own: the cycle of the current commit
    :param replaceable: whether the source still has a slice: another one is not left out, as its block would lose it
    """
    pending = {a.report.attempt: a for some in landing_state.accepted.values() for a in some}
    landed = [t.all_covered for t in landing_state.ledgers.values()]
    cycles = landing_state.cycles
    found: list[Over] = []

    def read_on(cycle: CycleState) -> bool:
        return _finished(cycle) or not landing_state.lacking(cycle.unfinished)

    ids = {a.commit_id for a in pending.values()}
    heads = {c: c if c in cycles and (_finished(cycles[c]) or cycles[c].live(now)) else own for c in ids}
    for head in dict.fromkeys(heads[a.commit_id] for a in pending.values() if _counts(a.report.spans)[0]):
        parts = [a for a in pending.values() if heads[a.commit_id] == head]
        reports = {r.attempt: r for r in (*done_reports(landing_state, entries, head), *(a.report for a in parts))}
        of = [cycles[c] for c in {head, *(a.commit_id for a in parts)} if c in cycles]
        alone = Coverage.union(s.coverage for c in of for s in c.plan.slices if s.budget not in (None, budget))
        counted = [r for r in reports.values() if not alone.overlaps(r.coverage)]
        free = {a.report.attempt for a in parts if not any(map(a.coverage.overlaps, landed))}
        if left_out(counted, free, budget.max_ratio):
            free = {attempt for attempt in free if replaceable(pending[attempt])}
        if out := left_out(counted, free, budget.max_ratio):
            decided = (head not in cycles or _finished(cycles[head])) and all(map(read_on, of))
            found.append(Over([pending[r.attempt] for r in out], counted, decided))
    return found


def left_out(reports: Sequence[SliceReport], free: set[UUID], max_ratio: float) -> tuple[SliceReport, ...]:
    """Return the reports of a window to leave out, so that the rest is within the ratio.

    :param free: the attempts that may be left out
    """
    counted = sorted(((*_counts(r.spans), r) for r in reports), key=lambda c: c[0], reverse=True)
    rejected, records = _counts(s for r in reports for s in r.spans)
    out: list[SliceReport] = []
    for bad, of, report in counted:
        if not over_ratio(rejected, records, max_ratio):
            break
        if report.attempt in free and bad > max_ratio * of:
            out.append(report)
            rejected, records = rejected - bad, records - of
    return tuple(out)


def blocking(
    over: Over, one: AcceptedSlice, plan: Plan, max_ratio: float, new_id: Callable[[], UUID]
) -> Iterator[SliceReport]:
    """Yield the reports that take a slice back, and block each of its ranges with too many rejected records.

    :param plan: of the slice's cycle
    """
    report = one.report
    tables = next(s.tables for s in plan.slices if not report.coverage - s.coverage)
    rejected, records = _counts(s for r in over.of_window for s in r.spans)
    most, rejects = max(report.rejects.values(), default=0), _counts(report.spans)[0]
    cause = f"{report.reject_reason} ({most} of {rejects} rejected records)"
    for span in report.spans:
        bad, of = _counts([span])
        if bad > max_ratio * of:
            yield replace(
                report,
                slice_id=slice_id(report.window_id, (span.span,), tables),
                attempt=new_id(),
                spans=(span,),
                tables=(),
                bytes=0,
                ignored_fields={},
                cost=None,
                unknown_at={},
                planned_slice=None,
                blocked=(
                    f"{cause}: slice {span.span}: {rejected} rejected records of {records} in its window are over "
                    f"dead_letters.max_ratio={max_ratio:g}, {bad} of {of} in this slice"
                ),
                voids=report.attempt,
            )


def _finished(cycle: CycleState) -> bool:
    """Return True if a cycle has all of its reports."""
    return bool(cycle.ended_early) or not cycle.unfinished


def _counts(spans: Iterable[SpanReport]) -> tuple[int, int]:
    """Return the number of rejected and of all records."""
    counts = [s.counts for s in spans]
    return sum(c.rejected for c in counts), sum(c.records for c in counts)
