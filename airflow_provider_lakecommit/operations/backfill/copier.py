# SPDX-License-Identifier: Apache-2.0
"""Copy data files without the rows of some ranges.

Contract: a copy has the other live rows in their order, the columns with the names, types and field ids of its
original, its partition values under its partition spec, and its sort order. Compression, row groups and statistics
follow the table's current properties. It is written row group by row group: at most one and a block are in memory. It
is in the folder of the original, or in the table's data folder if that one does not exist.

A copy is made once and reused as long as the same file has the same deletes.

Failure story: names hold a random UUID and files are created exclusively. :meth:`Copier.delete` removes copies that no
commit request names any more; a sweep finds those of a killed process by the mark in their names.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from uuid import UUID

import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.core import REWRITE, data_roots, file_mark, file_name, path_problem
from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg import (
    FileFormat,
    GroupedFile,
    Metrics,
    ParquetRows,
    arrow_schema,
    delete_unused,
    opened,
    physical_schema,
    trouble_of,
)
from airflow_provider_lakecommit.operations.backfill.ranges import RowRanges
from airflow_provider_lakecommit.operations.backfill.survey import FoundFile


class Copier:
    """Makes the copies of one replacement.

    :param attempt: random; part of the files' names
    """

    def __init__(self, name: str, landing: str, ranges: RowRanges, attempt: UUID) -> None:
        self._name, self._landing, self._ranges, self._attempt = name, landing, ranges, attempt
        self._numbers = count()
        self._copies: dict[tuple[str, ...], DataFile] = {}
        self._made: list[str] = []

    def copy(self, table: Table, found: FoundFile) -> DataFile:
        if found.key not in self._copies:
            self._copies[found.key] = self._copied(table, found)
        return self._copies[found.key]

    def delete(self, table: Table, keep: Collection[str] = ()) -> None:
        """Delete the copies, except for some paths; best effort."""
        delete_unused(table.io, [path for path in self._made if path not in keep])

    def _copied(self, table: Table, found: FoundFile) -> DataFile:
        source = found.file
        path = self._path(table, source.file_path)
        with opened(table.io, source.file_path, table.metadata.name_mapping()) as rows:
            layout, metrics, schema = self._layout(table, source, rows)
            columns = [rows.name(column) for column in self._ranges.columns]
            writing = GroupedFile(table.io.new_output(path), layout, metrics, schema, source.partition)
            self._made.append(path)
            try:
                for block, live in rows.blocks(found.deleted):
                    marks = (block.column(c).combine_chunks() for c in columns)
                    writing.add(block.filter(pa.array(live & ~self._ranges.of_rows(*marks))))
                copied = writing.close(source.spec_id, source.sort_order_id)
            except BaseException as e:
                writing.give_up()
                if isinstance(e, OSError):
                    raise StorageError(
                        "LC7209",
                        f"file {source.file_path} cannot be copied to {path} ({trouble_of(table.io, e)}): "
                        "check the storage",
                    ) from None
                raise
        if copied is None or copied.record_count != found.live - found.rows:
            raise TableError(
                "LC7210",
                f"{self._name}: the copy of file {source.file_path} has {copied.record_count if copied else 0} rows "
                f"instead of {found.live - found.rows}, and nothing is committed: run the command again",
            )
        return copied

    def _path(self, table: Table, source: str) -> str:
        """Return a path next to the file, if the table has its data there."""
        mark = file_mark(table.metadata.table_uuid, self._landing, REWRITE)
        name = file_name(self._attempt, mark, next(self._numbers))
        if path_problem(source, data_roots(table.location(), table.properties)) is None:
            return f"{source.rpartition('/')[0]}/{name}"
        return table.location_provider().new_data_location(name)

    def _layout(self, table: Table, source: DataFile, rows: ParquetRows) -> tuple[FileFormat, Metrics, pa.Schema]:
        metadata = table.metadata
        physical = physical_schema(table, source.file_path, rows)
        named = _under_current_names(physical, metadata.schema())
        order = next((o for o in metadata.sort_orders if o.order_id == source.sort_order_id), None)
        sorted_by = [f.source_id for f in order.fields if f.transform.preserves_order] if order else []
        layout = FileFormat(self._name, metadata.properties, named, physical)
        return layout, Metrics(named, metadata.properties, sorted_by), arrow_schema(physical)


def _under_current_names(physical: Schema, current: Schema) -> Schema:
    """Return the columns of a file under the names that the table's properties use."""
    names = {f.field_id: f.name for f in current.fields}

    def renamed(field: NestedField) -> NestedField:
        return field.model_copy(update={"name": names.get(field.field_id, field.name)})

    return Schema(*(renamed(f) for f in physical.fields))
