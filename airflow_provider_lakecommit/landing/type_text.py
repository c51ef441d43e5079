# SPDX-License-Identifier: Apache-2.0
"""Iceberg type texts, nested ones too: ``struct<a: long, b: list<string>>`` to a tree.

Contract: pure, so that a declaration can be checked without an Iceberg library. Reads Iceberg's own type strings, and
nested parts in angle brackets. A mistake is a ``ValueError`` with the place, what was expected there, and the type that
may have been meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_provider_lakecommit.landing.names import meant

SIMPLE = (
    *("boolean", "int", "long", "float", "double", "string", "binary", "uuid"),
    *("date", "time", "timestamp", "timestamptz", "timestamp_ns", "timestamptz_ns"),
)
PRIMITIVES = (
    f"allowed are {', '.join(SIMPLE)}, decimal(precision, scale), fixed(length), struct<name: type, …>, list<type>, "
    "map<type, type>"
)
_REFUSED = {
    "variant": "JSON cannot be landed in it; use a string, a struct or a map",
    "geometry": "JSON has no agreed form of it; use binary or a string",
    "geography": "JSON has no agreed form of it; use binary or a string",
    "unknown": "it holds no values; leave the column out until its type is known",
}
_ELSEWHERE = {
    "bigint": "long",
    "bool": "boolean",
    "datetime": "timestamp",
    "integer": "int",
    "int64": "long",
    "int32": "int",
    "number": "decimal(precision, scale)",
    "numeric": "decimal(precision, scale)",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "array": "list<type>",
    "bytes": "binary",
}
"""Type names of other systems."""
_MAX_PRECISION = 38
_TOKEN = re.compile(r"\s*(decimal\s*\(\s*\d+\s*,\s*\d+\s*\)|fixed\s*[(\[]\s*\d+\s*[)\]]|[<>,:]|[^\s<>,:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeText:
    """A type: ``primitive`` by name, or ``struct``, ``list`` or ``map`` of ``parts``; only a struct's have names."""

    kind: str
    primitive: str = ""
    parts: tuple[tuple[str, TypeText], ...] = ()


def parse_type(text: str) -> TypeText:
    """Parse a whole type text.

    :raises ValueError: saying what is wrong
    """
    tokens = _TOKEN.findall(text)
    parser = _Parser(tokens)
    try:
        found = parser.type()
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if parser.rest:
        raise ValueError(f"{' '.join(parser.rest)!r} after the end of the type")
    return found


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self.rest = tokens

    def type(self) -> TypeText:
        word = self._next("a type")
        if word == "struct":
            return self._struct()
        if word == "list":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return TypeText(kind="list", parts=(("", element),))
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return TypeText(kind="map", parts=(("", key), ("", value)))
        return TypeText(kind="primitive", primitive=_primitive(word))

    def _struct(self) -> TypeText:
        self._expect("<")
        parts: list[tuple[str, TypeText]] = []
        while True:
            name = self._next("a field name")
            if not re.fullmatch(r"[^<>,:]+", name) or any(name == other for other, _ in parts):
                raise ValueError(f"{name!r} is the name of an earlier field too")
            self._expect(":")
            parts.append((name, self.type()))
            if (mark := self._next("',' or '>'")) == ">":
                return TypeText(kind="struct", parts=tuple(parts))
            if mark != ",":
                raise ValueError(f"',' or '>' expected, found {mark!r}")

    def _next(self, what: str) -> str:
        if not self.rest:
            raise ValueError(f"{what} expected, found the end; {PRIMITIVES}")
        return self.rest.pop(0)

    def _expect(self, mark: str) -> None:
        if (found := self._next(repr(mark))) != mark:
            raise ValueError(f"{mark!r} expected, found {found!r}")


def _primitive(word: str) -> str:
    if word in SIMPLE:
        return word
    numbers = sizes_of(word)
    if word.startswith("decimal") and len(numbers) == 2:
        precision, scale = numbers
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise ValueError(f"precision 1 to {_MAX_PRECISION} and a scale up to it are allowed")
        return word
    if re.fullmatch(r"fixed\s*[(\[].*", word) and numbers and numbers[0] > 0:
        return word
    plain = word.split("(")[0].lower()
    if (other := _ELSEWHERE.get(plain)) is not None:
        raise ValueError(f"{PRIMITIVES} (did you mean {other!r}?)")
    raise ValueError(_REFUSED.get(plain, f"{PRIMITIVES}{meant(plain, SIMPLE)}"))


def sizes_of(word: str) -> list[int]:
    """Return the numbers in the word of a primitive type: precision and scale, or a length."""
    return [int(n) for n in re.findall(r"\d+", word)]
