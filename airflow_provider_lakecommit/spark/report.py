# SPDX-License-Identifier: Apache-2.0
"""The report of one slice: its files per table and its accounting, as control records of one transaction.

Contract: a slice is reported completely or not at all. Each table of the slice is named with its file count and rows,
even without files, so that a reader recognizes a report whose head was cut off the log. File lists are split
so that no record is near the broker's limit.

Other attempts may run meanwhile: a zombie of a retry, or a copy that Spark started. :func:`send_report` returns when
the control topic holds a report of the slice, from this attempt or another, or when the cycle is over, so that no
report is needed. A slice done in parts is reported when all parts are. A fenced attempt reads the log; while the slice
is unreported, it takes the transactional id back. So no attempt succeeds before the slice is reported, whichever ends
first; a second report only costs files, since the first one in the log is accepted. Another attempt's failure does not
stop an attempt that has done the slice; it stops one that failed too, if both are about exactly the same ranges.

Failure story: an unreadable log is an error, and so is an id that is taken over again and again: the next attempt does
the slice. Unreadable records are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema

from airflow_provider_lakecommit.control import (
    DataFile,
    DataWritten,
    Outgoing,
    PartitionField,
    Sender,
    read_entries,
    table_reference,
)
from airflow_provider_lakecommit.core import (
    Counts,
    Coverage,
    Role,
    Slice,
    SliceReport,
    SliceReported,
    SpanReport,
    TableReport,
    TableTarget,
    role_of,
    rules_of,
    schemas_of,
)
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.exceptions import FencedError
from airflow_provider_lakecommit.iceberg import mark_columns, partition_fields, to_wire
from airflow_provider_lakecommit.landing import MARK_COLUMNS, Landing
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import ControlTopic

MAX_RECORD_BYTES = 700_000
"""Largest DATA_WRITTEN that is sent unsplit; brokers take 1 MB by default, headers included."""
PIECE_BYTES = 500_000
SAMPLE_FILES = 50

MOST_REASON = 2000
"""Most characters of a failure in the control topic."""


def report_of(
    job: WindowJob,
    part: Slice,
    attempt: UUID,
    *,
    failed: str | None = None,
    spans: tuple[SpanReport, ...] | None = None,
    **found: Any,
) -> SliceReport:
    """Return an attempt's report on a slice of the job, or on a part of one, whose tables are still empty.

    :param failed: why it cannot be done
    :param spans: by default without counts
    :param found: further fields of the report
    """
    if found.get("reject_reason"):
        found["reject_reason"] = found["reject_reason"][:MOST_REASON]
    return SliceReport(
        slice_id=part.slice_id,
        attempt=attempt,
        window_id=job.plan.window_id,
        spec_version=job.landing.spec_version,
        spans=tuple(SpanReport(span=s, counts=Counts()) for s in part.spans) if spans is None else spans,
        tables=(),
        rules=rules_of(job.landing.decoding_hash, *schemas_of(job.landing.destinations, job.plan.targets)),
        failed=None if failed is None else failed[:MOST_REASON],
        generation=job.plan.generation,
        **found,
    )


def report_records(
    job: WindowJob,
    part: Slice,
    report: SliceReport,
    files: Mapping[str, Sequence[ManifestFile]],
    tombstones: Sequence[ManifestFile] = (),
    *,
    at: datetime,
) -> list[Outgoing]:
    """Return DATA_WRITTEN of every table that got files, then DATA_COMPLETE. The records of a slice that is over its
    budget or cannot be done name no table.

    :param report: the slice's report; its tables are filled in here
    :param files: by table
    :param tombstones: files with the keys that the slice deletes: delete files of the event, of no partition
    """
    landing, plan, form = job.landing, job.plan, job.landing.connections.control_events
    sender = Sender(landing=plan.landing, lane=plan.lane, role="write", commit_id=job.commit_id, form=form)

    def event(
        target: TableTarget,
        fields: tuple[PartitionField, ...],
        data_files: tuple[DataFile, ...] | None,
        delete_files: tuple[DataFile, ...] | None = None,
    ) -> Outgoing:
        payload = DataWritten(
            commit_id=sender.commit_id,
            table=table_reference(job.catalog, target.table, target.uuid),
            partition_fields=fields,
            data_files=data_files,
            delete_files=delete_files,
        )
        return sender.files(uuid4(), at, payload, report, target.table)

    out: list[Outgoing] = []
    tables: list[TableReport] = []
    for target in plan.targets if report.blocked is None and report.failed is None else ():
        if target.table not in part.tables:
            continue
        schema, records = Schema.model_validate_json(target.schema), list[Outgoing]()
        written = files.get(target.table, ())
        deleted = tombstones if target.table == landing.table else ()
        if written:
            spec = PartitionSpec.model_validate_json(target.spec)
            wire = to_wire(written, spec=spec, schema=schema)
            records += _in_pieces(wire, partial(event, target, partition_fields(spec, schema)))
        if deleted:
            wire = to_wire(deleted, spec=UNPARTITIONED_PARTITION_SPEC, schema=schema)
            records.append(event(target, (), None, wire))
        out.extend(records)
        tables.append(
            TableReport(
                table=target.table,
                uuid=target.uuid,
                epoch=target.epoch,
                schema_id=target.schema_id,
                spec_id=target.spec_id,
                events=len(records),
                files=len(written) + len(deleted),
                rows=sum(f.record_count for f in written),
                columns=marks_of(landing, target.table, schema),
            )
        )
    out.append(sender.reported(uuid4(), at, replace(report, tables=tuple(tables))))
    return out


def marks_of(landing: Landing, table: str, schema: Schema) -> tuple[int, ...]:
    """Return the field ids of the columns that identify the record of each row, in the order of
    :data:`~airflow_provider_lakecommit.core.provenance.COORDINATES`; empty if the table lacks one, or the landing does
    not fill them.
    """
    role = role_of(landing.destinations, table)
    if role is Role.ROWS and not set(MARK_COLUMNS) <= set(landing.record_columns):
        return ()
    return mark_columns(schema, role)


def _in_pieces(files: tuple[DataFile, ...], event: Callable[[tuple[DataFile, ...]], Outgoing]) -> list[Outgoing]:
    """Return the events of the files: as few as their size allows."""

    def split(part: tuple[DataFile, ...]) -> list[Outgoing]:
        whole = event(part)
        if len(whole.value) <= MAX_RECORD_BYTES or len(part) == 1:
            return [whole]
        half = len(part) // 2
        return split(part[:half]) + split(part[half:])

    # Encoding is the cost: cut pieces of about the right size by a few files, and cut again only if one is too large.
    sample = files[:SAMPLE_FILES]
    step = max(1, len(sample) * PIECE_BYTES // len(event(sample).value)) if len(files) > len(sample) else len(files)
    return [r for at in range(0, len(files), step) for r in split(files[at : at + step])]


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
