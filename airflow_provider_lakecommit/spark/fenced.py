# SPDX-License-Identifier: Apache-2.0
"""Sending a slice's report where several attempts at the slice may run at once: a retry and its zombie, a task and the
copy that Spark started beside it.

Contract: :func:`send_report` returns when the control log holds a report of the slice, this attempt's or another one's,
or when the cycle is over, so that none is wanted. A slice that was done in parts is reported when all of it is. Who was
fenced asks the log; as long as that does not tell of the slice it takes the transactional id back. So none of them ends
in success before the slice is reported, whichever is ended first; more than one report costs files only (the first in
the log is accepted). That another attempt, perhaps one of an hour ago, could not do the slice tells nothing to one that
has done it; to one that could not either it tells all, if it is about the very same ranges.

Failure story: a log that cannot be read is an error, as is an id that is taken over again and again: the slice is for
the next attempt then. A record that cannot be read is of no concern here: it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Coverage, Slice, SliceReport, SliceReported
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.exceptions import FencedError
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import ControlTopic

__all__ = ["TAKEOVERS", "send_report"]

TAKEOVERS = 5
"""How often an attempt takes the id back: the others do not wait for anything either, so each time one gets through."""


def send_report(
    control: ControlTopic, job: WindowJob, work: Slice, attempt: UUID, send: Callable[[], object], *, done: bool = True
) -> SliceResult | None:
    """Send; ``None`` if this attempt's report is in the log, else what became of the slice without it.

    :param done: has this attempt done the slice?
    :param send: sends the report in one transaction, each time under an id that was opened anew if it was lost
    :raises FencedError: it was taken over every time
    :raises ControlTopicError: it cannot be sent, or the log cannot be read
    """
    left = TAKEOVERS
    while True:
        try:
            send()
            return None
        except FencedError as fenced:
            reports, over = _standing(control, job, work, attempt, done=done)
            if reports:
                return None if any(r.attempt == attempt for r in reports) else _told(work, reports)
            if over:
                detail = f"its cycle is over, so nothing of it is wanted any more; {fenced}"
                return SliceResult(slice=str(work), status=SliceStatus.SUPERSEDED, detail=detail)
            if left == 0:
                raise
            left -= 1


def _told(work: Slice, reports: tuple[SliceReport, ...]) -> SliceResult:
    """What other attempts said of the slice."""
    failed = "; ".join(r.failed for r in reports if r.failed is not None)
    blocked = "; ".join(r.blocked for r in reports if r.blocked is not None)
    if failed:
        return SliceResult(slice=str(work), status=SliceStatus.FAILED, detail=failed)
    if blocked:
        return SliceResult(slice=str(work), status=SliceStatus.BLOCKED, detail=blocked)
    by = ", ".join(dict.fromkeys(str(r.attempt) for r in reports))
    return SliceResult(slice=str(work), status=SliceStatus.REPORTED, detail=f"by attempt {by}")


def _standing(
    control: ControlTopic, job: WindowJob, work: Slice, attempt: UUID, *, done: bool
) -> tuple[tuple[SliceReport, ...], bool]:
    """What the log says of a slice in this cycle, and whether the cycle is over."""
    from airflow_provider_lakecommit.control import read_decided

    log = read_decided(control, job.control_partition, job.read_from)
    entries = read_entries(log.records, job.plan.landing, job.plan.lane)
    reports = [e.report for e in entries if isinstance(e, SliceReported) and e.commit_id == job.commit_id]
    cycle = fold(entries, (), job.landing.window.completion_timeout).cycles.get(job.commit_id)
    # A cycle that the log does not hold any more is one that nobody waits for.
    return _of(work, reports, attempt, done=done), cycle is None or cycle.over


def _of(work: Slice, reports: Sequence[SliceReport], attempt: UUID, *, done: bool) -> tuple[SliceReport, ...]:
    """What tells of all of a slice, by this attempt or another one; nothing, where a part of it is not told of."""
    if own := next((r for r in reports if r.attempt == attempt), None):
        return (own,)
    # A report on all of a slice of which others have done parts would be redundant.
    parts = tuple(r for r in reports if _is_done(r) or r.slice_id != work.slice_id)
    some = tuple(r for r in parts if r.coverage.overlaps(work.coverage))
    left = work.coverage - Coverage.union(r.coverage for r in some)
    if not left and any(map(_is_done, some)):
        return some
    undone = tuple(r for r in reports if r.slice_id == work.slice_id and not (done or _is_done(r)))
    return undone[-1:]


def _is_done(report: SliceReport) -> bool:
    return report.failed is None and report.blocked is None
