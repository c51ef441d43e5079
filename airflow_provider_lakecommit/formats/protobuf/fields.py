# SPDX-License-Identifier: Apache-2.0
"""Fields of messages as columns: their declaration to the parser, and the conversion of its arrays.

Columns and fields match by name, at every level. A field without a value is null if its schema can tell (``optional``,
messages, ``oneof`` members, all of proto2), otherwise its type's default; a list or map is empty.
:meth:`MessageColumns.ambiguous` tells whether Protobuf's own parser may read some rows differently: two members of a
``oneof``, a repeated key or an entry without its message in a map.

Columns that cannot be filled are listed in ``wrong``. A value that a column cannot take is a
:class:`~airflow_provider_lakecommit.formats.decoder.Refusal` of all rows; the caller isolates the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto
from pyiceberg.types import ListType, MapType, NestedField, StructType

from airflow_provider_lakecommit.formats.column_rules import ColumnRules
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.protobuf.arrays import (
    BYTES,
    Bits,
    Read,
    WireFile,
    child,
    entries_there_twice,
    joined,
    list_reader,
    map_reader,
    there,
    wire_name,
)
from airflow_provider_lakecommit.formats.protobuf.known_messages import WRAPPERS, known_message
from airflow_provider_lakecommit.formats.protobuf.scalars import scalar_convert, type_name
from airflow_provider_lakecommit.formats.reading import Convert
from airflow_provider_lakecommit.iceberg import arrow_field

F = FieldDescriptor
_LENGTH_DELIMITED = (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE)


class _Declarations(WireFile):
    """The messages that are declared while columns are made; ``above`` are the enclosing ones."""

    def __init__(self, rules: ColumnRules) -> None:
        super().__init__()
        self.rules = rules
        self.wrong: list[str] = []
        self.above: list[Descriptor] = []


class UnknownField(NamedTuple):
    """A field that the table lacks. ``has`` are the rows that have it, of records or of what is in a list or map."""

    path: str
    has: Bits
    of_records: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Value:
    """One column. ``read`` converts the parser's array; ``below`` are the columns of nested messages."""

    column: NestedField
    path: str
    wire: str | None
    read: Read
    below: MessageColumns | None = None
    entries: bool = False


class MessageColumns:
    """The columns that a message fills.

    :param at: path of the struct, with a point behind it
    """

    def __init__(self, message: Descriptor, columns: Sequence[NestedField], d: _Declarations, at: str = "") -> None:
        self.wire = d.message()
        d.above.append(message)
        fields = {f.name: f for f in message.fields}
        self.values = [self._value(fields.get(c.name), c, f"{at}{c.name}", d) for c in columns]
        names = {c.name for c in columns}
        self._unknown = [f for f in message.fields if f.name not in names and _declared_unknown(f, self.wire, d)]
        d.above.pop()
        self._at = at
        choices = [oneof.fields for oneof in message.oneofs if len(oneof.fields) > 1]
        self._oneofs = [[wire_name(f.number) for f in fields if f.type != F.TYPE_GROUP] for fields in choices]
        below = (value.below for value in self.values)
        self.undecided: bool = any(f.type == F.TYPE_GROUP for fields in choices for f in fields) or any(
            columns.undecided for columns in below if columns is not None
        )
        """True if a group may take the place of a ``oneof`` member: columns do not show groups."""

    @classmethod
    def of(
        cls, message: Descriptor, columns: Sequence[NestedField], rules: ColumnRules
    ) -> tuple[MessageColumns, WireFile, list[str]]:
        """Return the columns of a table, their declarations, and what is wrong with them."""
        declared = _Declarations(rules)
        return cls(message, columns, declared), declared, declared.wrong

    def arrays(self, rows: pa.StructArray) -> list[pa.Array]:
        return [
            pa.nulls(len(rows), arrow_field(v.column).type) if v.wire is None else v.read(child(rows, v.wire))
            for v in self.values
        ]

    def ambiguous(self, rows: pa.StructArray) -> bool:
        """Return True if Protobuf's own parser may read some rows differently."""
        for members in self._oneofs:
            if (np.array([there(rows, name) for name in members]).sum(axis=0) > 1).any():
                return True
        return any(_ambiguous(value, child(rows, value.wire)) for value in self.values if value.wire is not None)

    def unknown(self, rows: pa.StructArray, *, of_records: bool = True) -> Iterator[UnknownField]:
        """Yield the fields that the table lacks and some of these rows have.

        :param of_records: True if each row is one record
        """
        for f in self._unknown:
            has = there(rows, wire_name(f.number))
            if has.any():
                yield UnknownField(f"{self._at}{f.name}", has, of_records)
        for value in self.values:
            if value.below is not None and value.wire is not None:
                array = child(rows, value.wire)
                alone = of_records and pa.types.is_struct(array.type)
                yield from value.below.unknown(_within(value, array), of_records=alone)

    def _value(self, found: FieldDescriptor | None, column: NestedField, path: str, d: _Declarations) -> _Value:
        if found is None:
            return _absent(column, path)
        kind, name = column.field_type, wire_name(found.number)
        if found.type == F.TYPE_GROUP:
            d.wrong.append(f"column {path}: the field is a group, which is not supported; leave the column out")
            return _absent(column, path)
        if _is_map(found):
            return self._map(found, column, path, d)
        if found.is_repeated:
            if not isinstance(kind, ListType):
                d.wrong.append(f"column {path} is {kind}, the field is repeated {type_name(found)}: make it a list")
                return _absent(column, path)
            read, below = _declared(found, kind.element_field, f"{path}.element", d, self.wire, repeated=True)
            target = arrow_field(column).type
            return _Value(column=column, path=path, wire=name, read=list_reader(read, target), below=below)
        read, below = _declared(found, column, path, d, self.wire)
        return _Value(column=column, path=path, wire=name, read=read, below=below)

    def _map(self, found: FieldDescriptor, column: NestedField, path: str, d: _Declarations) -> _Value:
        kind = column.field_type
        if not isinstance(kind, MapType):
            d.wrong.append(f"column {path} is {kind}, the field is a map: make it a map")
            return _absent(column, path)
        fields = found.message_type.fields_by_name
        entry = d.message()
        key, _ = _declared(fields["key"], kind.key_field, f"{path}.key", d, entry, optional=True)
        value, below = _declared(fields["value"], kind.value_field, f"{path}.value", d, entry, optional=True)
        d.add(self.wire, found.number, F.TYPE_MESSAGE, repeated=True, of=entry)
        read = map_reader(key, value, arrow_field(column).type)
        return _Value(column=column, path=path, wire=wire_name(found.number), read=read, below=below, entries=True)


def _absent(column: NestedField, path: str) -> _Value:
    return _Value(column=column, path=path, wire=None, read=lambda array: array)


def _declared(
    found: FieldDescriptor,
    column: NestedField,
    path: str,
    d: _Declarations,
    message: DescriptorProto,
    *,
    repeated: bool = False,
    optional: bool | None = None,
) -> tuple[Read, MessageColumns | None]:
    """Declare a field that a column wants; return how one value of it is read.

    :param optional: whether its presence is known; by default as the schema says. Always in a map's entry, where a
        missing message is an empty one.
    """
    kind, target = column.field_type, arrow_field(column).type
    has_presence = optional if optional is not None else found.has_presence
    if found.message_type is None:
        convert = scalar_convert(found, kind, d.rules.times.get(column.field_id))
        if isinstance(convert, str):
            d.wrong.append(f"column {path} {convert}")
            convert = _unread
        d.add(message, found.number, found.type, repeated=repeated, optional=has_presence)
        return _reader(convert, target, path), None
    if (known := known_message(found.message_type, kind)) is not None:
        convert, fields = known
        read = _reader(convert, target, path)
        if not fields:
            d.add(message, found.number, BYTES, repeated=True)
            absent = b"" if optional else None
            return read if repeated else (lambda array: read(joined(array, absent=absent))), None
        inner = d.message()
        for number, type_ in fields.items():
            d.add(inner, number, type_)
        d.add(message, found.number, F.TYPE_MESSAGE, repeated=repeated, of=inner)
        return read, None
    if found.message_type.full_name in WRAPPERS:
        return _wrapper(found, column, path, d, message, repeated)
    endless = found.message_type in d.above
    if endless or not isinstance(kind, StructType):
        remedy = "it is recursive, which no table supports: leave it out" if endless else "make it a struct"
        d.wrong.append(f"column {path} is {kind}, the field is a message {type_name(found)}: {remedy}")
        return _reader(_unread, target, path), None
    below = MessageColumns(found.message_type, kind.fields, d, f"{path}.")
    d.add(message, found.number, F.TYPE_MESSAGE, repeated=repeated, of=below.wire)
    return _struct_reader(below, target), below


def _wrapper(
    found: FieldDescriptor, column: NestedField, path: str, d: _Declarations, message: DescriptorProto, repeated: bool
) -> tuple[Read, None]:
    value = found.message_type.fields_by_name["value"]
    inner = d.message()
    read, _ = _declared(value, column, path, d, inner, optional=False)
    d.add(message, found.number, F.TYPE_MESSAGE, repeated=repeated, of=inner)

    def of_wrapper(array: pa.Array) -> pa.Array:
        values = child(array, wire_name(value.number))
        return read(pc.if_else(array.is_valid(), values, pa.scalar(None, values.type)))

    return of_wrapper, None


def _reader(convert: Convert, target: pa.DataType, path: str) -> Read:
    def read(array: pa.Array) -> pa.Array:
        try:
            return convert(array, target)
        except (ValueError, OverflowError) as e:
            raise Refusal("wrong_value", path, f"column {path}: {e}") from e

    return read


def _unread(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Placeholder for a wrong column, which is never read."""
    raise ValueError(f"{array.type} is not a {target}")


def _struct_reader(below: MessageColumns, target: pa.DataType) -> Read:
    def of_struct(array: pa.Array) -> pa.Array:
        present = array.is_valid() if array.null_count else None
        parts = below.arrays(array)
        for value, part in zip(below.values, parts, strict=True):
            missing = part.is_null() if present is None else pc.and_(part.is_null(), present)
            if value.column.required and part.null_count and pc.any(missing).as_py():
                raise Refusal("missing_required", value.path, f"required column {value.path} is missing or null")
        mask = None if present is None else pc.invert(present)
        return pa.StructArray.from_arrays(parts, fields=list(target), mask=mask)

    return of_struct


def _within(value: _Value, array: pa.Array) -> pa.StructArray:
    """Return the messages of a column, through its list or map."""
    if pa.types.is_list(array.type):
        array = array.values
    return child(array, wire_name(2)) if value.entries else array


def _ambiguous(value: _Value, array: pa.Array) -> bool:
    if value.entries and entries_there_twice(array):
        return True
    return value.below is not None and value.below.ambiguous(_within(value, array))


def _is_map(f: FieldDescriptor) -> bool:
    return bool(f.is_repeated and f.message_type is not None and f.message_type.GetOptions().map_entry)


def _declared_unknown(f: FieldDescriptor, message: DescriptorProto, d: _Declarations) -> bool:
    """Declare a field that no column wants; a group cannot be."""
    if f.type == F.TYPE_GROUP:
        return False
    kind = BYTES if f.type in _LENGTH_DELIMITED else f.type
    d.add(message, f.number, kind, repeated=f.is_repeated, optional=True)
    return True


def required_missing(columns: MessageColumns, arrays: Sequence[pa.Array]) -> dict[int, Refusal]:
    """Return the rows that lack a required column, each with the first one."""
    found: dict[int, Refusal] = {}
    for value, array in zip(columns.values, arrays, strict=True):
        if value.column.required and array.null_count:
            text = f"required column {value.path} is missing or null"
            for row in pc.indices_nonzero(array.is_null()).to_pylist():
                found.setdefault(row, Refusal("missing_required", value.path, text))
    return found
