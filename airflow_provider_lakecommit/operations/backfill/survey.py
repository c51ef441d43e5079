# SPDX-License-Identifier: Apache-2.0
"""Survey a table's head: which data files have rows of some ranges, and how many, to drop or rewrite them.

Contract: reads manifests, statistics, and, if statistics are not enough, the identifying columns of files; writes
nothing. Files of a landing's append are of that append's ranges: others are not read, however wide the statistics of a
file of many partitions are. The result for a file is kept, so that a new survey after a commit reads only new files.
Rows that position deletes removed are counted separately.

Failure story: what cannot be answered correctly is refused by name, before anything is written: a file with equality
deletes, a deletion vector, a file that is not Parquet and would have to be read, and an encrypted file.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pyiceberg.manifest import DataFile, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import SUPPORTED_TABLE_FORMAT_VERSION

from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg import (
    DeletePositions,
    Deletes,
    Numbers,
    deletes_of,
    is_data,
    opened,
    trouble_of,
)
from airflow_provider_lakecommit.operations.backfill.ranges import FileShare, RowRanges


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A data file with rows of the ranges: the number of ``rows``, and of ``live`` ones. ``deletes`` are the position
    delete files that apply to it, and ``deleted`` their positions, sorted.
    """

    file: DataFile
    rows: int
    live: int
    deletes: tuple[str, ...]
    deleted: Numbers

    @property
    def whole(self) -> bool:
        """Return True if it has no other rows."""
        return self.rows == self.live

    @property
    def key(self) -> tuple[str, ...]:
        return self.file.file_path, *self.deletes


class Survey:
    """Scans one table whenever its head changes.

    :param others: snapshots by which landings appended rows of other ranges, and nothing else
    """

    def __init__(self, name: str, ranges: RowRanges, others: Collection[int] = ()) -> None:
        self._name, self._ranges, self._others = name, ranges, frozenset(others)
        self._listed: dict[str, list[ManifestEntry]] = {}
        self._found: dict[tuple[str, ...], FoundFile] = {}
        self._positions = DeletePositions(name)

    def scan(self, table: Table, branch: str) -> tuple[FoundFile, ...]:
        """Return the files of the branch's head that have rows of the ranges."""
        if table.format_version > SUPPORTED_TABLE_FORMAT_VERSION:
            raise TableError(
                "LC7232",
                f"table {self._name} has format version {table.format_version}: rows can be replaced in tables of "
                f"versions up to {SUPPORTED_TABLE_FORMAT_VERSION}, which pyiceberg can write",
            )
        head = table.metadata.snapshot_by_name(branch)
        try:
            manifests = [] if head is None else head.manifests(table.io)
            listed = [e for m in manifests if m.content == ManifestContent.DATA for e in self._entries(table, m)]
            deletes = deletes_of(table, manifests, listed)
        except OSError as e:
            raise StorageError(
                "LC7233", f"the manifests of {self._name} cannot be read ({trouble_of(table.io, e)}): check the storage"
            ) from None
        found = (self._find(table, e, deletes) for e in listed if is_data(e.data_file))
        return tuple(one for one in found if one.rows)

    def _entries(self, table: Table, manifest: ManifestFile) -> list[ManifestEntry]:
        """Return the entries of a manifest that may have rows of the ranges, or delete rows."""
        if manifest.manifest_path not in self._listed:
            self._listed[manifest.manifest_path] = [
                e
                for e in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                if not is_data(e.data_file)
                or (e.snapshot_id not in self._others and self._ranges.of_file(e.data_file) is not FileShare.NONE)
            ]
        return self._listed[manifest.manifest_path]

    def _find(self, table: Table, entry: ManifestEntry, deletes: Deletes) -> FoundFile:
        file = entry.data_file
        applied = deletes.of(entry)
        key = file.file_path, *sorted(f.file_path for f in applied)
        if key not in self._found:
            self._found[key] = self._counted(table, entry, key, applied)
        found = self._found[key]
        if found.rows and (delete := deletes.equality_of(entry, table.metadata.specs())) is not None:
            raise TableError(
                "LC7234",
                f"{self._name}: file {file.file_path} has rows of the ranges, and equality deletes of another engine "
                f"({delete.file_path}) apply to it: rewrite the data files with that engine, then try again",
            )
        return found

    def _counted(
        self, table: Table, entry: ManifestEntry, key: tuple[str, ...], applied: Collection[DataFile]
    ) -> FoundFile:
        file, deleted = entry.data_file, self._positions.of(table, entry.data_file, applied)
        share = self._ranges.of_file(file)
        if share is FileShare.ALL:
            rows = live = file.record_count - len(deleted)
        else:
            rows, live = self._read(table, entry, deleted)
        return FoundFile(file=file, rows=rows, live=live, deletes=key[1:], deleted=deleted)

    def _read(self, table: Table, entry: ManifestEntry, deleted: Numbers) -> tuple[int, int]:
        """Return how many rows of a file are of the ranges, and how many it has."""
        file, found = entry.data_file, 0
        if file.file_format != FileFormat.PARQUET or file.key_metadata:
            what = "is encrypted" if file.key_metadata else f"is {file.file_format.value}"
            raise TableError(
                "LC7235",
                f"{self._name}: file {file.file_path} may have rows of the ranges, and {what}: only plain Parquet "
                "can be read, so rewrite the file as Parquet with another engine",
            )
        with opened(table.io, file.file_path, table.metadata.name_mapping()) as rows:
            names = [name for column in self._ranges.columns if (name := rows.name(column)) is not None]
            if len(names) == len(self._ranges.columns):
                for block, live in rows.blocks(deleted, names):
                    columns = (block.column(name).combine_chunks() for name in names)
                    found += int((self._ranges.of_rows(*columns) & live).sum())
        return found, file.record_count - len(deleted)
