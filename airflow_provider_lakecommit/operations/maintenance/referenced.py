# SPDX-License-Identifier: Apache-2.0
"""The files that a table's metadata refers to, by any of its snapshots, on any branch or tag.

Contract: a file is identified by its name alone, however its folder is spelled; names have an id, so that two files of
one name are one file. A million files need sixteen megabytes: eight bytes for each name, and as much again while they
are sorted. Two names with the same eight bytes count as one, so that an unneeded file may be kept. Entries of deleted
files count as well: an older snapshot may have the file.

Failure story: an unreadable manifest is a :class:`CatalogError`, and nothing may be removed. If one is missing because
its snapshot was expired meanwhile, the metadata are read again.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import fastavro
import numpy as np
from fastavro.read import SchemaResolutionError
from pyiceberg.table.refs import SnapshotRefType

from airflow_provider_lakecommit.core import VERIFY
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError
from airflow_provider_lakecommit.iceberg import Tables, trouble_of

if TYPE_CHECKING:
    from uuid import UUID

    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

ATTEMPTS = 5
"""Reads of the metadata if manifests are missing."""
_PATH_ALONE: dict[str, Any] = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        {
            "name": "data_file",
            "type": {"type": "record", "name": "r2", "fields": [{"name": "file_path", "type": "string"}]},
        }
    ],
}


class ReferencedFiles:
    """The files of one table, by the last read of its metadata.

    :ivar metadata: the last read
    :raises CatalogError: the catalog or a manifest cannot be read
    """

    def __init__(self, tables: Tables, identifier: str, table: Table) -> None:
        self._tables, self._identifier = tables, identifier
        self._lists: set[str] = set()
        self._manifests: set[str] = set()
        self._hashes = array("q")
        self._sorted: np.ndarray[Any, np.dtype[np.int64]] | None = None
        self.metadata = table.metadata
        self._take(table)

    def refresh(self) -> None:
        """Read the metadata again, and new manifests."""
        self._take(self._load())

    def __contains__(self, name: object) -> bool:
        if self._sorted is None:
            self._sorted = np.sort(np.array(self._hashes, dtype=np.int64))
        digest = _hash(str(name))
        index = int(np.searchsorted(self._sorted, digest))
        return index < len(self._sorted) and int(self._sorted[index]) == digest

    @property
    def heads(self) -> frozenset[int | None]:
        """Return the possible parents of running commits: heads of branches, and ``None`` for one to a new branch."""
        refs = self.metadata.refs.values()
        return frozenset({None, *(r.snapshot_id for r in refs if r.snapshot_ref_type is SnapshotRefType.BRANCH)})

    def _load(self) -> Table:
        table = self._tables.load(self._identifier)
        before: UUID = self.metadata.table_uuid
        if table.metadata.table_uuid != before:
            raise LedgerError(
                "LC7701",
                f"{self._identifier} was table {before} at the start and is {table.metadata.table_uuid} now: it was "
                "recreated meanwhile. Nothing more is removed; run the command again",
            )
        return table

    def _take(self, table: Table) -> None:
        for attempt in range(ATTEMPTS):
            try:
                self._read(table.io, table.metadata)
            except FileNotFoundError as e:
                if attempt + 1 == ATTEMPTS:
                    raise self._unreadable(table, e) from None
                table = self._load()
                continue
            except Exception as e:  # any error of a corrupt manifest
                raise self._unreadable(table, e) from None
            self.metadata = table.metadata
            return

    def _unreadable(self, table: Table, error: Exception) -> CatalogError:
        what = trouble_of(table.io, error)
        return CatalogError(
            "LC7702",
            f"some manifests of {self._identifier} cannot be read ({what}), so it is unknown which files are "
            f"needed. Nothing more is removed; run `{VERIFY}` to find the cause",
        )

    def _read(self, io: FileIO, metadata: TableMetadata) -> None:
        for snapshot in metadata.snapshots:
            if snapshot.manifest_list in self._lists:
                continue
            for manifest in snapshot.manifests(io):
                if manifest.manifest_path not in self._manifests:
                    self._add((manifest.manifest_path, *_paths(io, manifest)))
                    self._manifests.add(manifest.manifest_path)
            self._add([snapshot.manifest_list])
            self._lists.add(snapshot.manifest_list)

    def _add(self, paths: Iterable[str]) -> None:
        self._sorted = None
        self._hashes.extend(_hash(path.rsplit("/", 1)[-1]) for path in paths)


def _paths(io: FileIO, manifest: ManifestFile) -> Iterator[str]:
    """Yield the paths of the files that a manifest lists, in any state."""
    try:
        with io.new_input(manifest.manifest_path).open(seekable=True) as stream:
            yield from _read_paths(cast(BinaryIO, stream), _PATH_ALONE)
    except SchemaResolutionError:
        # Another writer has other names for its records.
        with io.new_input(manifest.manifest_path).open(seekable=True) as stream:
            yield from _read_paths(cast(BinaryIO, stream), None)


def _read_paths(stream: BinaryIO, schema: dict[str, Any] | None) -> Iterator[str]:
    for entry in fastavro.reader(stream, reader_schema=schema):
        yield cast(dict[str, Any], entry)["data_file"]["file_path"]


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), signed=True)
