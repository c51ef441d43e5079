# SPDX-License-Identifier: Apache-2.0
"""Rows of a table to Parquet data files, fanned out by the table's partition spec.

Contract: a :class:`FanoutWriter` needs no catalog: schema, spec, location and properties came with the plan. The files
obey the table's ``write.*`` properties (codec, level, row group, dictionary and target file size, metrics modes,
location provider); our own values stand in only where the table sets none. Statistics are pyiceberg's own, read from
the footer. Rows keep their order within a file.

Memory is bounded over all partitions together: rows wait per partition until they make a good row group; when all that
waits is too much, the biggest partitions are written. Open files are bounded too: the one that was not written to for
longest is closed, and its partition goes on in a further file. A file is closed when it has reached the target size.

Failure story: file names hold the attempt's random UUID and are created exclusively, so no attempt touches another's
files. :meth:`abort` deletes what this writer made; it is called for an attempt that will not be reported.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO, InputFile, OutputFile, OutputStream
from pyiceberg.io.fileformat import FileFormatFactory, FileFormatWriter
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionFieldValue, PartitionKey, PartitionSpec
from pyiceberg.schema import Schema, sanitize_column_names
from pyiceberg.table import TableProperties
from pyiceberg.table.locations import load_location_provider
from pyiceberg.typedef import Record

from airflow_provider_lakecommit.core.model import TableTarget
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.spark.arrow_types import arrow_schema, relabel
from airflow_provider_lakecommit.spark.partitions import split

__all__ = ["FanoutWriter"]

log = logging.getLogger(__name__)

MIB = 1 << 20
BUFFER_BYTES = 128 * MIB
SPLIT_BYTES = 24 * MIB
ROW_GROUP_BYTES = 64 * MIB
OPEN_FILES = 64
DEFAULTS = {
    # A big dictionary of mostly different values is waste: smaller files in less time than with pyiceberg's defaults.
    TableProperties.PARQUET_DICT_SIZE_BYTES: "65536",
    TableProperties.PARQUET_COMPRESSION_LEVEL: "3",
}
_NOT_FOR_ARROW = (TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, "write.parquet.bloom-filter-")
_LEVELLED = ("zstd", "gzip", "brotli")

Key = tuple[Any, ...]


@dataclass(slots=True)
class _Waiting:
    """Rows of one partition that wait for a file."""

    pieces: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, piece: pa.Table) -> None:
        self.pieces.append(piece)
        self.rows += piece.num_rows
        self.bytes += piece.nbytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """A file being written."""

    output: _NewFile
    key: PartitionKey | None
    writer: FileFormatWriter


class _NewFile(OutputFile):
    """An output file that is never overwritten, and knows its size while it is written."""

    def __init__(self, inner: OutputFile) -> None:
        super().__init__(inner.location)
        self._inner = inner
        self._stream: OutputStream | None = None

    def __len__(self) -> int:
        return len(self._inner)

    def exists(self) -> bool:
        return self._inner.exists()

    def to_input_file(self) -> InputFile:
        return self._inner.to_input_file()

    def create(self, overwrite: bool = False) -> OutputStream:
        self._stream = self._inner.create(overwrite=False)
        return self._stream

    @property
    def written(self) -> int:
        return int(self._stream.tell()) if self._stream is not None else 0


class FanoutWriter:
    """Writes the rows of one slice to one table.

    :raises TableError: the table wants another file format than Parquet
    """

    def __init__(
        self,
        target: TableTarget,
        io: FileIO,
        attempt: UUID,
        *,
        buffer_bytes: int = BUFFER_BYTES,
        open_files: int = OPEN_FILES,
    ) -> None:
        wanted = target.properties.get(TableProperties.WRITE_FILE_FORMAT, "parquet")
        if wanted.lower() != "parquet":
            raise TableError(f"{target.table} has write.format.default={wanted}: only parquet is written; set it so")
        self._table = target.table
        self._io = io
        self._attempt = attempt
        self._schema = Schema.model_validate_json(target.schema)
        self._spec = PartitionSpec.model_validate_json(target.spec)
        self._file_schema = sanitize_column_names(self._schema)
        self._arrow = arrow_schema(self._file_schema)
        self._properties = _properties(target)
        self._locations = load_location_provider(target.location, self._properties)
        self._model = FileFormatFactory.get(FileFormat.PARQUET)
        self._file_bytes = _whole(self._properties, TableProperties.WRITE_TARGET_FILE_SIZE_BYTES, 512 * MIB)
        self._group_rows = _whole(self._properties, TableProperties.PARQUET_ROW_GROUP_LIMIT, 1 << 20)
        group_bytes = _whole(target.properties, TableProperties.PARQUET_ROW_GROUP_SIZE_BYTES, ROW_GROUP_BYTES)
        self._group_bytes = max(1, min(ROW_GROUP_BYTES, group_bytes, self._file_bytes, buffer_bytes))
        self._buffer_bytes = buffer_bytes
        self._open_files = open_files
        self._unsplit = _Waiting()
        self._waiting: dict[Key, _Waiting] = {}
        self._held = 0
        self._open: dict[Key, _Open] = {}
        self._done: list[DataFile] = []
        self._made: list[str] = []
        self._numbers = count()

    def write(self, table: pa.Table) -> None:
        """Take rows in the schema of the table."""
        if table.column_names != [f.name for f in self._schema.fields]:
            raise TableError(
                f"{self._table} has the columns {self._schema.column_names}, the rows {table.column_names}"
            )
        if not table.num_rows:
            return
        self._unsplit.add(table)
        if self._unsplit.bytes >= min(SPLIT_BYTES, self._group_bytes):
            self._split()

    @property
    def held_bytes(self) -> int:
        """Bytes of the rows that wait for a file."""
        return self._held + self._unsplit.bytes

    def close(self) -> list[DataFile]:
        """Write all that waits and finish all files."""
        self._split()
        for key in list(self._waiting):
            self._flush(key)
            self._finish(key)
        for key in list(self._open):
            self._finish(key)
        return self._done

    def abort(self) -> None:
        """Delete every file of this writer. What cannot be deleted is logged: no table holds it."""
        for opened in self._open.values():
            with suppress(Exception):
                opened.writer.close()
        self._open.clear()
        self._waiting.clear()
        for path in self._made:
            try:
                self._io.delete(path)
            except FileNotFoundError:
                continue
            except Exception as e:
                log.warning("file %s of a given up attempt could not be deleted (%s); it is in no table", path, e)

    def _split(self) -> None:
        """Deal the rows out to their partitions."""
        if not self._unsplit.rows:
            return
        table = pa.concat_tables(self._unsplit.pieces)
        self._unsplit = _Waiting()
        self._held += table.nbytes
        for key, rows in split(table, self._spec, self._schema):
            waiting = self._waiting.setdefault(key, _Waiting())
            waiting.add(rows)
            if waiting.rows >= self._group_rows or waiting.bytes >= self._group_bytes:
                self._flush(key)
        if self._held > self._buffer_bytes:
            self._relieve()

    def _relieve(self) -> None:
        """Write the biggest partitions; copy what stays, or it keeps the memory of all it was dealt out with."""
        left = sum(w.bytes for w in self._waiting.values())
        for key in sorted(self._waiting, key=lambda k: self._waiting[k].bytes, reverse=True):
            if left <= self._buffer_bytes // 2:
                break
            left -= self._waiting[key].bytes
            self._flush(key)
        for key, waiting in self._waiting.items():
            table = pa.concat_tables(waiting.pieces)
            self._waiting[key] = _Waiting()
            self._waiting[key].add(table.take(np.arange(table.num_rows)))
        self._held = sum(w.bytes for w in self._waiting.values())

    def _flush(self, key: Key) -> None:
        """Write what waits for a partition, in bounded row groups; close its file when that is big enough."""
        waiting = self._waiting.pop(key)
        for rows in self._row_groups(waiting):
            opened = self._open.pop(key, None) or self._create(key)
            self._open[key] = opened
            opened.writer.write(rows)
            if opened.output.written >= self._file_bytes:
                self._finish(key)

    def _row_groups(self, waiting: _Waiting) -> Iterator[pa.Table]:
        table = pa.concat_tables(waiting.pieces)
        if not table.schema.equals(self._arrow, check_metadata=True):
            columns = [relabel(_whole_copy(c), f.type) for c, f in zip(table.columns, self._arrow, strict=True)]
            table = pa.Table.from_arrays(columns, schema=self._arrow)
        step = max(1, min(self._group_rows, waiting.rows * self._group_bytes // max(waiting.bytes, 1)))
        for at in range(0, table.num_rows, step):
            yield table.slice(at, step)

    def _create(self, key: Key) -> _Open:
        if len(self._open) >= self._open_files:
            self._finish(next(iter(self._open)))
        values = [PartitionFieldValue(f, v) for f, v in zip(self._spec.fields, key, strict=True)]
        partition = PartitionKey(values, self._spec, self._schema) if values else None
        path = self._locations.new_data_location(f"{self._attempt}-{next(self._numbers):05d}.parquet", partition)
        output = _NewFile(self._io.new_output(path))
        self._made.append(path)
        writer = self._model.create_writer(output, self._file_schema, self._properties)
        return _Open(output=output, key=partition, writer=writer)

    def _finish(self, key: Key) -> None:
        opened = self._open.pop(key, None)
        if opened is None:
            return
        statistics = opened.writer.close()
        file = DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=opened.output.location,
            file_format=FileFormat.PARQUET,
            partition=opened.key.partition if opened.key else Record(),
            file_size_in_bytes=len(opened.output),
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )
        file.spec_id = self._spec.spec_id
        self._done.append(file)


def _whole_copy(column: pa.ChunkedArray) -> pa.Array:
    """The column as one array that starts at its buffers' start."""
    return column.take(np.arange(len(column))).combine_chunks()


def _properties(target: TableTarget) -> dict[str, str]:
    properties = {**DEFAULTS, **target.properties}
    for name in [n for n in properties if n.startswith(_NOT_FOR_ARROW)]:
        # Arrow's writer has no such options and would warn for every file; the size of row groups is kept to here.
        del properties[name]
    codec = properties.get(TableProperties.PARQUET_COMPRESSION, TableProperties.PARQUET_COMPRESSION_DEFAULT)
    if codec.lower() not in _LEVELLED and TableProperties.PARQUET_COMPRESSION_LEVEL not in target.properties:
        # Our level is for codecs that have levels: Parquet refuses one for the others.
        del properties[TableProperties.PARQUET_COMPRESSION_LEVEL]
    return properties


def _whole(properties: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(properties.get(name, default))
    except ValueError as e:
        raise TableError(f"table property {name}={properties[name]!r} is not a whole number; correct it") from e
