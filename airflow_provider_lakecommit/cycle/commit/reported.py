# SPDX-License-Identifier: Apache-2.0
"""Check a report on a table's files against the table itself and the landing.

Contract: reads the table's metadata, of data files only the footers of what ended early, and of the source at most one
record that is a row. A slice whose report is contradicted is not appended; its range is read again. Accepted files lie
in the table's data location, have the name that a writer of that very attempt gave them for its slice, and have as many
rows as the report counts landed records. So a report cannot pass off files of another table, slice or writer. If
records are unsigned, a span reported without rows is checked up to its first record that must be one.

Failure story: attempts of releases whose ids do not include their slice are checked against the table's head by reading
its manifests, until their last window is published. A user's location provider may name files freely, so only their
location is checked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.control import CORRUPTION, DataWritten, decode
from airflow_provider_lakecommit.control import DataFile as WireFile
from airflow_provider_lakecommit.core import (
    AcceptedSlice,
    Role,
    SliceReport,
    data_roots,
    is_attempt_at,
    name_problem,
    named_provider,
    path_problem,
    role_of,
)
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.ports import SourcePort
from airflow_provider_lakecommit.exceptions import CatalogError, TableError
from airflow_provider_lakecommit.iceberg import StagedSlice, rows_in_footer, to_pyiceberg, trouble_of
from airflow_provider_lakecommit.landing import IGNORE, Landing
from airflow_provider_lakecommit.spark import marks_of

CHECK_AGE = timedelta(hours=12)
"""Files of slices older than this are checked to exist before the append. Orphan clean-up spares files of the last day;
a slice's report is younger than its first file, and clocks differ, so half of that.
"""


def reported_files(
    accepted: AcceptedSlice, name: str, metadata: TableMetadata
) -> tuple[list[DataFile], list[WireFile]]:
    """Return the data files and the tombstone files of a slice for a table, as its DATA_WRITTENs list them.

    :raises TableError: they do not belong to this table
    """
    report, files, tombstones = accepted.report.table(name), list[DataFile](), list[WireFile]()
    for value in accepted.files[name]:
        if report is None:
            raise TableError("LC6204", "its report does not mention this table")
        spec, schema = metadata.specs().get(report.spec_id), metadata.schema_by_id(report.schema_id)
        if spec is None or schema is None:
            raise TableError(
                "LC6205", f"the table no longer has partition spec {report.spec_id} or schema {report.schema_id}"
            )
        try:
            payload = decode(value).payload
            if not isinstance(payload, DataWritten):
                raise TableError("LC6206", "its file list is not a DATA_WRITTEN event")
            tombstones += payload.delete_files or ()
            if payload.delete_files:
                continue
            files += to_pyiceberg(payload.data_files or (), payload.partition_fields, spec=spec, schema=schema)
        except CORRUPTION as e:
            raise TableError("LC6207", f"its file list in the control topic cannot be read: {e}") from e
    return files, tombstones


def staged_slice(session: LandingSession, accepted: AcceptedSlice, name: str, table: Table) -> StagedSlice:
    """Return a slice's share for a table, ready to append. Columns that the landing does not fill, or that the table
    has replaced, are no marks, whatever the report says.

    :raises TableError: it cannot be appended, or a file of an old slice is missing
    """
    files, tombstones = reported_files(accepted, name, table.metadata)
    landing, report = session.landing, accepted.report
    problem = report_problem(landing, table, name, report, files, tombstones)
    if not problem and name == landing.table and not session.signed:
        problem = hidden_record(session.source, landing, report)
    if problem:
        raise TableError("LC6208", problem)
    paths = [*(f.file_path for f in files), *(f.file_path for f in tombstones)]
    old = () if accepted.young(session.now(), CHECK_AGE) else paths
    if missing := next((path for path in old if not table.io.new_input(path).exists()), None):
        raise TableError("LC6209", f"its file {missing} is missing: it was deleted from storage")
    share = replace(StagedSlice.of(report, name, files, tombstones), counted_as=_counted_as(landing, name))
    marks = marks_of(landing, name, table.schema())
    return share if share.columns == marks else replace(share, columns=())


def _counted_as(landing: Landing, name: str) -> str:
    """Return the count of records that have one row each in this table if there are as many rows; empty if there is
    none: of several tables one may have several rows of some records and none of others.
    """
    if role_of(landing.destinations, name) is Role.DEAD_LETTERS:
        return "rejected"
    return "landed" if landing.one_row_each or len(landing.data_tables) == 1 else ""


def report_problem(
    landing: Landing,
    table: Table,
    name: str,
    report: SliceReport,
    files: Sequence[DataFile],
    tombstones: Sequence[WireFile] = (),
) -> str | None:
    """Return why a report on a table is refused, or ``None``.

    :raises CatalogError: the manifests of the table cannot be read
    """
    return (
        _rows_problem(landing, name, report)
        or _changes_problem(landing, name, report, tombstones)
        or _files_problem(landing, table, report, [*(f.file_path for f in files), *(f.file_path for f in tombstones)])
        or (_footers_problem(table, files) if report.planned_slice else None)
    )


def hidden_record(source: SourcePort, landing: Landing, report: SliceReport) -> str | None:
    """Return a record in a span that the report calls empty, or ``None``; only for formats whose records with a value
    are all rows or rejects. A topic recreated under the same name proves nothing.

    :raises SourceUnavailableError: the brokers did not answer
    """
    if not landing.one_row_each or (landing.upsert.key and landing.upsert.deletes == IGNORE):
        return None
    spans = ((s.span, s.counts) for s in report.spans)
    empty = [span for span, c in spans if not (c.landed or c.rejected or c.skipped or c.superseded or c.deleted)]
    # A missing partition, or a recreated one with a shorter log, would never answer. Checked before and after, since
    # it may change at any time.
    there = source.watermarks(missing_ok=True).partitions if empty else {}
    for span in empty:
        offset = source.first_value(span) if span.partition in there else None
        if offset is not None and span.partition in source.watermarks(missing_ok=True).partitions:
            return f"its report claims no row in {span}, but there is one at offset {offset}"
    return None


def _rows_problem(landing: Landing, name: str, report: SliceReport) -> str | None:
    """Check that rows come from records: as many as the spans report, or at least as many if a record may give several;
    in one of several tables at most as many, and in all tables of a complete report exactly as many.
    """
    of, dead = report.table(name), role_of(landing.destinations, name) is Role.DEAD_LETTERS
    records = sum(s.counts.rejected if dead else s.counts.landed for s in report.spans)
    rows = of.rows if of else 0
    if landing.dead_letter_table is None and (rejected := sum(s.counts.rejected for s in report.spans)):
        # By a former spec: the table with their dead letters would not be published.
        return f"its report counts {rejected} rejected records, but the landing has no dead-letter table any more"
    if not dead and len(landing.data_tables) > 1:
        return _routed_rows_problem(landing, name, report, rows, records)
    if rows == records or (rows > records and not dead and not landing.one_row_each):
        return None
    return f"its report counts {rows} rows for {records} {'rejected' if dead else 'landed'} records"


def _changes_problem(landing: Landing, name: str, report: SliceReport, tombstones: Sequence[WireFile]) -> str | None:
    """Check records that a newer one superseded, or that delete a row: only an upserting landing has them."""
    if role_of(landing.destinations, name) is Role.DEAD_LETTERS:
        return None
    counts, rows = [s.counts for s in report.spans], sum(f.record_count for f in tombstones)
    superseded, deleted = sum(c.superseded for c in counts), sum(c.deleted for c in counts)
    if (superseded or deleted or rows) and not landing.upsert.key:
        return f"its report counts {superseded} superseded and {deleted} deleting records, but the landing appends"
    if superseded and not deleted and not any(c.landed for c in counts):
        return f"its report counts {superseded} superseded records, and none that is newer"
    if deleted != rows:
        return f"its report counts {deleted} deletes, its tombstone files have {rows}"
    return None


def _routed_rows_problem(landing: Landing, name: str, report: SliceReport, rows: int, records: int) -> str | None:
    """Check the rows if each record goes to one of several tables."""
    reported = [t.rows for table in landing.data_tables if (t := report.table(table)) is not None]
    if rows > records and landing.one_row_each:
        return f"its report counts {rows} rows of {name} for {records} landed records"
    if len(reported) == len(landing.data_tables) and (
        sum(reported) < records or (sum(reported) > records and landing.one_row_each)
    ):
        return f"its report counts {sum(reported)} rows in all tables for {records} landed records"
    return None


def _files_problem(landing: Landing, table: Table, report: SliceReport, paths: Sequence[str]) -> str | None:
    if not paths:
        return None
    metadata = table.metadata
    roots = data_roots(metadata.location, metadata.properties)
    if problem := next((p for path in paths if (p := path_problem(path, roots))), None):
        return problem
    own = is_attempt_at(report.attempt, report.planned_slice or report.slice_id)
    if own is False:
        return f"attempt {report.attempt} belongs to another slice"
    if named_provider(metadata.properties) is None:
        if problem := next((p for path in paths if (p := name_problem(path, report.attempt))), None):
            return problem
        if own:
            return None
    present = _paths_in_table(table, landing.branch)
    return next((f"file {path} is already in the table" for path in paths if path in present), None)


def _footers_problem(table: Table, files: Sequence[DataFile]) -> str | None:
    """Check row counts: a file's name has the slice of its attempt, but only the rows show how far it came."""
    for file in files:
        path = file.file_path
        try:
            rows = rows_in_footer(table.io, path)
        except FileNotFoundError:
            return f"file {path} is missing"
        except OSError as e:
            raise CatalogError(
                "LC6210",
                f"file {path} cannot be read ({trouble_of(table.io, e, with_path=False)}): check the storage; nothing "
                "was committed",
            ) from None
        except TableError as e:
            return str(e)
        if rows != file.record_count:
            return f"file {path} holds {rows} rows, but {file.record_count} were reported"
    return None


def _paths_in_table(table: Table, branch: str) -> frozenset[str]:
    """Return the data files at the head of a branch."""
    head = table.metadata.snapshot_by_name(branch)
    if head is None:
        return frozenset()
    try:
        manifests = [m.fetch_manifest_entry(table.io, discard_deleted=True) for m in head.manifests(table.io)]
    except OSError as e:
        raise CatalogError(
            "LC6211",
            f"the manifests of {'.'.join(table.name())} cannot be read ({trouble_of(table.io, e, with_path=False)}): "
            "check the storage; nothing was committed",
        ) from None
    return frozenset(entry.data_file.file_path for entries in manifests for entry in entries)
