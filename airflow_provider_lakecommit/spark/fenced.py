# SPDX-License-Identifier: Apache-2.0
"""Send a slice's report while other attempts may run: a zombie of a retry, or a copy that Spark started.

Contract: :func:`send_report` returns when the control topic holds a report of the slice, from this attempt or another,
or when the cycle is over, so that no report is needed. A slice done in parts is reported when all parts are. A fenced
attempt reads the log; while the slice is unreported, it takes the transactional id back. So no attempt succeeds before
the slice is reported, whichever ends first; a second report only costs files, since the first one in the log is
accepted. Another attempt's failure does not stop an attempt that has done the slice; it stops one that failed too, if
both are about exactly the same ranges.

Failure story: an unreadable log is an error, and so is an id that is taken over again and again: the next attempt does
the slice. Unreadable records are skipped.
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

TAKEOVERS = 5
"""Retries with a recovered id: competing attempts do not wait either, so each round lets one through."""


def send_report(
    control: ControlTopic, job: WindowJob, work: Slice, attempt: UUID, send: Callable[[], object], *, done: bool = True
) -> SliceResult | None:
    """Send the report; return ``None`` if it is in the log, else what became of the slice without it.

    :param done: True if this attempt has done the slice
    :param send: sends the report in one transaction, reopening a lost id
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
                return None if any(r.attempt == attempt for r in reports) else _result_of(work, reports)
            if over:
                detail = f"its cycle is over, so no report is needed; {fenced}"
                return SliceResult(slice=str(work), status=SliceStatus.SUPERSEDED, detail=detail)
            if left == 0:
                raise
            left -= 1


def _result_of(work: Slice, reports: tuple[SliceReport, ...]) -> SliceResult:
    """Return the result of a slice by other attempts' reports."""
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
    """Return the reports of a slice in this cycle, and whether the cycle is over."""
    from airflow_provider_lakecommit.control import read_decided

    log = read_decided(control, job.control_partition, job.read_from)
    entries = read_entries(log.records, job.plan.landing, job.plan.lane)
    reports = [e.report for e in entries if isinstance(e, SliceReported) and e.commit_id == job.commit_id]
    cycle = fold(entries, (), job.landing.window.completion_timeout).cycles.get(job.commit_id)
    # A cycle that the log no longer holds has no waiting run.
    return _of(work, reports, attempt, done=done), cycle is None or cycle.over


def _of(work: Slice, reports: Sequence[SliceReport], attempt: UUID, *, done: bool) -> tuple[SliceReport, ...]:
    """Return the reports that together cover a slice, by this or other attempts; empty if a part is unreported."""
    if own := next((r for r in reports if r.attempt == attempt), None):
        return (own,)
    # A whole report is redundant if others have done parts.
    parts = tuple(r for r in reports if _is_done(r) or r.slice_id != work.slice_id)
    some = tuple(r for r in parts if r.coverage.overlaps(work.coverage))
    left = work.coverage - Coverage.union(r.coverage for r in some)
    if not left and any(map(_is_done, some)):
        return some
    undone = tuple(r for r in reports if r.slice_id == work.slice_id and not (done or _is_done(r)))
    return undone[-1:]


def _is_done(report: SliceReport) -> bool:
    return report.failed is None and report.blocked is None
