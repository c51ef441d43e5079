# SPDX-License-Identifier: Apache-2.0
"""The task of one slice: read, decode, write and report it.

Failure story: a failing slice never fails the job; the other slices continue. Deterministic failures (corruption, an
exception in handling records, a wrong schema) are reported for the smallest range that reproduces them: the slice is
done in :mod:`~airflow_provider_lakecommit.spark.failures`, each with its own report. A slice that killed processes is
done in a separate process (:mod:`~airflow_provider_lakecommit.spark.slice_process`), whose death is a failure like any
other. An error that may pass (broker or storage unavailable;
:func:`~airflow_provider_lakecommit.spark.failures.passes`) is only returned to the driver. A task fenced by another
attempt of the same slice (a retry, a speculative copy) reads the log: if the slice or part is unreported and its cycle
open, it takes the id back and reports itself, so that no copy loses work, whichever Spark ends; it ends ``superseded``
only if its cycle is over. Files stay in place if the outcome of their report is unknown. Storage keys from a catalog
may expire while a job runs: slices not begun by then are skipped, those in progress may fail, and each reports so; the
next attempt does them with new keys.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from airflow_provider_lakecommit.core import Slice, Span, attempt_id, slice_id
from airflow_provider_lakecommit.exceptions import CatalogError, FencedError, LakecommitError, RecordsError
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.report import report_of, report_records, send_report
from airflow_provider_lakecommit.spark.watches import (
    EndWatch,
    ReplicaReported,
    ReplicaWatch,
    check_brokers,
    delete_files,
    note_given_up,
)

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import ControlTopic, ControlWriter, Outgoing
    from airflow_provider_lakecommit.spark.slices import SliceOutcome

FRESH_KEYS = (
    "the next attempt takes fresh ones. Extend the lifetime of the catalog's credentials, or make windows "
    "smaller (`window.max_records`, `window.max_bytes`)"
)
"""The remedy for keys that expire during a window."""


QUIET = "LAKECOMMIT_QUIET"
"""Environment variable of the tasks; if set, finished slices are not logged."""
_WORST_FIRST = (SliceStatus.FAILED, SliceStatus.BLOCKED, SliceStatus.AGAIN, SliceStatus.REPORTED, SliceStatus.DONE)
DEATHS_TO_REPORT = 2
"""Processes that died at a slice in one cycle before that counts as its failure: by then one died in spite of the
separate process, possibly with everything around it.
"""
BY_ANOTHER = "by another replica"


class _Expired(CatalogError):
    """A slice was not begun, because its tables' keys have expired."""


def run_task(job: WindowJob, secrets: Secrets, index: int, *, deaths: int = 0) -> SliceResult:
    """Read, decode, write and report one slice; never raises for a failure of that slice.

    :param deaths: processes that died at it in this cycle
    """
    if job.proof:
        from airflow_provider_lakecommit.spark.proof import run_proof

        return run_proof(job, secrets, index)
    work, began = job.plan.slices[index], time.monotonic()
    try:
        result = _run(job, secrets, index, work, deaths)
    except FencedError as e:
        result = SliceResult(slice=str(work), status=SliceStatus.SUPERSEDED, detail=secrets.without(str(e)))
    except Exception as e:
        note_given_up(job, e)
        detail = secrets.without(f"{type(e).__name__}: {e}")
        if not isinstance(e, LakecommitError):
            _log(secrets.without(traceback.format_exc()))
        if not isinstance(e, _Expired) and (expired := secrets.expired(work.tables, time.time())):
            detail = f"{detail}; {expired}: {FRESH_KEYS}"
        result = SliceResult(slice=str(work), status=SliceStatus.AGAIN, detail=detail)
    if not (result.status.is_reported and os.environ.get(QUIET)):
        _log(f"{result} in {time.monotonic() - began:.1f} s")
    return result


def _run(job: WindowJob, secrets: Secrets, index: int, work: Slice, deaths: int) -> SliceResult:
    from airflow_provider_lakecommit.control import ControlTopic
    from airflow_provider_lakecommit.spark.failures import in_parts, passes
    from airflow_provider_lakecommit.spark.slices import SliceStopped

    if expired := secrets.expired(work.tables, time.time()):
        raise _Expired("LC5061", f"{expired}, before this slice was begun: {FRESH_KEYS}")
    with (
        ControlTopic(job.control_topic, secrets.kafka, groups=[job.landing.group_id]) as control,
        control.writer(job.transactional_id(index), job.control_partition) as writer,
    ):
        check_brokers(job, control)
        if (watch := EndWatch(job, control))():
            raise SliceStopped("LC5040", f"slice {work} was not begun: {watch.reason}")
        if not (others := ReplicaWatch(job, control, work)).left_of(work.spans):
            return SliceResult(slice=str(work), status=SliceStatus.REPORTED, detail=BY_ANOTHER)
        writer.open()
        doing = _Doing(job, secrets, work, control, writer, watch, others, apart=deaths > 0)
        if deaths >= DEATHS_TO_REPORT:
            doing.note_deaths(deaths)
        try:
            doing.attempt(work.spans)
        except Exception as e:
            if passes(e):
                raise
            # With the origin of an unexpected error.
            why = str(e) if e.__cause__ is None else "".join(traceback.format_exception(e.__cause__))
            _log(secrets.without(f"slice {work} failed, retrying it in parts: {why}"))
            for spans, error in in_parts(work.spans, e, doing.attempt):
                doing.failed(spans, error)
        finally:
            watch.rest()
        return doing.result()


class _Doing:
    """One task's work on its slice: attempts at it or its parts, each reported once it has ended."""

    def __init__(
        self,
        job: WindowJob,
        secrets: Secrets,
        work: Slice,
        control: ControlTopic,
        writer: ControlWriter,
        watch: EndWatch,
        others: ReplicaWatch,
        *,
        apart: bool,
    ) -> None:
        self._apart = apart
        self._job, self._secrets, self._work = job, secrets, work
        self._control, self._writer = control, writer
        self._watch, self._others = watch, others
        self._began = time.monotonic()
        self._ended: list[str] = []
        self._outcomes: list[SliceOutcome] = []
        self._failures: list[str] = []
        self._results: list[SliceResult] = []

    def attempt(self, spans: tuple[Span, ...]) -> None:
        """Read, decode, write and report these ranges of the slice, unless another replica has reported them.

        :raises LakecommitError: nothing of them is reported
        """
        while left := self._others.left_of(spans):
            with suppress(ReplicaReported):
                return self._attempt(left)
        self._results.append(SliceResult(slice=str(self._work), status=SliceStatus.REPORTED, detail=BY_ANOTHER))
        return None

    def _attempt(self, spans: tuple[Span, ...]) -> None:
        from airflow_provider_lakecommit.spark.failures import passes
        from airflow_provider_lakecommit.spark.slice_process import run_apart
        from airflow_provider_lakecommit.spark.slices import run_slice

        part = self._part(spans)
        request = self._job, self._secrets, part, attempt_id(part.slice_id, uuid4())
        try:
            if self._apart:
                outcome = run_apart(*request)
            else:
                stop = partial(self._is_to_stop, spans)
                outcome = run_slice(*request, progress=self._log, should_stop=stop)
            self._check_not_superseded(spans, outcome)
            part, begun = self._part(tuple(s.span for s in outcome.report.spans)), part
            if part != begun:
                report = replace(outcome.report, slice_id=part.slice_id, planned_slice=begun.slice_id)
                outcome = replace(outcome, report=report)
            records = report_records(
                self._job, part, outcome.report, outcome.files, outcome.tombstones, at=datetime.now(UTC)
            )
        except Exception as e:
            if isinstance(e, LakecommitError) or passes(e):
                raise
            raise RecordsError("LC5041", f"{part}: {type(e).__name__}: {e}") from e
        if self._send(part, outcome.report.attempt, records, done=outcome.report.blocked is None):
            self._outcomes.append(outcome)
        if part != begun:
            self._ended.append(f"{self._watch.reason}: {len(part)} of {len(begun)} offsets are reported")

    def _is_to_stop(self, spans: tuple[Span, ...]) -> bool:
        """Return True if the requested end is after the current record.

        :raises ReplicaReported: nothing is kept, as another replica has reported these ranges
        :raises SliceStopped: nothing is kept, as the original keeps its work
        """
        from airflow_provider_lakecommit.spark.slices import SliceStopped

        self._others.check(spans)
        if (stop := self._watch()) and self._job.replica:
            raise SliceStopped(
                "LC5042", f"replica {self._job.replica} of slice {self._work} was stopped: {self._watch.reason}"
            )
        return stop

    def _check_not_superseded(self, spans: tuple[Span, ...], outcome: SliceOutcome) -> None:
        if self._job.replicas > 1:
            try:
                self._others.check(spans, at_once=True)
            except ReplicaReported:
                table = self._job.landing.table
                own = {table: [*outcome.files.get(table, ()), *outcome.tombstones]}
                delete_files(self._secrets, {**outcome.files, **own})
                raise

    def note_deaths(self, deaths: int) -> None:
        """Report to the control topic that the slice kills processes; a later success overrides it."""
        reason = (
            f"{deaths} processes died at it: killed, or out of memory. Give Spark's Python workers more "
            "memory, or make slices smaller (`window.slice_records`)"
        )
        job, work = self._job, self._work
        report = report_of(job, work, attempt_id(work.slice_id, uuid4()), failed=reason)
        records = report_records(job, work, report, {}, at=datetime.now(UTC))
        send_report(self._control, job, work, report.attempt, lambda: self._writer.send(records), done=False)

    def _log(self, text: str) -> None:
        _log(self._secrets.without(text))

    def failed(self, spans: tuple[Span, ...], error: Exception) -> None:
        """Report to the control topic that these ranges cannot be done."""
        part, reason = self._part(spans), self._secrets.without(f"{type(error).__name__}: {error}")
        report = report_of(self._job, part, attempt_id(part.slice_id, uuid4()), failed=reason)
        records = report_records(self._job, part, report, {}, at=datetime.now(UTC))
        if self._send(part, report.attempt, records, done=False):
            whole = spans == self._work.spans
            self._failures.append(self._secrets.without(str(error)) if whole else f"{part}: {reason}")

    def result(self) -> SliceResult:
        """Return how the slice ended, by its reports."""
        done = [o for o in self._outcomes if o.report.blocked is None]
        blocked = [o.report.blocked for o in self._outcomes if o.report.blocked is not None]
        ends = {
            *(r.status for r in self._results),
            *(SliceStatus.FAILED for _ in self._failures),
            *(SliceStatus.BLOCKED for _ in blocked),
            *(SliceStatus.AGAIN for _ in self._ended),
            *(SliceStatus.DONE for _ in done),
        }
        return SliceResult(
            slice=str(self._work),
            status=next((s for s in _WORST_FIRST if s in ends), SliceStatus.AGAIN),
            detail="; ".join([*self._failures, *blocked, *self._ended, *(r.detail for r in self._results)]),
            records=sum(s.counts.records for o in done for s in o.report.spans),
            rows=sum(o.rows.get(name, 0) for o in done for name in self._job.landing.data_tables),
            seconds=time.monotonic() - self._began,
        )

    def _part(self, spans: tuple[Span, ...]) -> Slice:
        if spans == self._work.spans:
            return self._work
        own = slice_id(self._job.plan.window_id, spans, self._work.tables)
        return replace(self._work, spans=spans, slice_id=own)

    def _send(self, part: Slice, attempt: UUID, records: list[Outgoing], *, done: bool) -> bool:
        """Send the report; return True if this report covers the part. Reports of other attempts are kept.

        :raises FencedError: the slice needs no report any more
        """
        result = send_report(self._control, self._job, part, attempt, lambda: self._writer.send(records), done=done)
        if result is not None and result.status is SliceStatus.SUPERSEDED:
            raise FencedError("LC5043", result.detail)
        self._results += [] if result is None else [result]
        return result is None


def _log(text: str) -> None:
    """Log progress to standard error, which goes to the log of the run."""
    print(text, file=sys.stderr, flush=True)
