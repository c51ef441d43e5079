# SPDX-License-Identifier: Apache-2.0
"""From an Avro schema to the columns of a `create` section.

Each field becomes the narrowest Iceberg type that holds all of its values exactly; a union with null is optional, all
else required. A union of several types becomes a struct with one optional field per type. Fields that no table can hold
are left out with a note.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from airflow_provider_lakecommit.formats.avro.writer import WriterType, writer_type
from airflow_provider_lakecommit.formats.decoder import Refusal
from airflow_provider_lakecommit.formats.infer_values import MAX_DIGITS, ColumnNotes, InferredColumn, column_of
from airflow_provider_lakecommit.formats.registry.schema_source import RegisteredSchema

_NULL = WriterType(kind="null", name="null")
"""The type of a union without another type."""
_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "string": "string",
    "enum": "string",
}
_LOGICAL = {
    "date": "date",
    "time-millis": "time",
    "time-micros": "time",
    "timestamp-millis": "timestamptz",
    "timestamp-micros": "timestamptz",
    "timestamp-nanos": "timestamptz_ns",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "local-timestamp-nanos": "timestamp_ns",
    "uuid": "uuid",
}


def registered_columns(schema: RegisteredSchema) -> list[InferredColumn]:
    """Return the columns for a registry schema.

    :raises Refusal: it is not the schema of a record
    """
    written = writer_type(schema.text, [inner.text for _, inner in schema.imported()])
    if written.kind != "record":
        raise Refusal("wrong_schema", None, f"the schema is {written}, not a record: it has no fields for columns")
    return avro_columns(written)


def avro_columns(written: WriterType) -> list[InferredColumn]:
    return [column_of(f.name, partial(_type, f.type, f.name), required=not f.type.nullable) for f in written.fields]


def _type(written: WriterType, path: str, notes: ColumnNotes) -> Any:
    match written.kind:
        case "null":
            notes.append(f"{path}: left out: always null")
            return None
        case "union":
            return _union(written, path, notes)
        case "record":
            return _struct([(f.name, f.type, f.type.nullable) for f in written.fields], path, notes)
        case "array":
            inner = written.parts[0]
            kind = _type(inner, f"{path}.element", notes)
            return None if kind is None else {"list": kind, **_required(inner)}
        case "map":
            inner = written.parts[0]
            kind = _type(inner, f"{path}.value", notes)
            return None if kind is None else {"map": {"key": "string", "value": kind, **_required(inner)}}
    return _scalar(written, path, notes)


def _scalar(written: WriterType, path: str, notes: ColumnNotes) -> str | None:
    if written.logical == "decimal":
        if written.precision > MAX_DIGITS:
            notes.append(f"{path}: left out: {written} has more than {MAX_DIGITS} digits")
            return None
        return f"decimal({written.precision}, {written.scale})"
    if written.logical is not None:
        kind = _LOGICAL[written.logical]
        if kind.endswith("_ns"):
            notes.append(f"{path}: nanoseconds need a table of format version 3; `{kind[:-3]}` takes microseconds")
        return kind
    if written.kind == "fixed" and not written.size:
        notes.append(f"{path}: left out: {written} has no bytes")
        return None
    return f"fixed[{written.size}]" if written.kind == "fixed" else _TYPES[written.kind]


def _struct(parts: list[tuple[str, WriterType, bool]], path: str, notes: ColumnNotes) -> Any:
    columns = []
    for name, part, optional in parts:
        notes.one_more()
        kind = _type(part, f"{path}.{name}", notes)
        if kind is not None:
            columns.append({"name": name, "type": kind, **({} if optional else {"required": True})})
    if not columns:
        notes.append(f"{path}: left out: none of its fields has a type")
        return None
    return {"struct": columns}


def _union(written: WriterType, path: str, notes: ColumnNotes) -> Any:
    several = [part for part in written.parts if part.kind != "null"]
    if len(several) > 1:
        notes.append(f"{path}: {written}: one optional field per type, exactly one has a value")
        return _struct([(part.name, part, True) for part in several], path, notes)
    return _type(several[0] if several else _NULL, path, notes)


def _required(inner: WriterType) -> dict[str, bool]:
    return {} if inner.nullable else {"required": True}
