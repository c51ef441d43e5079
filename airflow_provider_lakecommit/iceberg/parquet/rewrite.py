# SPDX-License-Identifier: Apache-2.0
"""Rows of data files written to another data file: in the columns of the table, row group by row group.

Contract: at most one row group and one block of rows are in memory. A file exists only once a row was added. A column
that a file lacks has the value of the file's partition if the partition is by that column, as in imported files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.exceptions import ResolveError
from pyiceberg.io import OutputFile
from pyiceberg.io.pyarrow import pyarrow_to_schema
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema, promote
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_field
from airflow_provider_lakecommit.iceberg.parquet.parquet import FileFormat, OpenFile
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, ParquetRows, one_array, opened
from airflow_provider_lakecommit.iceberg.parquet.statistics import Metrics

_log = logging.getLogger(__name__)


class GroupedFile:
    """A data file while it is written, in row groups of the table's size.

    :param schema: of the rows in the file
    """

    def __init__(
        self, output: OutputFile, layout: FileFormat, metrics: Metrics, schema: pa.Schema, partition: Record
    ) -> None:
        self._output, self._layout, self._metrics, self._schema = output, layout, metrics, schema
        self._partition = partition
        self._waiting: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._file: OpenFile | None = None

    def add(self, rows: pa.Table) -> None:
        """Append rows whose columns can be cast to those of the file."""
        if not rows.num_rows:
            return
        # Files of other writers may state 64-bit offsets, which one block never needs.
        self._waiting.append(rows.cast(self._schema))
        self._rows += rows.num_rows
        self._bytes += self._waiting[-1].nbytes
        if self._rows >= self._layout.group_rows or self._bytes >= self._layout.group_bytes:
            self._flush()

    def close(self, spec_id: int, sort_order_id: int | None) -> DataFile | None:
        """Finish the file and return its manifest entry; ``None`` if no row was added."""
        if self._waiting:
            self._flush()
        return None if self._file is None else self._file.close(spec_id, sort_order_id)

    def give_up(self) -> None:
        """Close the file, whatever is in it; best effort."""
        if self._file is not None:
            try:
                self._file.give_up()
            except Exception as e:
                _log.debug("could not close an abandoned file: %s", e)

    def _flush(self) -> None:
        group = pa.concat_tables(self._waiting)
        self._waiting, self._rows, self._bytes = [], 0, 0
        for at in range(0, group.num_rows, self._layout.group_rows):
            part = group.slice(at, self._layout.group_rows)
            if self._file is None:
                self._file = OpenFile(self._output, self._layout, self._metrics, part, self._partition)
            else:
                self._file.write(part)


def _in_schema(block: pa.Table, physical: Schema, schema: Schema, constants: Mapping[int, Any]) -> pa.Table:
    """Return rows of a file in the columns of a schema, matched by field id; missing ones are null."""
    there = {f.field_id: (f, one_array(block.column(f.name))) for f in physical.fields}
    columns = [
        repeated(constants[f.field_id], arrow_field(f).type, block.num_rows)
        if f.field_id not in there and f.field_id in constants
        else _column(there.get(f.field_id), f, block.num_rows)
        for f in schema.fields
    ]
    return pa.table(columns, names=[f.name for f in schema.fields])


def _column(there: tuple[NestedField, pa.Array] | None, target: NestedField, rows: int) -> pa.Array:
    """Return a field of a file, or nulls, as a field of the schema."""
    if there is not None:
        return _projected(there[1], there[0].field_type, target.field_type)
    if target.required:
        raise ValueError(f"required column {target.name} is missing")
    return pa.nulls(rows, arrow_field(target).type)


def _projected(values: pa.Array, have: IcebergType, want: IcebergType) -> pa.Array:
    """Return values of one type as values of another one. pyiceberg's own projection makes a null list an empty one."""
    if have == want:
        return values
    if isinstance(have, StructType) and isinstance(want, StructType):
        there = {f.field_id: (f, child) for f, child in zip(have.fields, values.flatten(), strict=True)}
        children = [_column(there.get(f.field_id), f, len(values)) for f in want.fields]
        fields = [pa.field(f.name, c.type, not f.required) for f, c in zip(want.fields, children, strict=True)]
        return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
    if values.offset:
        values = pa.concat_arrays([values])
    if isinstance(have, ListType) and isinstance(want, ListType):
        if not pa.types.is_list(values.type):
            values = values.cast(pa.list_(values.type.value_field))
        inner = _projected(values.values, have.element_type, want.element_type)
        return pa.ListArray.from_arrays(values.offsets, inner, mask=values.is_null())
    if isinstance(have, MapType) and isinstance(want, MapType):
        keys = _projected(values.keys, have.key_type, want.key_type)
        items = _projected(values.items, have.value_type, want.value_type)
        return pa.MapArray.from_arrays(values.offsets, keys, items, mask=values.is_null())
    promote(have, want)
    return values.cast(arrow_field(NestedField(1, "promoted", want)).type)


def partition_constants(table: Table, file: DataFile) -> Mapping[int, Any]:
    """Return the values that a file's partition states for all its rows, by the ids of their columns."""
    fields = enumerate(table.specs()[file.spec_id].fields)
    stated = ((f.source_id, file.partition[at]) for at, f in fields if isinstance(f.transform, IdentityTransform))
    return {field_id: value for field_id, value in stated if value is not None}


def repeated(value: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Return a value of a partition as a column."""
    stored = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    values = pa.repeat(pa.array([value.bytes if isinstance(value, UUID) else value], stored)[0], rows)
    return values if stored is kind else pa.ExtensionArray.from_storage(kind, values)


def live_blocks(
    table: Table,
    file: DataFile,
    dead: Numbers,
    schema: Schema,
    arrow: pa.Schema,
    groups: Callable[[ParquetRows, int], bool] = lambda *_: True,
) -> Iterator[pa.Table]:
    """Yield the rows of a data file that are not deleted, in the columns of a schema.

    :param dead: positions of deleted rows, sorted
    :param schema: of the rows, with the column names of files
    :param arrow: the same for Arrow: for files that have it, columns are not compared
    :param groups: decides which row groups are read
    :raises StorageError: the file cannot be read
    :raises TableError: it cannot be read in these columns
    """
    with opened(table.io, file.file_path, table.metadata.name_mapping()) as rows:
        physical = schema
        if not rows.schema.equals(arrow, check_metadata=True):
            physical = physical_schema(table, file.file_path, rows)
        same, constants = physical.as_struct() == schema.as_struct(), partition_constants(table, file)
        for block, live in rows.blocks(dead, groups=partial(groups, rows)):
            found = block if live.all() else block.filter(pa.array(live))
            try:
                if not same:
                    # Without live rows, too: all blocks have these columns.
                    found = _in_schema(found, physical, schema, constants) if found.num_rows else arrow.empty_table()
            except (ValueError, TypeError, KeyError, ResolveError, NotImplementedError, pa.ArrowException) as e:
                raise TableError(
                    "LC3363",
                    f"file {file.file_path} cannot be read in the current columns of the table ({e}): rewrite it with "
                    "another engine",
                ) from None
            yield found


def physical_schema(table: Table, path: str, rows: ParquetRows) -> Schema:
    """Return the columns of a file as Iceberg columns.

    :raises TableError: they cannot be read as such
    """
    metadata = table.metadata
    try:
        return pyarrow_to_schema(rows.schema, metadata.name_mapping(), format_version=metadata.format_version)
    except (ValueError, TypeError, NotImplementedError) as e:
        raise TableError(
            "LC3362",
            f"{'.'.join(table.name())}: the columns of file {path} cannot be read as table columns ({e}): rewrite the "
            "file with another engine",
        ) from None
