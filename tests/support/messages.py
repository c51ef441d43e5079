# SPDX-License-Identifier: Apache-2.0
"""Protobuf for tests: schemas and messages that nobody would write, and what a table's row of one is, in plain Python.

:func:`expected` reads a message by Protobuf's own parser, value by value, without Arrow.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

F = FieldDescriptor
P = FieldDescriptorProto
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SCALARS: dict[int, IcebergType] = {
    **dict.fromkeys((P.TYPE_INT32, P.TYPE_SINT32, P.TYPE_SFIXED32, P.TYPE_UINT32, P.TYPE_FIXED32), LongType()),
    **dict.fromkeys((P.TYPE_INT64, P.TYPE_SINT64, P.TYPE_SFIXED64), LongType()),
    **dict.fromkeys((P.TYPE_UINT64, P.TYPE_FIXED64), DecimalType(20, 0)),
    P.TYPE_BOOL: BooleanType(),
    P.TYPE_FLOAT: FloatType(),
    P.TYPE_DOUBLE: DoubleType(),
    P.TYPE_STRING: StringType(),
    P.TYPE_BYTES: BinaryType(),
    P.TYPE_ENUM: StringType(),
}
KEYS = [t for t in SCALARS if t not in (P.TYPE_FLOAT, P.TYPE_DOUBLE, P.TYPE_BYTES, P.TYPE_ENUM)]
KNOWN = ("google.protobuf.Timestamp", "google.protobuf.Int64Value", "google.protobuf.StringValue")
IMPORTS = ("google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto")


class Unreadable(Exception):
    """A value that its column cannot take."""


@dataclass
class _Making:
    """A file under construction."""

    file: FileDescriptorProto
    draw: Callable[..., Any]
    left: int = 12

    def message(self, depth: int) -> DescriptorProto:
        made = self.file.message_type.add(name=f"M{len(self.file.message_type)}")
        numbers = self.draw(st.lists(st.integers(1, 40), min_size=1, max_size=5, unique=True))
        for number in numbers:
            self.field(made, number, depth)
        # A schema has them behind all others.
        for field in made.field:
            if field.proto3_optional:
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add(name=f"_{field.name}")
        return made

    def field(self, message: DescriptorProto, number: int, depth: int) -> None:
        shape = self.draw(st.sampled_from(["one", "optional", "repeated", "map", "oneof", "oneof"]))
        if shape == "map":
            self.map(message, number, depth)
            return
        field = message.field.add(name=f"c{number}", number=number, label=P.LABEL_OPTIONAL)
        self.typed(field, depth)
        if shape == "repeated":
            field.label = P.LABEL_REPEATED
        elif shape == "oneof":
            if not message.oneof_decl:
                message.oneof_decl.add(name="either")
            field.oneof_index = 0
        elif shape == "optional" and field.type != P.TYPE_MESSAGE:
            field.proto3_optional = True

    def typed(self, field: FieldDescriptorProto, depth: int) -> None:
        kinds = [*SCALARS, *KNOWN, *(["message"] if depth and self.left > 0 else [])]
        kind = self.draw(st.sampled_from(kinds))
        if kind == "message":
            self.left -= 1
            field.type, field.type_name = P.TYPE_MESSAGE, f".{self.message(depth - 1).name}"
        elif isinstance(kind, str):
            field.type, field.type_name = P.TYPE_MESSAGE, f".{kind}"
        else:
            field.type = kind
            if kind == P.TYPE_ENUM:
                field.type_name = ".E"

    def map(self, message: DescriptorProto, number: int, depth: int) -> None:
        entry = message.nested_type.add(name=f"C{number}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=P.LABEL_OPTIONAL, type=self.draw(st.sampled_from(KEYS)))
        self.typed(entry.field.add(name="value", number=2, label=P.LABEL_OPTIONAL), depth)
        message.field.add(
            name=f"c{number}",
            number=number,
            label=P.LABEL_REPEATED,
            type=P.TYPE_MESSAGE,
            type_name=f".{message.name}.{entry.name}",
        )


@st.composite
def schemas(draw: Callable[..., Any]) -> str:
    """A serialized schema whose first message has fields of every shape."""
    file = FileDescriptorProto(name="any.proto", syntax="proto3", dependency=IMPORTS)
    enum = file.enum_type.add(name="E")
    for name, number in (("ZERO", 0), ("ONE", 1), ("MINUS", -1)):
        enum.value.add(name=name, number=number)
    making = _Making(file, draw)
    first = making.message(2)
    # Messages within it were made after it.
    assert file.message_type[0].name == first.name
    return base64.b64encode(file.SerializeToString()).decode()


def table_of(message: Descriptor, leave: Sequence[str] = ()) -> Schema:
    """Columns for all fields of a message, but for some."""
    ids = iter(range(1, 10_000))
    return Schema(*_columns(message, ids, leave))


def _columns(message: Descriptor, ids: Any, leave: Sequence[str] = ()) -> list[NestedField]:
    return [NestedField(next(ids), f.name, _kind(f, ids)) for f in message.fields if f.name not in leave]


def _kind(f: FieldDescriptor, ids: Any) -> IcebergType:
    if is_map(f):
        key, value = (f.message_type.fields_by_name[n] for n in ("key", "value"))
        return MapType(next(ids), _single(key, ids), next(ids), _single(value, ids))
    return ListType(next(ids), _single(f, ids)) if f.is_repeated else _single(f, ids)


def _single(f: FieldDescriptor, ids: Any) -> IcebergType:
    if f.message_type is None:
        return SCALARS[f.type]
    known = {KNOWN[0]: TimestamptzType(), KNOWN[1]: LongType(), KNOWN[2]: StringType()}
    return known.get(f.message_type.full_name) or StructType(*_columns(f.message_type, ids))


def is_map(f: FieldDescriptor) -> bool:
    return bool(f.is_repeated and f.message_type is not None and f.message_type.GetOptions().map_entry)


def expected(message: Any) -> dict[str, Any]:
    """The row of a message that Protobuf has read.

    :raises Unreadable: a column cannot take a value
    """
    row: dict[str, Any] = {}
    for f in message.DESCRIPTOR.fields:
        value = getattr(message, f.name)
        if is_map(f):
            of = f.message_type.fields_by_name
            row[f.name] = sorted(((_plain(of["key"], k), _plain(of["value"], value[k])) for k in value), key=repr)
        elif f.is_repeated:
            row[f.name] = [_plain(f, v) for v in value]
        else:
            row[f.name] = None if f.has_presence and not message.HasField(f.name) else _plain(f, value)
    return row


def _plain(f: FieldDescriptor, value: Any) -> Any:
    if f.type == F.TYPE_ENUM:
        if value not in f.enum_type.values_by_number:
            raise Unreadable(f.name)
        return f.enum_type.values_by_number[value].name
    if f.type in (F.TYPE_UINT64, F.TYPE_FIXED64):
        return Decimal(value)
    if f.message_type is None:
        return value
    name = f.message_type.full_name
    if name == KNOWN[0]:
        return _moment(value.seconds, value.nanos)
    return value.value if name in KNOWN else expected(value)


def _moment(seconds: int, nanos: int) -> datetime:
    if nanos % 1000 or not 0 <= nanos < 10**9:
        raise Unreadable("nanos")
    try:
        return EPOCH + timedelta(seconds=seconds, microseconds=nanos // 1000)
    except OverflowError as e:
        raise Unreadable("seconds") from e


def of_row(message: Descriptor, row: dict[str, Any]) -> dict[str, Any]:
    """A row of Arrow's, comparable to an expected one: the entries of a map have no order."""
    return {f.name: _of_value(f, row[f.name]) for f in message.fields if f.name in row}


def _of_value(f: FieldDescriptor, value: Any) -> Any:
    if value is None:
        return None
    if is_map(f):
        inner = f.message_type.fields_by_name["value"]
        return sorted(((k, _of_one(inner, v)) for k, v in value), key=repr)
    return [_of_one(f, v) for v in value] if f.is_repeated else _of_one(f, value)


def _of_one(f: FieldDescriptor, value: Any) -> Any:
    plain = f.message_type is None or f.message_type.full_name in KNOWN or value is None
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value if plain else of_row(f.message_type, value)


NUMBERS = st.one_of(st.integers(-2, 2), st.integers(-(2**31), 2**31 - 1))


def filled(draw: Callable[..., Any], message: Any) -> Any:
    """A message with values drawn for some of its fields."""
    for f in message.DESCRIPTOR.fields:
        for _ in range(draw(st.integers(0, 2 if f.is_repeated else 1))):
            if is_map(f):
                of = f.message_type.fields_by_name
                key = _scalar(draw, of["key"])
                if of["value"].message_type is not None:
                    filled(draw, getattr(message, f.name)[key])
                else:
                    getattr(message, f.name)[key] = _scalar(draw, of["value"])
            elif f.message_type is not None:
                inner = getattr(message, f.name)
                inner = inner.add() if f.is_repeated else inner
                inner.SetInParent()
                filled(draw, inner)
            elif f.is_repeated:
                getattr(message, f.name).append(_scalar(draw, f))
            else:
                setattr(message, f.name, _scalar(draw, f))
    return message


def _scalar(draw: Callable[..., Any], f: FieldDescriptor) -> Any:
    kind = f.cpp_type
    if kind in (F.CPPTYPE_UINT32, F.CPPTYPE_UINT64):
        most = 2**32 - 1 if kind == F.CPPTYPE_UINT32 else 2**64 - 1
        return draw(st.one_of(st.integers(0, 2), st.integers(0, most)))
    if kind == F.CPPTYPE_INT64:
        return draw(st.one_of(NUMBERS, st.integers(-(2**63), 2**63 - 1)))
    if kind in (F.CPPTYPE_INT32, F.CPPTYPE_ENUM):
        return draw(NUMBERS)
    if kind == F.CPPTYPE_BOOL:
        return draw(st.booleans())
    if kind in (F.CPPTYPE_FLOAT, F.CPPTYPE_DOUBLE):
        return draw(st.floats(width=32))
    return draw(st.text(max_size=4)) if f.type == F.TYPE_STRING else draw(st.binary(max_size=4))


def serialized_set(*files: descriptor_pb2.FileDescriptorProto) -> str:
    """Files as a landing may state them."""
    return base64.b64encode(descriptor_pb2.FileDescriptorSet(file=files).SerializeToString()).decode()
