# SPDX-License-Identifier: Apache-2.0
"""Rows in the sort order of a table.

Contract: :meth:`Sorting.order` gives the numbers of a block's rows in the order that the Iceberg specification defines:
by the fields in turn, each ascending or descending with nulls first or last; floats from the smallest to the greatest
with -0.0 before 0.0 and NaN after all; strings and binaries by their bytes, which for UTF-8 is the order of the code
points. Rows that are equal keep their order. Nothing is moved: the caller takes the rows.

A transform that cannot be applied is a :class:`TableError` before a record is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IcebergType

from airflow_provider_lakecommit.iceberg.parquet.partitions import check_transform, source_column, transformed

Numbers = np.ndarray[Any, Any]


class Sorting:
    """A sort order over a schema; falsy if the table has no sort order.

    :raises TableError: a field whose transform cannot be applied, by name
    """

    def __init__(self, order: SortOrder | None, schema: Schema) -> None:
        self._schema = schema
        self._fields: list[tuple[SortField, IcebergType]] = []
        for field in order.fields if order else ():
            if not isinstance(field.transform, VoidTransform):
                kind = check_transform(field.transform, schema, field.source_id, "the sort order")
                self._fields.append((field, kind))
        self.order_id = order.order_id if order and self._fields else None

    def __bool__(self) -> bool:
        return bool(self._fields)

    @property
    def columns(self) -> tuple[int, ...]:
        """Return the ids of the columns that have narrow bounds in a sorted file."""
        return tuple(f.source_id for f, _ in self._fields if f.transform.preserves_order)

    def order(self, table: pa.Table) -> Numbers:
        """The rows' numbers, sorted."""
        keys: list[Numbers] = []
        for field, kind in self._fields:
            values = transformed(source_column(table, self._schema, field.source_id), field.transform, kind)
            nulls = values.is_null().to_numpy(zero_copy_only=False)
            ranks = _ranks(values)
            keys += [
                ~nulls if field.null_order == NullOrder.NULLS_FIRST else nulls,
                np.where(nulls, 0, ranks if field.direction == SortDirection.ASC else ~ranks),
            ]
        # The last key counts most for lexsort.
        return np.lexsort(keys[::-1])


def _ranks(values: pa.Array) -> Numbers:
    """Return whole numbers in the order of the values; the number of a null has no meaning."""
    kind = values.type
    if pa.types.is_floating(kind):
        return _total_order(_filled(values.cast(pa.float64()), 0.0))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return _filled(values.cast(pa.int64()), 0)
    encoded = values.dictionary_encode()
    ranks = _filled(pc.rank(encoded.dictionary, tiebreaker="dense"), 0).astype(np.int64)
    return ranks[_filled(encoded.indices, 0)] if len(ranks) else np.zeros(len(values), np.int64)


def _filled(values: pa.Array, null: float) -> Numbers:
    numbers: Numbers = values.fill_null(null).to_numpy(zero_copy_only=False)
    return numbers


def _total_order(values: Numbers) -> Numbers:
    """IEEE 754's total order as whole numbers, all NaNs being the same and the greatest."""
    bits = np.where(np.isnan(values), np.nan, values).view(np.int64)
    return np.where(bits < 0, bits ^ np.int64(0x7FFFFFFFFFFFFFFF), bits)
