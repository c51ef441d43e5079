# SPDX-License-Identifier: Apache-2.0
"""The task of one slice: read, decode, write and report it.

Failure story: a slice that fails never fails the job, the other slices go on. A failure that the same slice would have
again (damaged plan, wrong schema) is reported as such and counted; one that may pass (broker away, storage away) is
only returned to the driver. A task that was fenced by another attempt of the same slice (a retry, Spark's speculative
copy) looks in the log: where nobody has reported the slice and its cycle is open, it takes the id back and reports
itself, so that a copy never makes work vanish, whichever of them Spark ends then; it ends ``superseded`` only where its
cycle is over. Files are left in place whenever the outcome of their report is unknown. Storage keys that a catalog
handed out may expire while a job runs: slices that are not begun by then are not begun, those in hand may fail, and
each says so; all of them are for the next attempt, which has other keys.
"""

from __future__ import annotations

import sys
import time
import traceback
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from airflow_provider_lakecommit.core.model import Counts, Slice, SliceReport, SpanReport
from airflow_provider_lakecommit.exceptions import CatalogError, FencedError, LakecommitError, Terminal
from airflow_provider_lakecommit.spark.fenced import send_report
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.report import report_records
from airflow_provider_lakecommit.wire.records import Sender

if TYPE_CHECKING:
    from airflow_provider_lakecommit.kafka.control_topic import Record
    from airflow_provider_lakecommit.spark.slices import SliceOutcome

__all__ = ["run_task"]

FRESH_KEYS = (
    "the next attempt takes fresh ones. Have the catalog hand out credentials that hold longer, or make windows "
    "smaller (`max_records`, `max_bytes`)"
)
"""What helps against keys that do not hold for as long as a window takes."""


class _Expired(CatalogError):
    """A slice was not begun, because its tables' keys do not hold any more."""


def run_task(job: WindowJob, secrets: Secrets, index: int) -> SliceResult:
    """Read, decode, write and report one slice; never raises for a failure of that slice."""
    work, began = job.plan.slices[index], time.monotonic()
    try:
        result = _run(job, secrets, index, work)
    except FencedError as e:
        result = SliceResult(slice=str(work), status=SliceStatus.SUPERSEDED, detail=str(e))
    except Exception as e:
        detail = secrets.without(f"{type(e).__name__}: {e}")
        if not isinstance(e, LakecommitError):
            _log(secrets.without(traceback.format_exc()))
        if not isinstance(e, _Expired) and (expired := secrets.expired(work.tables, time.time())):
            detail = f"{detail}; {expired}: {FRESH_KEYS}"
        result = SliceResult(slice=str(work), status=SliceStatus.AGAIN, detail=detail)
    _log(f"{result} in {time.monotonic() - began:.1f} s")
    return result


def _run(job: WindowJob, secrets: Secrets, index: int, work: Slice) -> SliceResult:
    from airflow_provider_lakecommit.kafka.control_topic import ControlTopic
    from airflow_provider_lakecommit.spark.slices import SliceWork, run_slice

    attempt, began = uuid4(), time.monotonic()
    if expired := secrets.expired(work.tables, time.time()):
        raise _Expired(f"{expired}, before this slice was begun: {FRESH_KEYS}")
    with (
        ControlTopic(job.control_topic, secrets.kafka) as control,
        control.writer(job.transactional_id(index), job.control_partition) as writer,
    ):

        def tell(outcome: SliceOutcome | None, failed: str | None) -> SliceResult | None:
            records = _records(job, work, attempt, outcome, failed)
            return send_report(control, job, work, attempt, lambda: writer.send(records))

        writer.open()
        try:
            outcome = run_slice(
                SliceWork(landing=job.landing, slice=work, targets=job.plan.targets, attempt=attempt),
                secrets.kafka,
                secrets.io_of,
                progress=_log,
                should_stop=lambda: False,
            )
        except LakecommitError as e:
            if not isinstance(e, Terminal):
                raise
            told = tell(None, secrets.without(f"{type(e).__name__}: {e}"))
            return told or SliceResult(slice=str(work), status=SliceStatus.FAILED, detail=secrets.without(str(e)))
        if (told := tell(outcome, None)) is not None:
            return told
        if outcome.blocked is not None:
            return SliceResult(slice=str(work), status=SliceStatus.BLOCKED, detail=outcome.blocked)
    return SliceResult(
        slice=str(work),
        status=SliceStatus.DONE,
        detail="",
        records=sum(s.counts.landed + s.counts.rejected + s.counts.filtered for s in outcome.spans),
        rows=sum(outcome.rows.values()),
        seconds=time.monotonic() - began,
    )


def _records(
    job: WindowJob, work: Slice, attempt: UUID, outcome: SliceOutcome | None, failed: str | None
) -> list[Record]:
    """The report of the slice; of one that is blocked or failed nothing but that is reported."""
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
        blocked=outcome.blocked if outcome else None,
        failed=failed,
    )
    form = job.landing.control_events
    records = report_records(
        Sender(landing=job.plan.landing, lane=job.plan.lane, role="write", commit_id=job.commit_id, form=form),
        catalog=job.catalog,
        targets={t.table: t for t in job.plan.targets if finished and t.table in work.tables},
        files=finished.files if finished else {},
        report=report,
        new_id=uuid4,
        at=datetime.now(UTC),
    )
    return [(r.key, r.value, r.headers) for r in records]


def _log(text: str) -> None:
    """Progress for the log of whoever started Spark: workers' standard error goes there."""
    print(text, file=sys.stderr, flush=True)
