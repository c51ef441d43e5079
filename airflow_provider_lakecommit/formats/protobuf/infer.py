# SPDX-License-Identifier: Apache-2.0
"""From a Protobuf message to the columns of a `create` section.

Each field becomes the narrowest Iceberg type that holds all of its values exactly; none is required. Enums are their
names. Groups, empty, recursive and too large messages are left out with a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.infer_values import ColumnNotes, InferredColumn, column_of
from airflow_provider_lakecommit.formats.protobuf.compiler import DescriptorError
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.formats.protobuf.known_messages import WRAPPERS
from airflow_provider_lakecommit.formats.protobuf.scalars import type_name
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema

F = FieldDescriptor
_TYPES = {
    **dict.fromkeys((F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32), "int"),
    **dict.fromkeys((F.TYPE_UINT32, F.TYPE_FIXED32, F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64), "long"),
    **dict.fromkeys((F.TYPE_UINT64, F.TYPE_FIXED64), "decimal(20, 0)"),
    F.TYPE_BOOL: "boolean",
    F.TYPE_FLOAT: "float",
    F.TYPE_DOUBLE: "double",
    F.TYPE_STRING: "string",
    F.TYPE_ENUM: "string",
    F.TYPE_BYTES: "binary",
}
_KNOWN = {
    "google.protobuf.Timestamp": "timestamptz",
    "google.protobuf.Duration": "decimal(21, 9)",
    "google.protobuf.Struct": "string",
    "google.protobuf.Value": "string",
    "google.protobuf.ListValue": "string",
    "google.type.Date": "date",
    "google.type.TimeOfDay": "time",
}
_SAID = {
    "google.protobuf.Timestamp": "a value with a fraction of a microsecond is rejected",
    "google.protobuf.Duration": "in seconds",
    **dict.fromkeys(("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"), "as JSON"),
}


def registered_columns(schema: RegisteredSchema, message: str = "") -> list[InferredColumn]:
    """Return the columns for a registry schema.

    :param message: full name; by default the first of the schema
    :raises Refusal: it has no such message
    """
    imported = tuple((name, inner.text) for name, inner in schema.imported())
    try:
        return message_columns(message_named(file_of(schema.text, imported), message))
    except DescriptorError as e:
        raise Refusal("wrong_schema", None, str(e)) from None


def message_columns(message: Descriptor) -> list[InferredColumn]:
    return [column_of(f.name, partial(_type, f, f.name, (message,))) for f in message.fields]


def _type(field: FieldDescriptor, path: str, above: Sequence[Descriptor], notes: ColumnNotes) -> Any:
    inner = field.message_type
    if field.is_repeated and inner is not None and inner.GetOptions().map_entry:
        key, value = (inner.fields_by_name[name] for name in ("key", "value"))
        kind = _single(value, f"{path}.value", above, notes)
        return None if kind is None else {"map": {"key": _TYPES[key.type], "value": kind}}
    if field.is_repeated:
        kind = _single(field, f"{path}.element", above, notes)
        return None if kind is None else {"list": kind}
    return _single(field, path, above, notes)


def _single(field: FieldDescriptor, path: str, above: Sequence[Descriptor], notes: ColumnNotes) -> Any:
    if field.type == F.TYPE_GROUP:
        notes.append(f"{path}: left out: it is a group")
        return None
    if field.message_type is None:
        return _TYPES[field.type]
    name = type_name(field)
    if (known := _KNOWN.get(name)) is not None:
        if name in _SAID:
            notes.append(f"{path}: {_SAID[name]}")
        return known
    if name in WRAPPERS:
        return _TYPES[field.message_type.fields_by_name["value"].type]
    if field.message_type in above:
        notes.append(f"{path}: left out: {name} is recursive")
        return None
    return _struct(field.message_type, path, above, notes)


def _struct(message: Descriptor, path: str, above: Sequence[Descriptor], notes: ColumnNotes) -> Any:
    parts = []
    for field in message.fields:
        notes.one_more()
        kind = _type(field, f"{path}.{field.name}", (*above, message), notes)
        if kind is not None:
            parts.append({"name": field.name, "type": kind})
    if not parts:
        notes.append(f"{path}: left out: {message.full_name} has no field with a type")
        return None
    return {"struct": parts}
