# SPDX-License-Identifier: Apache-2.0
"""Compare the schema that Connect's JSON converter puts around an envelope with the landing's options.

The scale of decimals in bytes and the units of times are only in that schema: with another scale, rule or encoding a
column would get wrong values. :meth:`EnvelopeSchemas.wrong` names the first such column of each value, once per
schema. Values without a schema, or with one written differently, are not checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FixedType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from airflow_provider_lakecommit.core import FormatOptions
from airflow_provider_lakecommit.formats.decoder import Refusal, Reject
from airflow_provider_lakecommit.formats.time_values import RULE_OF

WRONG_SCHEMA = "wrong_schema"
_BEGIN, _END = b'{"schema":', b',"payload":'
_MOST_KNOWN = 100
_TIMES = (DateType, TimeType, TimestampType, TimestamptzType)
_OCTETS = (BinaryType, FixedType)
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_IN_BYTES = "base64"
"""The converter's encoding of bytes."""


class EnvelopeSchemas:
    """Checks the schemas of values against the row's columns."""

    def __init__(self, columns: Iterable[NestedField], options: FormatOptions) -> None:
        self._columns = {column.name: column.field_type for column in columns}
        self._options = options
        self._checks = any(_can_differ(kind) for kind in self._columns.values())
        self._known: dict[bytes, Refusal | None] = {}

    def wrong(self, values: Sequence[bytes]) -> Iterator[Reject]:
        if not self._checks:
            return
        for position, value in enumerate(values):
            if value.startswith(_BEGIN) and (end := value.find(_END)) > 0:
                schema = value[len(_BEGIN) : end]
                if schema not in self._known:
                    if len(self._known) >= _MOST_KNOWN:
                        self._known.clear()
                    self._known[schema] = next(self._contradictions(schema), None)
                if (refusal := self._known[schema]) is not None:
                    yield Reject.of(position, refusal)

    def _contradictions(self, schema: bytes) -> Iterator[Refusal]:
        for image in _images(schema):
            for path, kind, stated in _beside(image, self._columns):
                if (problem := self._contradiction(path, kind, stated)) is not None:
                    yield Refusal(WRONG_SCHEMA, path, f"column {path} {problem}")

    def _contradiction(self, path: str, kind: IcebergType, stated: Mapping[str, Any]) -> str | None:
        meaning, encoding = str(stated.get("name")), self._options.encodings.get(path)
        if isinstance(kind, DecimalType) and meaning == _DECIMAL and encoding is not None:
            scale = _scale(stated)
            if scale is not None and scale != kind.scale:
                return f"has {kind.scale} decimals, but {scale} in the schema of the record"
        elif isinstance(kind, _OCTETS) and stated.get("type") == "bytes" and encoding != _IN_BYTES:
            hint = f"`format.encodings: {{{path}: {_IN_BYTES}}}` reads, not {encoding}"
            return f"is bytes by the schema of the record, which {hint}"
        elif isinstance(kind, _TIMES) and (rule := RULE_OF.get(meaning)) is not None:
            stated_rule = self._options.timestamps.get(path, "iso8601")
            if stated_rule != rule:
                hint = f"`timestamps: {{{path}: {rule}}}` reads, not {stated_rule}"
                return f"is {meaning} by the schema of the record, which {hint}"
        return None


def _can_differ(kind: IcebergType) -> bool:
    """Return True if values of this type, or within it, can differ from what a schema states."""
    if isinstance(kind, StructType):
        return any(_can_differ(field.field_type) for field in kind.fields)
    if isinstance(kind, ListType):
        return _can_differ(kind.element_type)
    if isinstance(kind, MapType):
        return _can_differ(kind.key_type) or _can_differ(kind.value_type)
    return isinstance(kind, (DecimalType, *_OCTETS, *_TIMES))


def _images(schema: bytes) -> Iterator[Mapping[str, Any]]:
    try:
        found = json.loads(schema)
    except (ValueError, RecursionError):
        return
    yield from (image for image in _fields(found) if image.get("field") in ("before", "after"))


def _beside(
    struct: Mapping[str, Any], columns: Mapping[str, IcebergType], above: str = ""
) -> Iterator[tuple[str, IcebergType, Mapping[str, Any]]]:
    """Yield columns on all levels, with their paths and the schema's statements."""
    for field in _fields(struct):
        name = str(field.get("field"))
        if name in columns:
            yield from _within(f"{above}{name}", columns[name], field)


def _within(
    path: str, kind: IcebergType, stated: Mapping[str, Any]
) -> Iterator[tuple[str, IcebergType, Mapping[str, Any]]]:
    if isinstance(kind, StructType):
        yield from _beside(stated, {field.name: field.field_type for field in kind.fields}, f"{path}.")
        return
    inner: dict[str, tuple[str, IcebergType]] = {}
    if isinstance(kind, ListType):
        inner = {"items": ("element", kind.element_type)}
    elif isinstance(kind, MapType):
        inner = {"keys": ("key", kind.key_type), "values": ("value", kind.value_type)}
    else:
        yield path, kind, stated
    for key, (name, each) in inner.items():
        if isinstance(found := stated.get(key), Mapping):
            yield from _within(f"{path}.{name}", each, found)


def _fields(struct: Any) -> Iterator[Mapping[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, Mapping) else None
    yield from (f for f in fields or () if isinstance(f, Mapping)) if isinstance(fields, list) else ()


def _scale(field: Mapping[str, Any]) -> int | None:
    parameters = field.get("parameters")
    try:
        return int(parameters["scale"]) if isinstance(parameters, Mapping) else None
    except (KeyError, ValueError, TypeError):
        return None
