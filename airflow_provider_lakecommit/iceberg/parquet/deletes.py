# SPDX-License-Identifier: Apache-2.0
"""Which rows of a head's data files are deleted by delete files, and position delete files of our own.

Contract: position delete files that apply to the requested data files are read once each. Equality deletes are handed
on; the rows that they match are not looked up. A delete file that :func:`write_deletes` writes is for one data file, in
format version 2: by the equal bounds of its paths other engines know the file.

Failure story: position deletes in another format than Parquet are a :class:`TableError` with the remedy.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import OutputFile
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.data_files import is_data
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import FIELD_ID
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, positions_of

_NONE_DELETED = np.zeros(0, np.int64)
_PATH_ID, _POSITION_ID = 2147483546, 2147483545
"""Field ids that Iceberg reserves for the columns of position delete files."""
_SCHEMA = pa.schema(
    pa.field(name, kind, nullable=False, metadata={FIELD_ID: str(field_id)})
    for name, kind, field_id in (("file_path", pa.string(), _PATH_ID), ("pos", pa.int64(), _POSITION_ID))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletes:
    """The delete files of a head. ``files`` are those with positions; ``fixed`` ones stay, as the manifests that list
    them are never rewritten.
    """

    positions: DeleteFileIndex
    equality: tuple[ManifestEntry, ...]
    files: tuple[DataFile, ...] = ()
    fixed: frozenset[str] = frozenset()

    def of(self, entry: ManifestEntry) -> Collection[DataFile]:
        """The position delete files that apply to a data file."""
        file = entry.data_file
        return self.positions.for_data_file(entry.sequence_number or 0, file, partition_key=file.partition)

    def equality_of(self, entry: ManifestEntry, specs: Mapping[int, PartitionSpec]) -> DataFile | None:
        """Return an equality delete file that applies to a data file, if one does."""
        file = entry.data_file
        for other in self.equality:
            delete = other.data_file
            everywhere = not specs[delete.spec_id].fields
            same = delete.spec_id == file.spec_id and delete.partition == file.partition
            if (other.sequence_number or 0) > (entry.sequence_number or 0) and (everywhere or same):
                return delete
        return None


class DeletePositions:
    """The positions in position delete files; each file is read once."""

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
        return sorted_once(parts)

    def named_by(self, path: str) -> Collection[str]:
        """Return the data files that a delete file names, if it was read."""
        return self._positions.get(path, {})


def sorted_once(parts: Sequence[Numbers]) -> Numbers:
    """Return positions of several lists, sorted, each once; ``numpy.unique`` would hash what is mostly sorted."""
    found: Numbers = np.sort(np.concatenate([_NONE_DELETED, *parts]), kind="stable")
    return found[np.diff(found, prepend=-1) > 0]


def deletes_of(table: Table, manifests: Collection[ManifestFile], listed: Iterable[ManifestEntry] = ()) -> Deletes:
    """Return the delete files of a head, by its manifests.

    :param listed: entries of its data manifests: some writers list equality deletes there
    """
    positions, equality, files = DeleteFileIndex(), list[ManifestEntry](), list[DataFile]()
    fixed = {e.data_file.file_path: e for e in listed if not is_data(e.data_file)}
    movable = list[ManifestEntry]()
    of_deletes = (m for m in manifests if m.content == ManifestContent.DELETES)
    for some in (m.fetch_manifest_entry(table.io, discard_deleted=True) for m in of_deletes):
        if any(e.data_file.equality_ids for e in some):
            fixed |= {e.data_file.file_path: e for e in some}
        else:
            movable += some
    for entry in (*fixed.values(), *movable):
        if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
            equality.append(entry)
        else:
            positions.add_delete_file(entry, partition_key=entry.data_file.partition)
            files.append(entry.data_file)
    return Deletes(positions=positions, equality=tuple(equality), files=tuple(files), fixed=frozenset(fixed))


def write_deletes(output: OutputFile, of: DataFile, positions: Numbers) -> DataFile:
    """Write the delete file of one data file and return its manifest entry.

    :param positions: of the deleted rows, sorted, each once, at least one
    :raises OSError: the storage cannot be written
    """
    paths = pa.DictionaryArray.from_arrays(np.zeros(len(positions), np.int32), [of.file_path]).cast(pa.string())
    with output.create(overwrite=False) as stream:
        with pq.ParquetWriter(
            cast(Any, stream),
            _SCHEMA,
            compression="zstd",
            use_dictionary=["file_path"],
            column_encoding={"pos": "DELTA_BINARY_PACKED"},
            store_schema=False,
        ) as writer:
            writer.write_table(pa.table([paths, positions], schema=_SCHEMA))
        size = int(stream.tell())
    path = of.file_path.encode()
    file = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=output.location,
        file_format=FileFormat.PARQUET,
        partition=of.partition,
        record_count=len(positions),
        file_size_in_bytes=size,
        column_sizes={},
        value_counts={_PATH_ID: len(positions), _POSITION_ID: len(positions)},
        null_value_counts={_PATH_ID: 0, _POSITION_ID: 0},
        nan_value_counts={},
        lower_bounds={_PATH_ID: path, _POSITION_ID: struct.pack("<q", positions[0])},
        upper_bounds={_PATH_ID: path, _POSITION_ID: struct.pack("<q", positions[-1])},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = of.spec_id
    return file
