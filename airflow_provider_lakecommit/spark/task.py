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
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from pyiceberg.schema import Schema

from airflow_provider_lakecommit.control import Sender
from airflow_provider_lakecommit.core import (
    Counts,
    Slice,
    SliceReport,
    Span,
    SpanReport,
    attempt_id,
    rules_of,
    schemas_of,
    slice_id,
)
from airflow_provider_lakecommit.exceptions import CatalogError, FencedError, LakecommitError, RecordsError
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.report import marks_of, report_records, send_report
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
    from airflow_provider_lakecommit.spark.slices import SliceOutcome, SliceWork

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
MOST_REASON = 2000
"""Most characters of a failure in the control topic."""


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
            _log(secrets.without(f"slice {work} failed, retrying it in parts: {_trace(e)}"))
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
        from airflow_provider_lakecommit.spark.slices import SliceWork

        part = self._part(spans)
        attempt = attempt_id(part.slice_id, uuid4())
        try:
            outcome = self._outcome(SliceWork.of(self._job, part, attempt))
            self._check_not_superseded(spans, outcome)
            part, whole = self._part(tuple(s.span for s in outcome.spans)), part
            records = _records(self._job, part, attempt, outcome, whole=whole)
        except Exception as e:
            if isinstance(e, LakecommitError) or passes(e):
                raise
            raise RecordsError("LC5041", f"{part}: {type(e).__name__}: {e}") from e
        if self._send(part, attempt, records, done=outcome.blocked is None):
            self._outcomes.append(outcome)
        if part != whole:
            self._ended.append(f"{self._watch.reason}: {len(part)} of {len(whole)} offsets are reported")

    def _outcome(self, work: SliceWork) -> SliceOutcome:
        from airflow_provider_lakecommit.spark.slice_process import run_apart
        from airflow_provider_lakecommit.spark.slices import run_slice

        if self._apart:
            return run_apart(
                replace(self._job, plan=replace(self._job.plan, slices=(work.slice,))), self._secrets, work
            )
        return run_slice(
            work,
            self._secrets.kafka,
            self._secrets.io_of,
            progress=self._log,
            should_stop=lambda: self._is_to_stop(work.slice.spans),
        )

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
        attempt = attempt_id(self._work.slice_id, uuid4())
        records = _records(self._job, self._work, attempt, None, failed=reason)
        send_report(self._control, self._job, self._work, attempt, lambda: self._writer.send(records), done=False)

    def _log(self, text: str) -> None:
        _log(self._secrets.without(text))

    def failed(self, spans: tuple[Span, ...], error: Exception) -> None:
        """Report to the control topic that these ranges cannot be done."""
        part, reason = self._part(spans), self._secrets.without(f"{type(error).__name__}: {error}")
        attempt = attempt_id(part.slice_id, uuid4())
        if self._send(part, attempt, _records(self._job, part, attempt, None, failed=reason), done=False):
            whole = spans == self._work.spans
            self._failures.append(self._secrets.without(str(error)) if whole else f"{part}: {reason}")

    def result(self) -> SliceResult:
        """Return how the slice ended, by its reports."""
        done = [o for o in self._outcomes if o.blocked is None]
        blocked = [o.blocked for o in self._outcomes if o.blocked is not None]
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
            records=sum(s.counts.records for o in done for s in o.spans),
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


def _records(
    job: WindowJob,
    work: Slice,
    attempt: UUID,
    outcome: SliceOutcome | None,
    failed: str | None = None,
    whole: Slice | None = None,
) -> list[Outgoing]:
    """Return the report of a slice; a blocked or failed one has no files.

    :param whole: the slice that was begun
    """
    finished = None if outcome is None or outcome.blocked is not None else outcome
    report = SliceReport(
        slice_id=work.slice_id,
        attempt=attempt,
        window_id=job.plan.window_id,
        spec_version=job.landing.spec_version,
        spans=outcome.spans if outcome else tuple(SpanReport(span=s, counts=Counts()) for s in work.spans),
        tables=(),
        bytes=finished.bytes if finished else 0,
        ignored_fields=finished.ignored_fields if finished else {},
        cost=finished.cost if finished else None,
        rules=rules_of(job.landing.decoding_hash, *schemas_of(job.landing.destinations, job.plan.targets)),
        blocked=outcome.blocked if outcome else None,
        failed=None if failed is None else failed[:MOST_REASON],
        rejects=outcome.rejects if outcome else {},
        reject_reason=outcome.reject_reason[:MOST_REASON] if outcome else "",
        unknown_at=outcome.unknown_at if outcome else {},
        planned_slice=whole.slice_id if whole is not None and whole != work else None,
        generation=job.plan.generation,
    )
    form = job.landing.connections.control_events
    targets = {t.table: t for t in job.plan.targets if finished and t.table in work.tables}
    return report_records(
        Sender(landing=job.plan.landing, lane=job.plan.lane, role="write", commit_id=job.commit_id, form=form),
        catalog=job.catalog,
        targets=targets,
        files=finished.files if finished else {},
        tombstones={job.landing.table: finished.tombstones} if finished and finished.tombstones else {},
        report=report,
        new_id=uuid4,
        at=datetime.now(UTC),
        marks={n: marks_of(job.landing, n, Schema.model_validate_json(t.schema)) for n, t in targets.items()},
    )


def _trace(error: Exception) -> str:
    """Return the text of an exception, with its origin if it is unexpected."""
    cause = error.__cause__
    return f"{error}" if cause is None else "".join(traceback.format_exception(cause))


def _log(text: str) -> None:
    """Log progress to standard error, which goes to the log of the run."""
    print(text, file=sys.stderr, flush=True)
