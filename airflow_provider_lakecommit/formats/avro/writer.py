# SPDX-License-Identifier: Apache-2.0
"""The schema that records were written with, as a tree.

Contract: pure. :func:`writer_type` parses the text of a registry or landing into a tree in which names are resolved,
each named type once, however often it is used: as Avro's specification and, where that is open, its Java library do. A
name missing in its namespace is searched without one, a null namespace counts as not stated, and a name may precede its
definition. ``least`` is a value's fewest bytes: it shows if a count of items fits in the rest of a record. Types of a
union have distinct names: of equal ones, full names are used, with ``_`` for each dot. Parts without effect on the
encoding (defaults, documentation, names invalid in Avro, invalid logical types) do not refuse a schema.

Failure story: an invalid Avro schema, a recursive type, and nesting beyond :data:`DEEPEST` are a
:class:`~airflow_provider_lakecommit.formats.decoder.Refusal` that names it: tables have no recursive types, and
registries are not trusted to check schemas.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

from airflow_provider_lakecommit.formats.avro.items import Walk, walk_over
from airflow_provider_lakecommit.formats.decoder import Refusal

DEEPEST = 100
"""Deepest nesting: readers call each other, and Python's stack is limited."""
_LEAST = {"null": 0, "boolean": 1, "int": 1, "long": 1, "float": 4, "double": 8, "bytes": 1, "string": 1}
_MOST_OCTETS = (1 << 31) - 1
"""Most bytes of a fixed value, and the largest useful ``least``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterType:
    """One type. ``kind`` is Avro's word for it; ``name`` is that of a record, enum or fixed, without its namespace,
    ``full`` with it.

    ``logical`` is its logical type, if known to Avro and valid there. ``parts`` are the branches of a union, the items
    of an array, the values of a map. ``shared`` is a short name that several types of a union have. ``meaning`` is
    Kafka Connect's name for the values of a number without a logical type. ``depth`` is the nesting below. ``walk``
    moves past a value.
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
    shared: str = ""
    full: str = ""
    meaning: str = ""
    depth: int = field(init=False, repr=False, compare=False)
    walk: Walk | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        inner = (*self.parts, *(each.type for each in self.fields))
        empty = self.kind == "array" and self.parts[0].least == 0
        walk = None if empty else walk_over(self.kind, self.size, [each.walk for each in inner])
        object.__setattr__(self, "walk", walk)
        object.__setattr__(self, "depth", 1 + max((each.depth for each in inner), default=0))

    @property
    def nullable(self) -> bool:
        return self.kind == "null" or (self.kind == "union" and any(p.kind == "null" for p in self.parts))

    @property
    def stride(self) -> int | None:
        """Return the bytes of each value, if equal for all; 0 for numbers, which end by themselves; else ``None``."""
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


class _SchemaError(ValueError):
    """A text is not a schema."""


def writer_type(text: str, imported: Sequence[str] = ()) -> WriterType:
    """Return the tree of a schema.

    :param imported: texts of the schemas that it imports, each before its user
    :raises Refusal: it is not an Avro schema, or cannot be read into a table
    """
    tree = _Tree()
    try:
        for each in imported:
            tree.define(json.loads(each))
        # Some registries return a primitive type without quotes.
        stated = text if text in _LEAST else json.loads(text)
        tree.define(stated)
        return tree.type(stated, "", ())
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        problem = str(e) if isinstance(e, _SchemaError) else f"{type(e).__name__}: {e}"
        raise _refused(f"is not an Avro schema: {problem[:200]}") from None


_NAMED = frozenset({"record", "error", "enum", "fixed"})
_INNER = {"array": "items", "map": "values"}


class _Tree:
    """Makes the tree of a schema, whose named types may be those of the schemas that it imports."""

    def __init__(self) -> None:
        self._defined: dict[str, tuple[Mapping[str, Any], str]] = {}
        """Definitions by full name, each with the namespace around it."""
        self._made: dict[str, WriterType] = {}

    def define(self, stated: Any, space: str = "") -> None:
        """Register the definitions of a schema. Of several with one name the first one counts."""
        if isinstance(stated, list):
            for each in stated:
                self.define(each, space)
        elif isinstance(stated, Mapping) and isinstance(kind := stated.get("type"), str):
            if kind in _INNER:
                self.define(stated.get(_INNER[kind]), space)
            elif kind in _NAMED:
                full = _full_name(stated, space)
                self._defined.setdefault(full, (stated, space))
                for each in stated.get("fields", ()) if kind in ("record", "error") else ():
                    if isinstance(each, Mapping):
                        self.define(each.get("type"), full.rpartition(".")[0])

    def type(self, stated: Any, space: str, above: tuple[str, ...]) -> WriterType:
        """
        :param space: the namespace around it
        :param above: what it is within, by name or kind
        """
        made = self._type(stated, space, above)
        if len(above) + made.depth > DEEPEST + 1:
            raise _too_deep()
        return made

    def _type(self, stated: Any, space: str, above: tuple[str, ...]) -> WriterType:
        if len(above) > DEEPEST:
            raise _too_deep()
        if isinstance(stated, list):
            return self._union(stated, space, above)
        kind = stated["type"] if isinstance(stated, Mapping) else stated
        match kind:
            case "record" | "error" | "enum" | "fixed" if kind is not stated:
                return self._named(kind, stated, space, above)
            case "array" | "map" if kind is not stated:
                inner = self.type(stated["items" if kind == "array" else "values"], space, (*above, kind))
                return WriterType(kind=kind, name=kind, parts=(inner,), least=1)
            case str() if kind in _LEAST:
                return _scalar(kind, stated if isinstance(stated, Mapping) else {})
        return self._by_name(kind, space, above)

    def _by_name(self, name: Any, space: str, above: tuple[str, ...]) -> WriterType:
        near = f"{space}.{name}" if space and "." not in str(name) else name
        found = (self._defined[full] for full in (near, name) if isinstance(full, str) and full in self._defined)
        if (definition := next(found, None)) is None:
            raise _SchemaError(f"unknown type {str(name)[:100]!r}")
        stated, around = definition
        full = _full_name(stated, around)
        if full in self._made and full not in above:
            return self._made[full]
        return self._named(stated["type"], stated, around, above)

    def _named(self, kind: str, stated: Mapping[str, Any], space: str, above: tuple[str, ...]) -> WriterType:
        full = _full_name(stated, space)
        if full in above:
            raise _refused(f"has the recursive type {full}, which tables cannot hold")
        if kind in ("record", "error"):
            inner = full.rpartition(".")[0]
            fields = tuple(self._field(each, inner, (*above, full)) for each in stated["fields"])
            if twice := [name for name, n in Counter(f.name for f in fields).items() if n > 1]:
                raise _SchemaError(f"type {full} has the field {twice[0]} twice")
            least = min(sum(f.type.least for f in fields), _MOST_OCTETS)
            made = WriterType(kind="record", name=_short(full), full=full, fields=fields, least=least)
        else:
            made = replace(_scalar(kind, stated), name=_short(full), full=full)
        # A type may be repeated where it is used again, with the same definition.
        if self._made.setdefault(full, made) != made:
            raise _SchemaError(f"type {full} has two different definitions")
        return self._made[full]

    def _union(self, stated: list[Any], space: str, above: tuple[str, ...]) -> WriterType:
        parts = [self.type(each, space, (*above, "union")) for each in stated]
        count = Counter(part.name for part in parts)
        for n, part in enumerate(parts):
            if count[part.name] > 1:
                parts[n] = replace(part, name=(part.full or part.name).replace(".", "_"), shared=part.name)
        if twice := [name for name, n in Counter(part.name for part in parts).items() if n > 1]:
            raise _refused(f"has a union with {twice[0]} in it twice")
        return WriterType(
            kind="union", name="union", parts=tuple(parts), least=1 + min((p.least for p in parts), default=0)
        )

    def _field(self, stated: Mapping[str, Any], space: str, above: tuple[str, ...]) -> WriterField:
        if not isinstance(stated["name"], str):
            raise _refused(f"has a field with the name {stated['name']!r}, which is not a text")
        aliases = tuple(alias for alias in stated.get("aliases", ()) if isinstance(alias, str))
        default = json.dumps(stated["default"]) if "default" in stated else None
        kind = self.type(stated["type"], space, above)
        return WriterField(name=stated["name"], type=kind, aliases=aliases, default=default)


def _scalar(kind: str, stated: Mapping[str, Any]) -> WriterType:
    size = _size(stated["size"]) if kind == "fixed" else 0
    logical = _logical(kind, size, stated)
    exact = logical == "decimal"
    return WriterType(
        kind=kind,
        name=kind,
        logical=logical,
        precision=int(stated["precision"]) if exact else 0,
        scale=int(stated.get("scale", 0)) if exact else 0,
        size=size,
        symbols=_symbols(stated["symbols"]) if kind == "enum" else (),
        meaning=str(stated.get("connect.name", "")) if kind in ("int", "long") and logical is None else "",
        least=1 if kind == "enum" else size if kind == "fixed" else _LEAST[kind],
    )


_INSTANTS = tuple(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos"))
_POSITIONS = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    "uuid": ("string", "fixed"),
    **dict.fromkeys(_INSTANTS, ("long",)),
}


def _logical(kind: str, size: int, stated: Mapping[str, Any]) -> str | None:
    """Return the logical type; an unknown or invalid one is ignored, as Avro's specification says."""
    logical = stated.get("logicalType")
    if not isinstance(logical, str) or kind not in _POSITIONS.get(logical, ()):
        return None
    if logical == "uuid" and kind == "fixed" and size != 16:
        return None
    if logical == "decimal":
        precision, scale = stated.get("precision"), stated.get("scale", 0)
        if not _whole(precision) or not _whole(scale) or not 0 <= scale <= precision > 0:
            return None
        if kind == "fixed" and precision > math.floor(math.log10(2) * (8 * size - 1)):
            return None
    return logical


def _whole(stated: Any) -> TypeGuard[int]:
    return isinstance(stated, int) and not isinstance(stated, bool)


def _size(stated: Any) -> int:
    if not isinstance(stated, int) or not 0 <= stated <= _MOST_OCTETS:
        raise _refused(f"has a value of a fixed size of {stated!r} bytes")
    return stated


def _symbols(stated: Any) -> tuple[str, ...]:
    symbols = tuple(stated)
    if isinstance(stated, str) or not all(isinstance(each, str) for each in symbols):
        raise _SchemaError("an enum has symbols that are not texts")
    return symbols


def _full_name(stated: Mapping[str, Any], space: str) -> str:
    name, own = stated.get("name"), stated.get("namespace")
    if not isinstance(name, str) or not name:
        raise _SchemaError(f"type {stated.get('type')} has no name")
    if "." in name:
        return name.removeprefix(".")
    space = space if own is None else str(own)
    return f"{space}.{name}" if space else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _too_deep() -> Refusal:
    return _refused(f"has types nested more than {DEEPEST} deep")


def _refused(why: str) -> Refusal:
    return Refusal("wrong_schema", None, f"the schema {why}")
