# SPDX-License-Identifier: Apache-2.0
"""Rows dealt out to the partitions of an Iceberg spec.

Contract: :func:`split` gives each partition of a block once, with its rows in their order; nothing is copied when the
block is of one partition. Partition values are what pyiceberg's transforms give, ``None`` included; sources may be
nested in structs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

__all__ = ["split"]


def split(table: pa.Table, spec: PartitionSpec, schema: Schema) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Pairs of partition values (in the order of the spec's fields) and rows."""
    if not spec.fields:
        yield (), table
        return
    keys = [
        f.transform.pyarrow_transform(schema.find_type(f.source_id))(_source(table, schema, f.source_id))
        for f in spec.fields
    ]
    codes = _codes(keys, table.num_rows)
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(codes[order]) != 0])
    dealt = table if len(starts) == 1 else table.take(order)
    ends = np.r_[starts[1:], table.num_rows]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        first = int(order[start])
        yield tuple(k[first].as_py() for k in keys), dealt.slice(start, end - start)


def _codes(keys: list[pa.Array], rows: int) -> np.ndarray[Any, Any]:
    """One number per row, equal where all keys are equal. Made dense after each key: no product can overflow."""
    codes = np.zeros(rows, np.int64)
    for key in keys:
        encoded = _one(key).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _source(table: pa.Table, schema: Schema, field_id: int) -> pa.Array:
    """The column with this id, through structs if it is nested: by position, for names may hold dots."""
    accessor = schema.accessor_for_field(field_id)
    array = _one(table.column(accessor.position))
    while accessor.inner is not None:
        accessor = accessor.inner
        array = pc.struct_field(array, [accessor.position])
    return array


def _one(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
