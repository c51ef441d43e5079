# SPDX-License-Identifier: Apache-2.0
"""The live rows of a table's head whose records are in some ranges of offsets.

Contract: columns are those of the current schema, found by field id, with the values that the files have: pyiceberg's
own scan reads a null list as an empty one. Files and row groups whose bounds exclude the ranges are not read.

Failure story: equality deletes are refused, since pyiceberg cannot apply them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import Role, Span
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg import (
    DeletePositions,
    HeadReader,
    ParquetRows,
    arrow_schema,
    bound_of,
    live_blocks,
    mark_columns,
)


class HeadRows:
    """The rows of one version of a table.

    :raises TableError: equality deletes apply, or the columns that name a record are missing
    :raises StorageError: a manifest cannot be read
    """

    def __init__(self, table: Table, name: str, branch: str, role: Role) -> None:
        self.table, self.name = table, name
        self.head = HeadReader(name).read(table, branch)
        self._positions = DeletePositions(name)
        self.ids = mark_columns(table.schema(), role)
        self.schema = arrow_schema(table.schema())
        if not self.ids:
            raise TableError(
                "LC8602", f"{name}: the columns that name the record of a row were dropped: add them again"
            )
        if self.head.deletes.equality:
            raise TableError(
                "LC8605",
                f"{name}: equality deletes of another engine apply to it, so its rows cannot be compared with the "
                "source: rewrite the data files with that engine, then verify again",
            )
        names = (table.schema().find_field(i).name for i in self.ids)
        self.topic, self.partition, self.generation, self.offset = names

    def read(self, spans: Sequence[Span]) -> pa.Table:
        """Return the rows of some ranges."""

        def may_have(rows: ParquetRows, group: int) -> bool:
            name = rows.name(self.ids[3])
            bounds = None if name is None else rows.group_bounds(group, name)
            return bounds is None or any(bounds[0] < s.range.end and bounds[1] >= s.range.start for s in spans)

        parts, schema = [], self.table.schema()
        for entry in self.head.entries.values():
            if any(self._may_have(entry.data_file, s) for s in spans):
                dead = self._positions.of(self.table, entry.data_file, self.head.deletes.of(entry))
                blocks = live_blocks(self.table, entry.data_file, dead, schema, self.schema, may_have)
                parts += [self._inside(block, spans) for block in blocks]
        return pa.concat_tables(parts) if parts else self.schema.empty_table()

    def _may_have(self, file: DataFile, span: Span) -> bool:
        def outside(number: int, low: int, high: int) -> bool:
            kind = self.table.schema().find_type(self.ids[number])
            least = bound_of(kind, (file.lower_bounds or {}).get(self.ids[number]))
            most = bound_of(kind, (file.upper_bounds or {}).get(self.ids[number]))
            return (least is not None and least > high) or (most is not None and most < low)

        p, r = span.partition.partition, span.range
        return not (outside(1, p, p) or outside(3, r.start, r.end - 1))

    def _inside(self, rows: pa.Table, spans: Sequence[Span]) -> pa.Table:
        selected = pa.array(np.zeros(rows.num_rows, bool))
        for s in spans:
            topic, partition = (
                pc.equal(rows.column(n), value)
                for n, value in ((self.topic, s.partition.topic), (self.partition, s.partition.partition))
            )
            offset = rows.column(self.offset)
            inside = pc.and_(pc.greater_equal(offset, s.range.start), pc.less(offset, s.range.end))
            selected = pc.or_(selected, pc.fill_null(pc.and_(pc.and_(topic, partition), inside), False))
        return rows.filter(selected).cast(self.schema)
