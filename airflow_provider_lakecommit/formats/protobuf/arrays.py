# SPDX-License-Identifier: Apache-2.0
"""Reads the arrays of the columnar parser: which fields are present, and the content of lists and maps.

Rows are messages as struct arrays, with fields named by
:func:`~airflow_provider_lakecommit.formats.protobuf.wire_file.wire_name`. A list field is present if not empty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_lakecommit.formats.protobuf.wire_file import wire_name

Read = Callable[[pa.Array], pa.Array]
Bits = np.ndarray[Any, np.dtype[np.bool_]]
_KEY, _VALUE = wire_name(1), wire_name(2)


def child(rows: pa.StructArray, name: str) -> pa.Array:
    return rows.field(rows.type.get_field_index(name))


def there(rows: pa.StructArray, name: str) -> Bits:
    """Return which messages have this field; null for missing messages."""
    array = child(rows, name)
    has = pc.greater(pc.list_value_length(array), 0) if pa.types.is_list(array.type) else array.is_valid()
    found: Bits = pc.and_(has.fill_null(False), rows.is_valid()).to_numpy(zero_copy_only=False)
    return found


def joined(pieces: pa.Array, *, absent: bytes | None) -> pa.Array:
    """Return the bytes of all pieces of each message: concatenated, they are the merged message.

    :param absent: the value of a message without a piece
    """
    found = pc.greater(pc.list_value_length(pieces), 0).fill_null(False)
    return pc.if_else(found, pc.binary_join(pieces.cast(pa.list_(pa.binary())), b""), pa.scalar(absent, pa.binary()))


def filled(array: pa.Array) -> pa.Array:
    """Fill in what entries leave out: a missing key or value is its type's default."""
    if not array.null_count or pa.types.is_nested(array.type):
        return array
    empty: Any = "" if pa.types.is_string(array.type) else b"" if pa.types.is_binary(array.type) else False
    return array.fill_null(pa.scalar(empty).cast(array.type))


def list_reader(read: Read, target: pa.DataType) -> Read:
    def of_list(array: pa.Array) -> pa.Array:
        elements = read(array.values)
        return pa.ListArray.from_arrays(array.offsets, elements, type=target)

    return of_list


def map_reader(key: Read, value: Read, target: pa.DataType) -> Read:
    def of_map(array: pa.Array) -> pa.Array:
        entries = array.values
        keys, values = (filled(child(entries, name)) for name in (_KEY, _VALUE))
        return pa.MapArray.from_arrays(array.offsets, key(keys), value(values), type=target)

    return of_map


def entries_there_twice(array: pa.Array) -> bool:
    keys, content = filled(child(array.values, _KEY)), child(array.values, _VALUE)
    if pa.types.is_struct(content.type) and content.null_count:
        return True
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    positions = pc.list_parent_indices(array).to_numpy() * (len(codes) + 1) + codes
    return len(np.unique(positions)) != len(positions)
