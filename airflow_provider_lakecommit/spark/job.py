# SPDX-License-Identifier: Apache-2.0
"""The Spark job of a partition group: one Spark task per slice, each reported by its own task the moment it is
finished.

Contract: :class:`WindowJob` holds all that the tasks need and no secret; connection settings come from a file that is
shipped beside the job (:class:`Secrets`), and nothing secret of them is in what a task tells. Spark only schedules: a
task is a function of the job and a slice number. What a task finished is in the control log before the task ends, so a
job that dies loses at most the slices in hand.

Failure story: a slice that fails never fails the job, the other slices go on. A failure that the same slice would have
again (damaged plan, wrong schema) is reported as such and counted; one that may pass (broker away, storage away) is
only told to the driver. A task that was fenced by a newer attempt of the same slice ends ``superseded``. Files are left
in place whenever the outcome of their report is unknown. Storage keys that a catalog handed out may expire while a job
runs: slices that are not begun by then are not begun, those in hand may fail, and each says so; all of them are for
the next attempt, which has other keys.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.core.model import Counts, Plan, Slice, SliceReport, SpanReport
from airflow_provider_lakecommit.exceptions import CatalogError, FencedError, LakecommitError, SpecError, Terminal
from airflow_provider_lakecommit.iceberg.storage import TableStorage, clock
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.redaction import redacted
from airflow_provider_lakecommit.spark.report import failure_records, report_records
from airflow_provider_lakecommit.wire.plan import plan_from_json, plan_to_json
from airflow_provider_lakecommit.wire.records import Sender

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from airflow_provider_lakecommit.kafka.control_topic import ControlWriter
    from airflow_provider_lakecommit.spark.slices import SliceOutcome

__all__ = ["RESULT", "Secrets", "SliceResult", "WindowJob", "run_window", "tasks"]

DONE, BLOCKED, FAILED, AGAIN, SUPERSEDED = "done", "blocked", "failed", "again", "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowJob:
    """A group's share of a window. ``plan.slices`` are the ones to do, ``places`` their numbers in the group's whole
    share.
    """

    landing: Landing
    plan: Plan
    group: int
    places: tuple[int, ...]
    commit_id: UUID
    slot: int
    catalog: str
    control_topic: str
    control_partition: int

    def to_json(self) -> str:
        return json.dumps(
            {
                "landing": self.landing.to_dict(),
                "plan": plan_to_json(self.plan),
                "group": self.group,
                "places": list(self.places),
                "commit_id": str(self.commit_id),
                "slot": self.slot,
                "catalog": self.catalog,
                "control_topic": self.control_topic,
                "control_partition": self.control_partition,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> WindowJob:
        v = json.loads(text)
        return cls(
            landing=Landing.from_dict(v["landing"]),
            plan=plan_from_json(v["plan"]),
            group=v["group"],
            places=tuple(v["places"]),
            commit_id=UUID(v["commit_id"]),
            slot=v["slot"],
            catalog=v["catalog"],
            control_topic=v["control_topic"],
            control_partition=v["control_partition"],
        )

    def transactional_id(self, index: int) -> str:
        """Of a bounded pool: a new attempt of the same slice fences the old one and nobody else."""
        who = f"lakecommit-{self.plan.landing}-{self.plan.lane}-{self.slot}"
        return f"{who}-w-{self.group}-0-{self.places[index]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Connection settings of the tasks: librdkafka settings and storage properties. Never printed, never in a plan.

    ``io`` are the connection's storage properties, ``tables`` those of tables with which the catalog handed out others.
    """

    kafka: Mapping[str, Any]
    io: Mapping[str, str]
    tables: Mapping[str, TableStorage] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "Secrets(...)"

    def io_of(self, table: str) -> dict[str, str]:
        """Storage properties of a table, as :func:`pyiceberg.io.load_file_io` takes them."""
        storage = self.tables.get(table)
        return dict(self.io if storage is None else storage.properties)

    def expired(self, tables: Iterable[str], now: float) -> str:
        """Which of these tables' keys do not hold any more, for a message; empty if none is known to."""
        return " and ".join(
            f"the storage credentials that the catalog handed out for {name} expired at {clock(storage.expires_at)}"
            for name in tables
            if (storage := self.tables.get(name)) is not None
            and storage.expires_at is not None
            and storage.expires_at <= now
        )

    def without(self, text: str) -> str:
        """A text with all values of secret-looking settings struck out."""
        return redacted(text, self.kafka, self.io, *(storage.properties for storage in self.tables.values()))

    def to_json(self) -> str:
        """For a file or a channel that nobody else reads.

        :raises SpecError: a setting is a function
        """
        try:
            tables = {name: storage.to_dict() for name, storage in self.tables.items()}
            return json.dumps({"kafka": dict(self.kafka), "io": dict(self.io), "tables": tables})
        except TypeError as e:
            callables = ", ".join(sorted(key for key, value in self.kafka.items() if callable(value)))
            raise SpecError(
                f"the Kafka settings {callables} of this landing are functions, which Spark's workers cannot be given: "
                "use credentials that are settings, or let the workers have their own identity"
            ) from e

    @classmethod
    def from_json(cls, text: str) -> Secrets:
        values = json.loads(text)
        tables = {name: TableStorage.from_dict(storage) for name, storage in values["tables"].items()}
        return cls(kafka=values["kafka"], io=values["io"], tables=tables)

    def save(self, path: Path) -> None:
        """Write for the owner's eyes only.

        :raises SpecError: a setting is a function
        """
        text = self.to_json()
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as f:
            f.write(text)

    @classmethod
    def load(cls, path: str) -> Secrets:
        """From the given path, or from the file of that name which Spark shipped to this worker."""
        if not os.path.exists(path):
            from pyspark import SparkFiles

            path = SparkFiles.get(os.path.basename(path))
        return cls.from_json(Path(path).read_text())


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceResult:
    """How a slice ended: ``done``, ``blocked``, ``failed``, ``again`` (may pass by itself) or ``superseded``."""

    slice: str
    status: str
    detail: str
    records: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"slice {self.slice}: {self.status}{f' ({self.detail})' if self.detail else ''}"


FRESH_KEYS = (
    "the next attempt takes fresh ones. Have the catalog hand out credentials that hold longer, or make windows "
    "smaller (`max_records`, `max_bytes`)"
)
"""What helps against keys that do not hold for as long as a window takes."""


class _Expired(CatalogError):
    """A slice was not begun, because its tables' keys do not hold any more."""


RESULT = "slice string, status string, detail string, records long, rows long, seconds double"
"""Columns of a :class:`SliceResult` as Spark calls their types."""


def run_window(spark: SparkSession, job: WindowJob, secrets_path: str) -> list[SliceResult]:
    """Run all slices of the job as tasks of one Spark job; returns when all have ended.

    :raises Exception: what Spark raises when a worker process dies; slices that were finished are reported all the same
    """
    n = len(job.plan.slices)
    work = tasks(job.to_json(), partial(Secrets.load, secrets_path))
    rows = spark.range(0, n, 1, n).mapInArrow(work, RESULT).collect()
    return [SliceResult(**row.asDict()) for row in rows]


def tasks(
    job_text: str, read_secrets: Callable[[], Secrets]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The tasks of a job as the function of a `mapInArrow` over the numbers of its slices; results as in
    :data:`RESULT`.
    """

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from airflow_provider_lakecommit.spark import job as here

        work, secrets = here.WindowJob.from_json(job_text), read_secrets()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                result = here.run_task(work, secrets, index)
                values = {name: [getattr(result, name)] for name in here.SliceResult.__dataclass_fields__}
                yield pa.RecordBatch.from_pydict(values)

    return run


def run_task(job: WindowJob, secrets: Secrets, index: int) -> SliceResult:
    """Read, decode, write and report one slice; never raises for a failure of that slice."""
    work, began = job.plan.slices[index], time.monotonic()
    try:
        result = _run(job, secrets, index, work)
    except FencedError as e:
        result = SliceResult(slice=str(work), status=SUPERSEDED, detail=str(e))
    except Exception as e:
        detail = secrets.without(f"{type(e).__name__}: {e}")
        if not isinstance(e, LakecommitError):
            _log(secrets.without(traceback.format_exc()))
        if not isinstance(e, _Expired) and (expired := secrets.expired(work.tables, time.time())):
            detail = f"{detail}; {expired}: {FRESH_KEYS}"
        result = SliceResult(slice=str(work), status=AGAIN, detail=detail)
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
            _send_failure(writer, job, work, attempt, None, failed=secrets.without(f"{type(e).__name__}: {e}"))
            return SliceResult(slice=str(work), status=FAILED, detail=secrets.without(str(e)))
        if outcome.blocked is not None:
            _send_failure(writer, job, work, attempt, outcome, failed=None)
            return SliceResult(slice=str(work), status=BLOCKED, detail=outcome.blocked)
        _send(writer, job, work, attempt, outcome)
    return SliceResult(
        slice=str(work),
        status=DONE,
        detail="",
        records=sum(s.counts.landed + s.counts.rejected + s.counts.filtered for s in outcome.spans),
        rows=sum(outcome.rows.values()),
        seconds=time.monotonic() - began,
    )


def _sender(job: WindowJob) -> Sender:
    form = job.landing.control_events
    return Sender(landing=job.plan.landing, lane=job.plan.lane, role="write", commit_id=job.commit_id, form=form)


def _send(writer: ControlWriter, job: WindowJob, work: Slice, attempt: UUID, outcome: SliceOutcome) -> None:
    report = SliceReport(
        slice_id=work.slice_id,
        attempt=attempt,
        window_id=job.plan.window_id,
        spec_version=job.landing.spec_version,
        spans=outcome.spans,
        tables=(),
        bytes=outcome.bytes,
        ignored_fields=outcome.ignored_fields,
        cost=outcome.cost,
    )
    targets = {t.table: t for t in job.plan.targets if t.table in work.tables}
    records = report_records(
        _sender(job),
        catalog=job.catalog,
        targets=targets,
        files=outcome.files,
        report=report,
        new_id=uuid4,
        at=datetime.now(UTC),
    )
    writer.send([(r.key, r.value, r.headers) for r in records])


def _send_failure(
    writer: ControlWriter, job: WindowJob, work: Slice, attempt: UUID, outcome: SliceOutcome | None, failed: str | None
) -> None:
    spans = outcome.spans if outcome else tuple(SpanReport(span=s, counts=Counts()) for s in work.spans)
    records = failure_records(
        _sender(job),
        work=work,
        window_id=job.plan.window_id,
        spec_version=job.landing.spec_version,
        attempt=attempt,
        spans=spans,
        blocked=outcome.blocked if outcome else None,
        failed=failed,
        new_id=uuid4,
        at=datetime.now(UTC),
    )
    writer.send([(r.key, r.value, r.headers) for r in records])


def _log(text: str) -> None:
    """Progress for the log of whoever started Spark: workers' standard error goes there."""
    print(text, file=sys.stderr, flush=True)
