# SPDX-License-Identifier: Apache-2.0
"""Compaction: small files, and files with many deleted rows, become files of the target size.

Contract: the rows of a table stay the same. Bins (:mod:`~airflow_provider_lakecommit.operations.maintenance.bins`) are
written concurrently with everything else; then a snapshot replaces their sources. Each bin is checked again on the head
of that very commit: if a source is missing, a deleted row is restored, or an equality delete applies to a source, the
bin is given up; rows that were deleted meanwhile are deleted in the new file. Files of other writers are compacted too;
files with equality deletes are left alone. Position delete files that another engine has left, and that apply to no
data file, are removed.

Failure story: after a kill at any step, committed parts are complete, and the rest is garbage for a sweep. Of two
compactions of one table, the later one gives up the bins that the earlier one has committed. A bin that cannot be
written is reported, and the others continue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import numpy as np
from pyiceberg.manifest import DataFile, FileFormat, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION

from airflow_provider_lakecommit.core import DUE, LIVE, REWRITE, file_mark, file_name
from airflow_provider_lakecommit.cycle import LandingSession, target_of
from airflow_provider_lakecommit.exceptions import LakecommitError, StorageError, TableError
from airflow_provider_lakecommit.iceberg import (
    Attempt,
    Change,
    Compacted,
    Condition,
    DeletePositions,
    Head,
    HeadReader,
    Layout,
    Numbers,
    Rewrite,
    SnapshotKind,
    SnapshotRecord,
    compact_table,
    debt_of,
    delete_unused,
    deletes_of,
    read_ledger,
    require_present,
    trouble_of,
    write_deletes,
)
from airflow_provider_lakecommit.operations.maintenance.bins import (
    Bin,
    Source,
    WrittenBin,
    bins_of,
    size_of,
    within,
    write_bin,
)

THREADS = 2
BINS_OF_A_COMMIT = 32
SORTED_BYTES = 64 << 20
"""Size of files in sorted tables: a bin is sorted in memory."""


@dataclass(slots=True, kw_only=True)
class CompactedTable:
    """The plan and the result of one table's compaction: ``bins`` are the bins within the budget, ``later`` those
    beyond it; ``given_up`` bins met another commit; ``numbers`` are those of the commits.
    """

    table: str
    bins: int = 0
    files: int = 0
    bytes: int = 0
    later: int = 0
    given_up: int = 0
    snapshots: list[int] = field(default_factory=list)
    numbers: Compacted = field(default_factory=Compacted)
    error: str = ""

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        return {"compacted": values.pop("numbers"), **{k: v for k, v in values.items() if v or k != "error"}}


def compact(
    session: LandingSession,
    *,
    write: bool,
    most_bytes: int | None = None,
    most_time: timedelta | None = None,
    tiered: bool = False,
    tables: Sequence[str] | None = None,
    progress: Callable[[CompactedTable], None] = lambda _: None,
) -> Iterator[CompactedTable]:
    """Compact the tables of a landing, one after the other.

    :param write: compact; otherwise only return the plan
    :param most_bytes: of the files to rewrite in one table
    :param most_time: begin no further bins of a table after this time
    :param tables: only these
    :param tiered: see :func:`~airflow_provider_lakecommit.operations.maintenance.bins.bins_of`
    :param progress: takes the numbers of a table after each commit
    """
    for name in session.landing.tables if tables is None else tables:
        out = CompactedTable(table=name)
        try:
            one = _TableCompaction(session, name, out)
            if one.plan(most_bytes, tiered=tiered) and write:
                one.run(most_time, progress)
        except LakecommitError as e:
            out.error = str(e)
        yield out


class _TableCompaction:
    def __init__(self, session: LandingSession, name: str, out: CompactedTable) -> None:
        self._session, self._name, self._out = session, name, out
        self._branch = session.landing.branch
        self._table = session.tables.load(name)
        self._layout = Layout(target_of(name, self._table, uuid4()), session.landing.connections.location_providers)
        self._positions = DeletePositions(name)
        self._heads = HeadReader(name)
        self._planned = Head(entries={}, deletes=deletes_of(self._table, ()))
        self._bins: list[Bin] = []
        self._settles = False
        self._attempt, self._numbers = uuid4(), count()
        self._mark = file_mark(self._table.metadata.table_uuid, session.landing.name, REWRITE)

    def plan(self, most_bytes: int | None, *, tiered: bool) -> bool:
        """Find the bins of the current head; return True if there is something to commit."""
        if self._table.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
            raise TableError(
                "LC7715",
                f"table {self._name} has format version {self._table.format_version}: tables of versions up to "
                f"{SUPPORTED_TABLE_FORMAT_VERSION} can be compacted",
            )
        state = read_ledger(self._table.metadata, self._branch)
        if state.condition is Condition.ABSENT:
            return False
        require_present(state, self._name)
        self._planned = head = self._heads.read(self._table, self._branch)
        specs = self._table.metadata.specs()
        sources = (
            Source(e, sum(d.record_count for d in head.deletes.of(e)))
            for e in head.entries.values()
            if e.data_file.file_format == FileFormat.PARQUET and head.can_be_rewritten(e, specs)
        )
        target, maintain = self._layout.format.file_bytes, self._session.landing.maintain
        if self._layout.sorting:
            target = min(target, SORTED_BYTES)
        # A run compacts from half the limit on: then some file has so many deleted rows.
        found = bins_of(sources, target, dead_share=maintain.max_dead / 2, tiered=tiered)
        self._bins = within(found, most_bytes)
        out = self._out
        out.bins, out.later = len(self._bins), len(found) - len(self._bins)
        out.files, out.bytes = sum(map(len, self._bins)), sum(map(size_of, self._bins))
        debt = debt_of(self._table.metadata, self._branch, maintain)
        settles = not found and debt is not None and debt.files - debt.needed >= DUE * maintain.max_files
        self._settles = settles or bool(head.idle_deletes)
        return bool(self._bins) or self._settles

    def run(self, most_time: timedelta | None, progress: Callable[[CompactedTable], None]) -> None:
        if self._settles:
            # Record by a snapshot that the files are as few as possible, as every partition needs some; or remove
            # delete files only.
            self._commit(())
            self._settles = False
        end = None if most_time is None else time.monotonic() + most_time.total_seconds()
        with ThreadPoolExecutor(THREADS) as pool:
            for at in range(0, len(self._bins), BINS_OF_A_COMMIT):
                some = self._bins[at : at + BINS_OF_A_COMMIT]
                if end is not None and time.monotonic() > end:
                    self._out.later += len(some)
                    continue
                if at:
                    # With new storage keys from the catalog: the first ones may have expired.
                    old, new = self._table, self._session.tables.load(self._name)
                    self._table = Table(old.name(), old.metadata, old.metadata_location, new.io, old.catalog)
                if written := [w for w in pool.map(self._write, some) if w is not None]:
                    self._commit(written)
                progress(self._out)

    def _write(self, one: Bin) -> WrittenBin | None:
        """Write a bin; ``None``: it cannot be written, which is reported and stops no other bin."""
        try:
            dead = {s.path: self._dead(self._table, self._planned, s.entry) for s in one}
            return write_bin(self._table, self._layout, one, dead, self._new_path(one[0].file))
        except LakecommitError as e:
            self._out.error = self._out.error or str(e)
            return None

    def _commit(self, written: Sequence[WrittenBin]) -> None:
        made = [w.file.file_path for w in written if w.file is not None]
        sent: list[Attempt] = []
        done: Change[Compacted] | None = None
        kind, landing = SnapshotKind.COMPACT, self._session.landing.name
        record = SnapshotRecord(kind=kind, branch=self._branch, landing=landing, lane=LIVE)

        try:
            swapped = compact_table(
                self._session.tables,
                self._name,
                self._table.metadata.table_uuid,
                record=record,
                decide=lambda loaded: self._decided(loaded, written, made),
                staging=sent.append,
            )
            done = swapped.landed
        finally:
            # A request with an unknown outcome may still be applied, and it names these files.
            if done is not None or not sent:
                used = (*done.files, *done.rewrite.deletes) if done is not None and done.rewrite is not None else ()
                delete_unused(self._table.io, set(made) - {f.file_path for f in used})
        if done is not None and swapped.snapshot_id is not None:
            self._out.snapshots.append(swapped.snapshot_id)
            self._out.numbers += done.why

    def _decided(self, loaded: Table, written: Sequence[WrittenBin], made: list[str]) -> Change[Compacted] | None:
        """Return the bins that can replace their sources on this head."""
        head = self._heads.read(loaded, self._branch)
        kept = [(w, late) for w in written if (late := self._late(loaded, head, w)) is not None]
        self._out.given_up += len(written) - len(kept)
        if not kept and not self._settles:
            return None
        sources = [s for w, _ in kept for s in w.bin]
        removed = frozenset(s.path for s in sources)
        files = tuple(w.file for w, _ in kept if w.file is not None)
        deletes = []
        for w, late in kept:
            if w.file is not None and len(late):
                path = self._new_path(w.file)
                made.append(path)
                deletes.append(self._written_deletes(loaded, path, w.file, late))
        applied = {d.file_path for s in sources for d in head.deletes.of(head.entries[s.path])}
        stay = head.entries.keys() - removed
        over = frozenset(path for path in applied if stay.isdisjoint(self._positions.named_by(path)))
        over |= head.idle_deletes
        return Change(
            rewrite=Rewrite(removed=removed, removed_deletes=over, deletes=tuple(deletes), same_rows=True),
            files=files,
            why=Compacted(
                rows_in=sum(s.file.record_count for s in sources),
                rows_out=sum(f.record_count for f in files),
                dead_rows=sum(len(d) for w, _ in kept for d in w.dead.values()),
                moved_rows=sum(len(late) for _, late in kept),
                files_in=len(sources),
                files_out=len(files),
                deletes_in=len(over),
                deletes_out=len(deletes),
                bytes_in=sum(s.size for s in sources),
                bytes_out=sum(f.file_size_in_bytes for f in files),
            ),
        )

    def _late(self, loaded: Table, head: Head, written: WrittenBin) -> Numbers | None:
        """Return the positions in a bin's file that were deleted since; ``None``: the bin cannot be used."""
        specs, moved = loaded.metadata.specs(), [np.zeros(0, np.int64)]
        for source in written.bin:
            entry = head.entries.get(source.path)
            if entry is None or not head.can_be_rewritten(entry, specs):
                return None
            now, before = self._dead(loaded, head, entry), written.dead[source.path]
            if len(np.setdiff1d(before, now, assume_unique=True)):
                return None
            moved.append(written.moved(source.path, np.setdiff1d(now, before, assume_unique=True)))
        return np.sort(np.concatenate(moved))

    def _dead(self, table: Table, head: Head, entry: ManifestEntry) -> Numbers:
        return self._positions.of(table, entry.data_file, head.deletes.of(entry))

    def _new_path(self, of: DataFile) -> str:
        """Return a path for a new data file, in the partition's folder if the table has such folders."""
        fields = len(self._layout.spec.fields) if of.spec_id == self._layout.spec.spec_id else 0
        folder = self._layout.partitions.partition_of(tuple(of.partition[i] for i in range(fields))) if fields else None
        name = file_name(self._attempt, self._mark, next(self._numbers))
        return self._layout.locations.new_data_location(name, folder)

    def _written_deletes(self, table: Table, path: str, file: DataFile, positions: Numbers) -> DataFile:
        try:
            return write_deletes(table.io.new_output(path), file, positions)
        except OSError as e:
            raise StorageError(
                "LC7717", f"delete file {path} cannot be written ({trouble_of(table.io, e)}): check the storage"
            ) from None
