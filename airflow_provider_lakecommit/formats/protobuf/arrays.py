# SPDX-License-Identifier: Apache-2.0
"""The schema of the columnar parser, and its arrays: which fields are present, and the content of lists and maps.

Rows are messages as struct arrays, with fields named by
:func:`~airflow_provider_lakecommit.formats.protobuf.arrays.wire_name`. A list field is present if not empty.

Its schema has the fields of a message in forms that its columns hold exactly. It reads the same bytes as the original.
Each field keeps its number and a type of the same wire format: enums are numbers, times are seconds and nanoseconds,
maps are lists of entries, ``oneof`` members are optional fields, and unwanted fields are only detected. Fields are
named ``f`` and their number, so no original name can clash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

BYTES = FieldDescriptorProto.TYPE_BYTES
_PACKAGE = "wire"
_PLAIN_NUMBER = {FieldDescriptor.TYPE_ENUM: FieldDescriptorProto.TYPE_INT32}


def wire_name(number: int) -> str:
    return f"f{number}"


class WireFile:
    """The declared messages."""

    def __init__(self) -> None:
        self._file = FileDescriptorProto(name="wire.proto", package=_PACKAGE, syntax="proto3")

    def message(self) -> DescriptorProto:
        return self._file.message_type.add(name=f"M{len(self._file.message_type)}")

    def add(
        self,
        message: DescriptorProto,
        number: int,
        kind: int,
        *,
        repeated: bool = False,
        optional: bool = False,
        of: DescriptorProto | None = None,
    ) -> None:
        """Add a field to a message.

        :param optional: whether its presence is known; always true of a message
        :param of: its message, if it is one
        """
        field = message.field.add(name=wire_name(number), number=number, json_name=wire_name(number))
        field.type = _PLAIN_NUMBER.get(kind, kind) if of is None else FieldDescriptorProto.TYPE_MESSAGE
        field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if of is not None:
            field.type_name = f".{_PACKAGE}.{of.name}"
        elif optional and not repeated:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{wire_name(number)}")

    def handler(self, message: DescriptorProto) -> Any:
        from ptars import HandlerPool, PtarsConfig

        pool = DescriptorPool()
        pool.Add(self._file)
        file = pool.FindFileByName(self._file.name)
        return HandlerPool([file], config=PtarsConfig()).get_for_message(file.message_types_by_name[message.name])


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
