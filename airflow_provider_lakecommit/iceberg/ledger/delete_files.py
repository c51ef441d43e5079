# SPDX-License-Identifier: Apache-2.0
"""Delete rows of data files by position: one delete file per data file, which each call replaces by a longer one.

Contract: after a rewrite, a data file has at most one delete file that names no other data file, and its rows are in no
other delete file. So live rows are `total-records` less `total-position-deletes`. A data file without a live row is
removed.

Failure story: a delete file of a lost attempt is reused if it still fits; otherwise a sweep removes it, by the mark in
its name.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from uuid import uuid4

import numpy as np
from pyiceberg.manifest import DataFile, FileFormat
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import REWRITE, file_mark, file_name
from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg.guarded_catalog import own_locations
from airflow_provider_lakecommit.iceberg.ledger.head import Head
from airflow_provider_lakecommit.iceberg.ledger.overwrite import Rewrite
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import DELETED, LOOKED_UP, SUPERSEDED
from airflow_provider_lakecommit.iceberg.parquet.deletes import DeletePositions, sorted_once, write_deletes
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers
from airflow_provider_lakecommit.iceberg.storage import trouble_of

THREADS = min(8, os.cpu_count() or 1)
"""Each has the key columns of one row group in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Superseded:
    """The rows to delete: ``superseded`` by a newer one, and ``deleted`` by the source; ``rewrite`` has the files for
    it, ``None`` if no row is affected. ``undecided`` counts the keys whose newest row is unknown.
    """

    rewrite: Rewrite | None
    superseded: int
    deleted: int
    files_read: int
    rows_read: int
    undecided: int = 0

    @property
    def extra(self) -> dict[str, str]:
        """Return it for the summary of its snapshot."""
        return {
            SUPERSEDED: str(self.superseded),
            DELETED: str(self.deleted),
            LOOKED_UP: f"{self.rows_read} {self.files_read}",
        }


def require_known_rows(head: Head, table: Table, name: str) -> None:
    """:raises TableError: an equality delete applies to a data file of the head"""
    specs = table.metadata.specs()
    if head.deletes.equality and any(head.deletes.equality_of(e, specs) for e in head.entries.values()):
        raise TableError(
            "LC3052",
            f"{name} has equality deletes, which hide its live rows: have the engine that wrote them rewrite the data "
            "files",
        )


def require_parquet(file: DataFile, table: str) -> None:
    """:raises TableError: a data file has another format"""
    if file.file_format != FileFormat.PARQUET:
        raise TableError(
            "LC3053",
            f"{table}: file {file.file_path} is {file.file_format.value}: only Parquet is searched for keys; rewrite "
            "it with another engine",
        )


class DeleteFiles:
    """Writes the delete files of one operation of a landing on one table, over all heads that it meets."""

    def __init__(self, name: str, landing: str) -> None:
        self.positions = DeletePositions(name)
        self._landing = landing
        self._written: dict[str, tuple[Numbers, DataFile]] = {}
        self._attempt, self._numbers = uuid4(), count()

    def rewrite(
        self, table: Table, head: Head, rows: Mapping[str, Numbers], added: Sequence[tuple[DataFile, Numbers]] = ()
    ) -> Rewrite | None:
        """Return the change of a head that deletes rows; ``None``: no rows to delete.

        :param rows: live rows to delete, as sorted positions by the path of their data file
        :param added: likewise, of files that the same snapshot adds
        :raises StorageError: a file cannot be read or written
        """
        if not rows and not added:
            return None
        removed, replaced, due = set[str](), set[str](), list[tuple[DataFile, Numbers]]()
        for path, some in rows.items():
            entry = head.entries[path]
            applied = head.deletes.of(entry)
            movable = (d for d in applied if d.file_path not in head.deletes.fixed)
            own = [d for d in movable if set(self.positions.named_by(d.file_path)) == {path}]
            others = [d for d in applied if d not in own]
            every = sorted_once([self.positions.of(table, entry.data_file, own), some])
            replaced.update(d.file_path for d in own)
            if len(every) == entry.data_file.record_count and not others:
                removed.add(path)
                continue
            if others:
                # Rows in another engine's delete file count there.
                every = np.setdiff1d(every, self.positions.of(table, entry.data_file, others), assume_unique=True)
            due.append((entry.data_file, every))
        due += added
        mark = file_mark(table.metadata.table_uuid, self._landing, REWRITE)
        with ThreadPoolExecutor(THREADS) as pool:
            deletes = tuple(pool.map(lambda one: self._delete_file(table, mark, *one), due))
        return Rewrite(removed=frozenset(removed), removed_deletes=frozenset(replaced), deletes=deletes)

    def _delete_file(self, table: Table, mark: str, file: DataFile, rows: Numbers) -> DataFile:
        before = self._written.get(file.file_path)
        if before is not None and np.array_equal(before[0], rows):
            return before[1]
        path = own_locations(table).new_data_location(file_name(self._attempt, mark, next(self._numbers)))
        try:
            made = write_deletes(table.io.new_output(path), file, rows)
        except OSError as e:
            raise StorageError(
                "LC3054", f"delete file {path} cannot be written ({trouble_of(table.io, e)}): check the storage"
            ) from None
        self._written[file.file_path] = (rows, made)
        return made
