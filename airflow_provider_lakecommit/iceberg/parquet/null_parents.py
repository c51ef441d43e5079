# SPDX-License-Identifier: Apache-2.0
"""Fill required fields of null structs, for Parquet's writer.

Contract: if an optional struct is null, so are its fields, the required ones included. Arrow's writer takes such a null
for a missing value and refuses the whole file. :func:`with_whole_fields` returns the same rows without them: nothing is
written below a null struct, so the values do not matter. Columns without such a struct, and tables without such a null,
are returned unchanged.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def with_whole_fields(table: pa.Table) -> pa.Table:
    """Return the same rows; every required field of a struct is valid.

    :param table: no present struct lacks a required field
    """
    for position, field in enumerate(table.schema):
        if _concerns(field.type):
            chunks = [_whole(chunk) for chunk in table.column(position).chunks]
            table = table.set_column(position, field, pa.chunked_array(chunks, field.type))
    return table


def _concerns(kind: pa.DataType) -> bool:
    """Return True if it contains a struct with required fields."""
    if not pa.types.is_nested(kind):
        return False
    inner = [kind.field(i) for i in range(kind.num_fields)]
    required = pa.types.is_struct(kind) and any(not field.nullable for field in inner)
    return required or any(_concerns(field.type) for field in inner)


def _whole(array: pa.Array, *, valid: bool = False) -> pa.Array:
    """The same values, with valid fields.

    :param valid: whether it is to be valid itself
    """
    kind = array.type
    mask = array.is_null() if array.null_count and not valid else None
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        parts = [_whole(array.field(i), valid=not field.nullable) for i, field in enumerate(fields)]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind) and _changes(array, valid):
        keys, items = _whole(array.keys), _whole(array.items)
        return pa.MapArray.from_arrays(_offsets(array), keys, items, type=kind, mask=mask)
    if pa.types.is_list(kind) and _changes(array, valid):
        return pa.ListArray.from_arrays(_offsets(array), _whole(array.values), type=kind, mask=mask)
    return _without_nulls(array) if valid and array.null_count else array


def _changes(array: pa.Array, valid: bool) -> bool:
    return _concerns(array.type) or bool(valid and array.null_count)


def _offsets(array: pa.Array) -> pa.Array:
    # A copy from its begin on: with a mask, Arrow takes no slice of them.
    return pa.array(np.array(array.offsets), pa.int32())


def _without_nulls(array: pa.Array) -> pa.Array:
    """Return a scalar array without nulls: a former null has whatever its memory holds."""
    if isinstance(array, pa.ExtensionArray):
        return array.type.wrap_array(_without_nulls(array.storage))
    memory = [buffer or pa.py_buffer(b"") for buffer in array.buffers()[1:]]
    return pa.Array.from_buffers(array.type, len(array), [None, *memory], offset=array.offset)
