# SPDX-License-Identifier: Apache-2.0
"""Make rows fit for Parquet's writer, without a change to their values.

Contract: if an optional struct is null, so are its fields, the required ones included. Arrow's writer takes such a null
for a missing value and refuses the whole file. :func:`with_whole_fields` returns the same rows without them: nothing is
written below a null struct, so the values do not matter. Columns without such a struct, and tables without such a null,
are returned unchanged.

:func:`relabelled` puts rows under the names, field ids and required flags of a file's schema. It takes tables whose
columns have the layout of the schema's: the same types in the same places, names, metadata and nullability aside; an
extension type counts as its storage. Slices, structs, lists and maps are not copied, because Arrow's C data interface
reads the same buffers under another schema. A column of another layout is a :class:`TableError` that names it: under a
foreign type, its values would have another meaning.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from airflow_provider_lakecommit.exceptions import TableError


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


class _Under:
    """A batch that claims another schema; :func:`pyarrow.record_batch` creates a batch with that schema from it."""

    __slots__ = ("_batch", "_schema")

    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch, self._schema = batch, schema

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def relabelled(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the same values as a table of *schema*; columns are matched by position."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    for found, target in zip(table.schema, schema, strict=True):
        if not _alike(found.type, target.type):
            raise TableError(
                "LC3332", f"column {target.name!r} is {target.type} in the file, the rows have {found.type}"
            )
    return pa.Table.from_batches([pa.record_batch(_Under(b, schema)) for b in table.to_batches()], schema=schema)


def _alike(found: pa.DataType, target: pa.DataType) -> bool:
    found, target = _storage(found), _storage(target)
    if pa.types.is_nested(target):
        if found.id != target.id or found.num_fields != target.num_fields:
            return False
        return all(_alike(found.field(i).type, target.field(i).type) for i in range(target.num_fields))
    return bool(found.equals(target))


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
