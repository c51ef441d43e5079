# SPDX-License-Identifier: Apache-2.0
"""Which rows of a head's data files are deleted by delete files of other engines.

Contract: reads the manifests of deletes, and the position delete files that apply to the files that are asked for, each
once; writes nothing. Equality deletes are handed on: what they match is not looked up.

Failure story: position deletes in another format than Parquet are a :class:`TableError` with the remedy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, positions_of

__all__ = ["DeletePositions", "Deletes", "deletes_of"]

_NONE_DELETED = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """What deletes rows of a head."""

    positions: DeleteFileIndex
    equality: tuple[ManifestEntry, ...]

    def of(self, entry: ManifestEntry) -> Collection[DataFile]:
        """The position delete files that apply to a data file."""
        file = entry.data_file
        return self.positions.for_data_file(entry.sequence_number or 0, file, partition_key=file.partition)


class DeletePositions:
    """What position delete files name; each is read once."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._positions: dict[str, dict[str, Numbers]] = {}

    def of(self, table: Table, file: DataFile, applied: Collection[DataFile]) -> Numbers:
        """Positions in a data file, sorted, each once.

        :raises TableError: a delete file cannot be read
        :raises StorageError: the storage cannot be read
        """
        parts = []
        for delete in applied:
            path = delete.file_path
            if delete.file_format != FileFormat.PARQUET:
                raise TableError(
                    "LC3317",
                    f"{self._table}: {path}, which deletes rows of {file.file_path}, is {delete.file_format.value}: "
                    "only position deletes in Parquet are read; have the engine that wrote it rewrite its data files",
                )
            if path not in self._positions:
                self._positions[path] = positions_of(table.io, path)
            parts.append(self._positions[path].get(file.file_path, _NONE_DELETED))
        return np.unique(np.concatenate(parts)) if parts else _NONE_DELETED


def deletes_of(table: Table, manifests: Collection[ManifestFile]) -> Deletes:
    """By the manifests of a head."""
    positions, equality = DeleteFileIndex(), []
    for entry in _delete_entries(table, manifests):
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            equality.append(entry)
        else:
            positions.add_delete_file(entry, partition_key=entry.data_file.partition)
    return Deletes(positions=positions, equality=tuple(equality))


def _delete_entries(table: Table, manifests: Collection[ManifestFile]) -> Iterator[ManifestEntry]:
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            yield from manifest.fetch_manifest_entry(table.io, discard_deleted=True)
