# SPDX-License-Identifier: Apache-2.0
"""Read a Parquet data file in blocks of bounded size, with its own columns and the deletes that apply.

Contract: columns keep the names, types and field ids of the file itself, whatever the table's schema is now. A block
has at most :data:`BLOCK_BYTES` of rows by the file's own sizes. ``live`` is true for each row that no position delete
names.

Failure story: an unreadable file is a :class:`StorageError`; a file that is not Parquet is a :class:`TableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table.name_mapping import NameMapping

from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import FIELD_ID
from airflow_provider_lakecommit.iceberg.storage import trouble_of

BLOCK_BYTES = 8 << 20
BLOCK_ROWS = 1 << 16
_BUFFER = 1 << 20
Numbers = np.ndarray[Any, Any]


class ParquetRows:
    """An open file."""

    def __init__(self, io: FileIO, path: str, stream: Any, mapping: NameMapping | None) -> None:
        self._io, self.path = io, path
        with _named(io, path):
            # Not the whole of a row group, which may be larger than the memory of this task.
            self._file = pq.ParquetFile(stream, buffer_size=_BUFFER, pre_buffer=False, coerce_int96_timestamp_unit="us")
        self.schema: pa.Schema = self._file.schema_arrow
        self._names = _names_by_id(self.schema, mapping)
        self._nameless = mapping is None and not self._names

    def name(self, field_id: int) -> str | None:
        """Return the name of a table's column in the file, if the file has it.

        :raises TableError: it is unknown which columns the file has
        """
        if self._nameless:
            raise TableError(
                "LC3338",
                f"file {self.path} states no field ids, and the table has no name mapping, so its columns are "
                "unknown: set the table property schema.name-mapping.default, or rewrite the file with another engine",
            )
        return self._names.get(field_id)

    def blocks(
        self, deleted: Numbers, columns: Sequence[str] | None = None, groups: Callable[[int], bool] = lambda _: True
    ) -> Iterator[tuple[pa.Table, Numbers]]:
        """Rows in their order, each block with which of them are not deleted.

        :param deleted: positions of deleted rows, sorted
        :param groups: decides which row groups are read
        """
        at, wanted, most = 0, None if columns is None else list(columns), self._block_rows()
        for group, many in enumerate(self.group_rows):
            begin, at = at, at + many
            if not groups(group):
                continue
            batches = self._file.iter_batches(batch_size=most, row_groups=[group], columns=wanted, use_threads=False)
            while True:
                with _named(self._io, self.path):
                    batch = next(batches, None)
                if batch is None:
                    break
                yield pa.Table.from_batches([batch]), live_of(deleted, begin, batch.num_rows)
                begin += batch.num_rows

    @property
    def group_rows(self) -> list[int]:
        """Return the number of rows of each row group."""
        footer = self._file.metadata
        return [footer.row_group(i).num_rows for i in range(footer.num_row_groups)]

    def group(self, number: int, columns: Sequence[str]) -> pa.Table:
        """Return some columns of one row group."""
        with _named(self._io, self.path):
            return self._file.read_row_group(number, list(columns), use_threads=False)

    def group_bounds(self, number: int, column: str) -> tuple[Any, Any] | None:
        """Return the least and the greatest value of a column in one row group, if the file states them."""
        group = self._file.metadata.row_group(number)
        every = (group.column(i) for i in range(group.num_columns))
        found = next((c.statistics for c in every if c.path_in_schema == column), None)
        return None if found is None or not found.has_min_max else (found.min, found.max)

    def _block_rows(self) -> int:
        footer = self._file.metadata
        size = sum(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups))
        return int(max(1, min(BLOCK_ROWS, BLOCK_BYTES * footer.num_rows // max(1, size))))


def one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column in one piece."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def live_of(deleted: Numbers, at: int, many: int) -> Numbers:
    """Return which of ``many`` rows from position ``at`` on no delete names.

    :param deleted: positions in the file, sorted
    """
    live = np.ones(many, bool)
    first, last = np.searchsorted(deleted, [at, at + many])
    live[deleted[first:last] - at] = False
    return live


@contextmanager
def opened(io: FileIO, path: str, mapping: NameMapping | None) -> Iterator[ParquetRows]:
    """A data file, to be read.

    :raises StorageError: it cannot be read
    :raises TableError: it is no Parquet file
    """
    with _named(io, path):
        stream = io.new_input(path).open(seekable=True)
    with stream:
        yield ParquetRows(io, path, stream, mapping)


@contextmanager
def _named(io: FileIO, path: str) -> Iterator[None]:
    """Convert read errors to errors with the file's name."""
    try:
        yield
    except OSError as e:
        raise StorageError("LC3329", f"file {path} cannot be read ({trouble_of(io, e)}): check the storage") from None
    except pa.ArrowException as e:
        raise TableError("LC3330", f"file {path} is not a readable Parquet file: {e}") from None


def positions_of(io: FileIO, path: str) -> dict[str, Numbers]:
    """Return the positions that a position delete file names, by data file."""
    found: dict[str, list[Numbers]] = {}
    with opened(io, path, None) as rows:
        for block, _ in rows.blocks(np.zeros(0, np.int64), ["file_path", "pos"]):
            paths = block.column("file_path").combine_chunks().dictionary_encode()
            codes, positions = paths.indices.to_numpy(), block.column("pos").to_numpy()
            for code, named in enumerate(paths.dictionary.to_pylist()):
                found.setdefault(named, []).append(positions[codes == code])
    return {named: np.concatenate(parts) for named, parts in found.items()}


def _names_by_id(schema: pa.Schema, mapping: NameMapping | None) -> dict[int, str]:
    """Return column names by the ids in the file; without ids, as in an imported file, by the table's name mapping."""
    ids = {int(f.metadata[FIELD_ID]): f.name for f in schema if f.metadata and FIELD_ID in f.metadata}
    if ids or mapping is None:
        return ids
    mapped = {name: field.field_id for field in mapping.root for name in field.names if field.field_id is not None}
    return {mapped[f.name]: f.name for f in schema if f.name in mapped}
