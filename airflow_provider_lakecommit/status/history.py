# SPDX-License-Identifier: Apache-2.0
"""The history of a table, for `verify`: its landing snapshots with the files that each really added.

The additions of a snapshot are taken from the entries of the manifests, not from its summary. Files that others removed
since are found in the manifests of the snapshot itself. Files of a landing must be in the data location of the table.
An unreadable ledger, a tag that does not pin it, a missing manifest or file become findings, so that one corrupt place
does not hide the rest. Only an unreachable catalog raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from urllib.parse import urlsplit

from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from airflow_provider_lakecommit.core import CONNECT_RESCUE, RESET_ASSERT, RESET_OFFSETS, data_roots, path_problem
from airflow_provider_lakecommit.exceptions import TableError, WireError
from airflow_provider_lakecommit.iceberg import (
    Condition,
    LedgerState,
    SnapshotKind,
    Tables,
    ancestry,
    has_ledger,
    is_data,
    read_ledger,
    record_of,
    rows_in_footer,
    sections_of,
    sink_commits,
    sink_commits_text,
    tag_name,
    trouble_of,
)
from airflow_provider_lakecommit.status.other_writers import brought_back, live_rows, row_change
from airflow_provider_lakecommit.status.replacements import copied_rows
from airflow_provider_lakecommit.status.table_history import (
    AddedFile,
    Finding,
    LandingSnapshot,
    TableHistory,
    note_on,
    wrong_in,
)

RESCUED_BY = "lakecommit.rescued-by"
"""Key that `lakecommit connect rescue` writes into the summary of its snapshots."""
KEPT_FOR_EVER = (1 << 63) - 1
MOST_NAMED = 3
"""Files in one finding."""


@dataclass(slots=True, kw_only=True)
class _HistoryReading:
    """One table while it is read."""

    name: str
    table: Table
    problems: list[Finding] = field(default_factory=list)

    def wrong(self, text: str, snapshot_id: int | None = None) -> None:
        self.problems.append(wrong_in(self.name, text, snapshot_id))

    def note(self, text: str, snapshot_id: int | None = None) -> None:
        self.problems.append(note_on(self.name, text, snapshot_id))


def read_history(
    tables: Tables, name: str, branch: str, *, files: bool | None = None, progress: Callable[[str], None]
) -> TableHistory:
    """Read one table.

    :param files: request every file from the storage; ``None``: only on a local disk
    :raises CatalogError: the catalog is unreachable
    """
    table = tables.find(name)
    if table is None:
        absent = wrong_in(name, "the table does not exist")
        return TableHistory(table=name, snapshots=(), whole=True, problems=(absent,), absent=True)
    reading, picked_id = _HistoryReading(name=name, table=table), None
    try:
        state = read_ledger(table.metadata, branch)
    except (WireError, TableError) as e:
        reading.wrong(str(e))
    else:
        _check_ledger(reading, table.metadata, state)
        _find_sinks(reading, table.metadata, state)
        picked_id = state.picked_id
    line = list(ancestry(table.metadata, branch))
    listed = list(_listed(reading, line[0])) if line else []
    entries = [e for e in listed if is_data(e.data_file)]
    at_head: dict[int, list[AddedFile]] = {}
    for entry in entries:
        at_head.setdefault(entry.snapshot_id or 0, []).append(_added(entry))
    landing = list(_landing_snapshots(reading, reversed(line), at_head))
    ours = {s.record.snapshot_id for s in landing}
    _check_paths(reading, landing)
    _find_lost_files(reading, line, landing, entries)
    _find_rolled_back(reading, line, at_head, landing, picked_id)
    fewer, others = 0, False
    for snapshot in line:
        # The branch of a new table begins at an empty snapshot.
        begins = snapshot.parent_snapshot_id is None and live_rows(snapshot) == 0
        if snapshot.snapshot_id not in ours and not has_ledger(snapshot) and not begins:
            operation = snapshot.summary.operation.value if snapshot.summary else "unknown operation"
            by = snapshot.summary.additional_properties.get(RESCUED_BY) if snapshot.summary else None
            rescued, change = f", by `{CONNECT_RESCUE}`, {by}" if by else "", row_change(snapshot)
            fewer, others = fewer + change.fewer, others or not change.same
            text = f"made by another writer ({operation}{rescued})" + (f": {change}" if str(change) else "")
            (reading.wrong if change.wrong else reading.note)(text, snapshot.snapshot_id)
    if files or (files is None and urlsplit(table.location()).scheme in ("", "file")):
        progress(f"{name}: checking {len(listed)} files")
        _find_files(reading, listed)
    whole = not landing or _begins(landing[0])
    if not whole:
        reading.note(
            f"the history starts at snapshot {landing[0].record.snapshot_id}: the sums do not include older ranges, "
            "from expired snapshots or decisions of users"
        )
    return TableHistory(
        table=name,
        snapshots=tuple(landing),
        whole=whole,
        head_id=line[0].snapshot_id if line else None,
        head=tuple(e.data_file.file_path for e in entries),
        problems=tuple(reading.problems),
        fewer=fewer,
        taken_out=_taken_out(table.metadata, line, landing, branch),
        live=None if others or not line else live_rows(line[0]),
    )


def _check_ledger(reading: _HistoryReading, metadata: TableMetadata, state: LedgerState) -> None:
    match state.condition:
        case Condition.ABSENT:
            reading.note("no landing has landed in this table yet")
        case Condition.PRESENT:
            name = tag_name(state.branch)
            tag = metadata.refs[name]
            if tag.snapshot_id != state.snapshot_id:
                reading.wrong(f"tag {name} is on {tag.snapshot_id}, but the ledger is on {state.snapshot_id}")
            if tag.max_ref_age_ms is None:
                reading.wrong(f"tag {name} has no age of its own: it expires by the table's property")
            elif tag.max_ref_age_ms < KEPT_FOR_EVER:
                reading.wrong(f"tag {name} expires after {tag.max_ref_age_ms} ms, and the ledger with it")
        case Condition.ROLLED_BACK:
            reading.note(f"{state.reason}; the next cycle starts a new epoch and reads again what the source still has")
        case Condition.LOST | Condition.CUT | Condition.PICKED:
            reading.wrong(
                f"the ledger is {state.condition}: {state.reason}; `{RESET_ASSERT}` or `{RESET_OFFSETS}` sets it again"
            )


def _find_sinks(reading: _HistoryReading, metadata: TableMetadata, state: LedgerState) -> None:
    """Report connectors that commit to a table taken over from them; also before the newest landing snapshot."""
    for sink in (s.sink for s in state.sections if s.sink is not None):
        if sink.lands:
            reading.note(f"handed back to connector {sink.connector}, which lands it now")
        elif late := list(sink_commits(metadata, state.branch, sink)):
            reading.wrong(sink_commits_text(sink, late), late[-1].snapshot_id)


def _begins(first: LandingSnapshot) -> bool:
    """Return True if this is the first landing snapshot that the table ever had. An opened backfill, and a user's
    decision, have these kinds too, but on a table with history.
    """
    began = first.record.kind in (SnapshotKind.ORIGIN, SnapshotKind.INIT)
    return began and first.sections.keys() == {first.key} and not any(s.covered for s in first.sections.values())


def _landing_snapshots(
    reading: _HistoryReading, line: Iterable[Snapshot], at_head: Mapping[int, Sequence[AddedFile]]
) -> Iterator[LandingSnapshot]:
    for snapshot in line:
        try:
            record = record_of(snapshot)
            sections = sections_of(snapshot) if record is not None else ()
        except WireError as e:
            reading.wrong(str(e), snapshot.snapshot_id)
            continue
        if record is None:
            continue
        files: Sequence[AddedFile] = at_head.get(snapshot.snapshot_id, ())
        if sum(rows for _, rows in files) != record.rows + copied_rows(record):
            # Others rewrote or removed some of them since, or it is wrong: its own manifests show which.
            files = [_added(e) for e in _entries(reading, snapshot) if e.snapshot_id == snapshot.snapshot_id]
        yield LandingSnapshot(
            record=record,
            sections={s.key: s for s in sections},
            files=tuple(files),
            removed=tuple(_removed(reading, snapshot)),
        )


def _removed(reading: _HistoryReading, snapshot: Snapshot) -> Iterator[AddedFile]:
    """Yield the data files that a snapshot removed, by its own manifests; an append removes none."""
    if snapshot.summary is None or snapshot.summary.operation is Operation.APPEND:
        return
    for entry in _entries(reading, snapshot, ManifestEntryStatus.DELETED):
        if entry.snapshot_id == snapshot.snapshot_id:
            yield _added(entry)


def _find_lost_files(
    reading: _HistoryReading,
    line: Iterable[Snapshot],
    landing: Iterable[LandingSnapshot],
    entries: Iterable[ManifestEntry],
) -> None:
    """Report files of landings that are no longer in the table, although no snapshot removed them: a commit left out a
    manifest. A commit that removes files names them in a manifest of its own.
    """
    gone = {path: rows for s in landing for path, rows in s.files}
    for path in chain((e.data_file.file_path for e in entries), (path for s in landing for path, _ in s.removed)):
        gone.pop(path, None)
    for snapshot in line if gone else ():
        for path, _ in _removed(reading, snapshot):
            gone.pop(path, None)
    if gone:
        rows, some = sum(gone.values()), ", ".join(sorted(gone)[:MOST_NAMED])
        reading.wrong(
            f"{len(gone)} landed files of {rows} rows are missing, and no snapshot reports their "
            f"removal: {some}{' …' if len(gone) > MOST_NAMED else ''}. Roll back to the last snapshot that has them"
        )


def _entries(
    reading: _HistoryReading, snapshot: Snapshot, only: ManifestEntryStatus | None = None
) -> Iterator[ManifestEntry]:
    """Yield the data files in a snapshot's manifests, or those with the status ``only``."""
    return (entry for entry in _listed(reading, snapshot, only) if is_data(entry.data_file))


def _listed(
    reading: _HistoryReading, snapshot: Snapshot, only: ManifestEntryStatus | None = None
) -> Iterator[ManifestEntry]:
    """Yield the same with the delete files."""
    io = reading.table.io
    try:
        for manifest in snapshot.manifests(io):
            if only is not None and manifest.added_snapshot_id != snapshot.snapshot_id:
                # The changes of a snapshot are in the manifests that it wrote.
                continue
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=only is None):
                if only in (None, entry.status):
                    yield entry
    except Exception as e:  # a reader may raise anything for a corrupt file
        reading.wrong(f"its manifests cannot be read: {trouble_of(io, e)}", snapshot.snapshot_id)


def _added(entry: ManifestEntry) -> AddedFile:
    return entry.data_file.file_path, entry.data_file.record_count


def _check_paths(reading: _HistoryReading, landing: Iterable[LandingSnapshot]) -> None:
    metadata = reading.table.metadata
    roots = data_roots(metadata.location, metadata.properties)
    for snapshot in landing:
        for path, _ in snapshot.files:
            if problem := path_problem(path, roots):
                reading.wrong(f"{problem}: it is of another table, or was moved there", snapshot.record.snapshot_id)


def _find_rolled_back(
    reading: _HistoryReading,
    line: list[Snapshot],
    at_head: Mapping[int, Sequence[AddedFile]],
    landing: list[LandingSnapshot],
    picked_id: int | None,
) -> None:
    there = [s.snapshot_id for s in line]

    def beside() -> Iterator[LandingSnapshot]:
        others = (s for s in reading.table.metadata.snapshots if s.snapshot_id not in there)
        return _landing_snapshots(reading, others, {})

    reading.problems += brought_back(reading.name, there, at_head, landing, beside, picked_id)


def _taken_out(
    metadata: TableMetadata, line: Iterable[Snapshot], landing: Iterable[LandingSnapshot], branch: str
) -> dict[str, int]:
    """Return the rows of landings in snapshots outside the branch, if no snapshot on it knows the landing: those
    continue only by a user's decision, not by a new epoch.
    """
    there, known, out = {s.snapshot_id for s in line}, {name for s in landing for name, _ in s.sections}, Counter[str]()
    for s in metadata.snapshots:
        with suppress(WireError):
            record = None if s.snapshot_id in there else record_of(s)
            if record is not None and record.branch == branch and record.landing not in known:
                out[record.landing] += record.rows
    return out


def _find_files(reading: _HistoryReading, entries: Iterable[ManifestEntry]) -> None:
    io = reading.table.io
    for entry in entries:
        file = entry.data_file
        try:
            size = len(io.new_input(file.file_path))
        except FileNotFoundError:
            reading.wrong(f"file {file.file_path} of {file.record_count} rows is missing", entry.snapshot_id)
            continue
        except OSError as e:
            reading.wrong(f"file {file.file_path} cannot be checked: {trouble_of(io, e)}", entry.snapshot_id)
            continue
        if size != file.file_size_in_bytes:
            reading.wrong(
                f"file {file.file_path}: {size} bytes, not the announced {file.file_size_in_bytes}", entry.snapshot_id
            )
        elif file.file_format is FileFormat.PARQUET:
            _check_file(reading, io, entry)


def _check_file(reading: _HistoryReading, io: FileIO, entry: ManifestEntry) -> None:
    """Check that the footer of a file agrees with its announcement."""
    path, announced = entry.data_file.file_path, entry.data_file.record_count
    try:
        rows = rows_in_footer(io, path)
    except TableError as e:
        reading.wrong(str(e), entry.snapshot_id)
        return
    except OSError as e:
        reading.wrong(f"file {path} cannot be read: {trouble_of(io, e)}", entry.snapshot_id)
        return
    if rows != announced:
        reading.wrong(f"file {path}: {rows} rows, not the announced {announced}", entry.snapshot_id)
