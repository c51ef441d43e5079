# SPDX-License-Identifier: Apache-2.0
"""The reader schema: older names of fields, and values for missing fields.

Two parts of Avro's "Schema Resolution" are used: aliases are names that a writer may have given a field, and defaults
are values that writers lack. Types are the table's. The landing states the schema, so later registrations change
nothing that is read again. A schema that cannot be read, has no field of the table, or has a default that its column
does not hold is a :class:`~airflow_provider_lakecommit.exceptions.TableError` before anything is read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

from fastavro import schemaless_writer
from fastavro.validation import validate

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats.avro.writer import WriterField, WriterType, writer_type
from airflow_provider_lakecommit.formats.decoder import Refusal


class WrongDefaultError(ValueError):
    """A default is not a value of its field's type."""


def reader_schema(text: str) -> WriterType | None:
    """Parse a landing's reader schema; ``None`` for an empty text."""
    try:
        return writer_type(text) if text else None
    except Refusal as refusal:
        raise TableError("LC4002", f"format.reader_schema: {refusal.reason}") from None


def field_at(schema: WriterType | None, path: str) -> WriterField | None:
    """Return the reader's field for the column of a path."""
    at: WriterType | WriterField | None = schema
    for name in path.split("."):
        at = None if at is None else _inner(at.type if isinstance(at, WriterField) else at, name)
    return at if isinstance(at, WriterField) else None


def renamed(written: WriterType, schema: WriterType | None) -> WriterType:
    """Return the written type with the reader schema's names of its fields."""
    return written if schema is None else _renamed(written, schema, {})


def _inner(requested: WriterType, name: str) -> WriterType | WriterField | None:
    match requested.kind:
        case "record":
            return next((each for each in requested.fields if each.name == name), None)
        case "array" | "map":
            return requested.parts[0] if name == ("element" if requested.kind == "array" else "value") else None
        case "union":
            several = [part for part in requested.parts if part.kind != "null"]
            if len(several) == 1:
                return _inner(several[0], name)
            return next((part for part in several if part.name == name), None)
    return None


def _renamed(written: WriterType, requested: WriterType, done: dict[tuple[int, int], WriterType]) -> WriterType:
    # Expanding named types recursively could exceed memory: each pair of types is renamed once.
    key = id(written), id(requested)
    if key not in done:
        done[key] = _with_names(written, requested, done)
    return done[key]


def _with_names(written: WriterType, requested: WriterType, done: dict[tuple[int, int], WriterType]) -> WriterType:
    if written.kind == "union":
        parts = tuple(_renamed(part, _branch(requested, part), done) for part in written.parts)
        return replace(written, parts=parts)
    if requested.kind == "union":
        return _renamed(written, _branch(requested, written), done)
    if written.kind != requested.kind or written.kind not in ("record", "array", "map"):
        return written
    if written.kind != "record":
        return replace(written, parts=(_renamed(written.parts[0], requested.parts[0], done),))
    names = _names(written.fields, requested.fields)
    types = {each.name: each.type for each in requested.fields}
    return replace(
        written,
        fields=tuple(
            replace(each, name=name, type=_renamed(each.type, types[name], done) if name in types else each.type)
            for each, name in zip(written.fields, names, strict=True)
        ),
    )


def _branch(requested: WriterType, written: WriterType) -> WriterType:
    """Return the requested type for a written one: of its kind, and its name if several are."""
    parts = [
        part for part in (requested.parts if requested.kind == "union" else (requested,)) if part.kind == written.kind
    ]
    return next((part for part in parts if part.name == written.name), parts[0] if len(parts) == 1 else written)


def _names(written: Sequence[WriterField], requested: Sequence[WriterField]) -> list[str]:
    """Return the requested name of each field: its own, else that of the first field with it as an alias."""
    there, requested_names = {each.name for each in written}, {each.name for each in requested}
    new: dict[str, str] = {}
    for each in requested:
        if each.name not in there:
            old = next((a for a in each.aliases if a in there - requested_names and a not in new), None)
            new |= {} if old is None else {old: each.name}
    return [new.get(each.name, each.name) for each in written]


def encoded(requested: WriterType, default: Any) -> bytes:
    """Encode a default, in its JSON form, in Avro's binary encoding."""
    if requested.kind == "union":
        return _first(requested, default)
    if requested.kind == "record" and isinstance(default, Mapping):
        return b"".join(_field(each, default) for each in requested.fields)
    if requested.kind == "array" and isinstance(default, list):
        return _block([encoded(requested.parts[0], each) for each in default])
    if requested.kind == "map" and isinstance(default, Mapping):
        return _block([_written("string", key) + encoded(requested.parts[0], each) for key, each in default.items()])
    return _scalar(requested, default)


def _scalar(requested: WriterType, default: Any) -> bytes:
    stated: dict[str, Any] = {
        "enum": {"type": "enum", "name": "E", "symbols": list(requested.symbols)},
        "fixed": {"type": "fixed", "name": "F", "size": requested.size},
    }
    try:
        # Bytes are given as characters of the same numbers.
        octets = requested.kind in ("bytes", "fixed") and isinstance(default, str)
        value = default.encode("latin-1") if octets else default
        kind = stated.get(requested.kind, requested.kind)
        if requested.kind not in ("record", "array", "map") and validate(value, kind, raise_errors=False):
            return _written(kind, value)
    except (ValueError, OverflowError):
        pass
    raise _no_value(default, f"no {requested}")


def _first(requested: WriterType, default: Any) -> bytes:
    """Encode in the first type of a union that has the value."""
    for n, part in enumerate(requested.parts):
        try:
            return _written("int", n) + encoded(part, default)
        except WrongDefaultError:
            continue
    raise _no_value(default, f"none of {requested}")


def _field(each: WriterField, default: Mapping[str, Any]) -> bytes:
    if each.name in default:
        return encoded(each.type, default[each.name])
    if each.default is None:
        raise WrongDefaultError(f"it has no {each.name}")
    return encoded(each.type, json.loads(each.default))


def _block(items: Sequence[bytes]) -> bytes:
    return (_written("long", len(items)) + b"".join(items) if items else b"") + _written("long", 0)


def _written(kind: Any, value: Any) -> bytes:
    out = BytesIO()
    schemaless_writer(out, kind, value)
    return out.getvalue()


def _no_value(default: Any, of: str) -> WrongDefaultError:
    return WrongDefaultError(f"{json.dumps(default)[:100]} is {of}")
