# SPDX-License-Identifier: Apache-2.0
"""The schema that records were written with, as a tree.

Contract: pure. :func:`writer_type` takes what a registry or a landing states, checks it by `fastavro`'s own parser, and
gives a tree in which names are replaced by what they name. ``least`` is how many bytes a value has at least: a count of
items that cannot be in what is left of a record is told from one that can.

Failure story: a text that is no Avro schema, or a type that holds itself, is a
:class:`~airflow_provider_lakecommit.formats.decoder.Refusal` that names it: a table has no recursive types.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException, UnknownType, parse_schema

from airflow_provider_lakecommit.formats.decoder import Refusal

__all__ = ["WriterField", "WriterType", "writer_type"]

_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_PRIMITIVES = frozenset(_LEAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterType:
    """One type. ``kind`` is Avro's word for it; ``name`` is that of a record, enum or fixed, without its namespace.

    ``logical`` is its logical type, if it is one that Avro knows and that stands where it may. ``parts`` are the
    branches of a union, the items of an array, the values of a map.
    """

    kind: str
    name: str
    logical: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    fields: tuple[WriterField, ...] = ()
    parts: tuple[WriterType, ...] = ()
    least: int = 0

    @property
    def nullable(self) -> bool:
        """May a value be null?"""
        return self.kind == "null" or (self.kind == "union" and any(p.kind == "null" for p in self.parts))

    @property
    def stride(self) -> int | None:
        """Bytes of each value, if all have as many; 0 of numbers, which end by themselves; ``None`` of all else."""
        if self.kind in ("int", "long", "enum"):
            return 0
        return self.least if self.kind in ("boolean", "float", "double", "fixed") and self.least else None

    def __str__(self) -> str:
        if self.kind == "union":
            return f"a union of {', '.join(map(str, self.parts))}"
        shown = self.kind if self.name == self.kind else f"{self.kind} {self.name}"
        if self.logical == "decimal":
            return f"{shown} (decimal({self.precision}, {self.scale}))"
        return f"{shown} ({self.logical})" if self.logical else shown


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterField:
    """A field of a record; ``default`` is JSON."""

    name: str
    type: WriterType
    aliases: tuple[str, ...] = ()
    default: str | None = None


def writer_type(text: str, imported: Sequence[str] = ()) -> WriterType:
    """The tree of a schema.

    :param imported: texts of the schemas that it names, each before what names it
    :raises Refusal: it is no Avro schema, or cannot be read into a table
    """
    named: dict[str, Any] = {}
    try:
        for each in imported:
            _parsed(json.loads(each), named)
        parsed = _parsed(_loaded(text), named)
    except (SchemaParseException, UnknownType, ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise _refused(f"is no Avro schema: {type(e).__name__}: {str(e)[:200]}") from None
    return _type(parsed, named, ())


def _parsed(stated: Any, named: dict[str, Any]) -> Any:
    """Checked, but for its defaults: registries have let wrong ones in, and who reads what was written needs none."""
    return parse_schema(stated, named_schemas=named, _ignore_default_error=True)


def _loaded(text: str) -> Any:
    """Some registries give the name of a primitive type without its quotes."""
    return text if text in _PRIMITIVES else json.loads(text)


def _type(found: Any, named: Mapping[str, Any], above: tuple[str, ...]) -> WriterType:
    if isinstance(found, str) and found not in _PRIMITIVES:
        found = named[found]
    if isinstance(found, list):
        parts = tuple(_type(each, named, above) for each in found)
        return WriterType(kind="union", name="union", parts=parts, least=1 + min((p.least for p in parts), default=0))
    stated = found if isinstance(found, dict) else {"type": found}
    kind = stated["type"]
    if not isinstance(kind, str) or (kind in named and kind not in _PRIMITIVES):
        # A type within a type: {"type": {"type": "long", …}}.
        return _type(kind, named, above)
    if kind in ("record", "error"):
        return _record(stated, named, above)
    if kind in ("array", "map"):
        inner = _type(stated["items" if kind == "array" else "values"], named, above)
        return WriterType(kind=kind, name=kind, parts=(inner,), least=1)
    return _scalar(kind, stated)


def _record(stated: Mapping[str, Any], named: Mapping[str, Any], above: tuple[str, ...]) -> WriterType:
    full = stated["name"]
    if full in above:
        raise _refused(f"has the type {full}, which holds itself: tables have no recursive types")
    fields = tuple(
        WriterField(
            name=each["name"],
            type=_type(each["type"], named, (*above, full)),
            aliases=tuple(each.get("aliases", ())),
            default=json.dumps(each["default"]) if "default" in each else None,
        )
        for each in stated["fields"]
    )
    return WriterType(kind="record", name=_short(full), fields=fields, least=sum(f.type.least for f in fields))


def _scalar(kind: str, stated: Mapping[str, Any]) -> WriterType:
    size = int(stated["size"]) if kind == "fixed" else 0
    logical = _logical(kind, size, stated)
    exact = logical == "decimal"
    return WriterType(
        kind=kind,
        name=_short(stated["name"]) if kind in ("enum", "fixed") else kind,
        logical=logical,
        precision=int(stated["precision"]) if exact else 0,
        scale=int(stated.get("scale", 0)) if exact else 0,
        size=size,
        symbols=tuple(stated.get("symbols", ())),
        least=1 if kind == "enum" else size if kind == "fixed" else _LEAST[kind],
    )


_INSTANTS = tuple(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos"))
_STANDS_AT = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "uuid": ("string", "fixed"),
    **dict.fromkeys(_INSTANTS, ("long",)),
}


def _logical(kind: str, size: int, stated: Mapping[str, Any]) -> str | None:
    """The logical type; one that is not known, or not valid, is passed over, as Avro's specification says."""
    logical = stated.get("logicalType")
    if not isinstance(logical, str) or kind not in _STANDS_AT.get(logical, ()):
        return None
    if logical == "uuid" and kind == "fixed" and size != 16:
        return None
    if logical == "decimal":
        precision, scale = stated.get("precision"), stated.get("scale", 0)
        if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision > 0:
            return None
    return logical


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _refused(why: str) -> Refusal:
    return Refusal("wrong_schema", None, f"the schema {why}")
