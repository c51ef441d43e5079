# SPDX-License-Identifier: Apache-2.0
"""Iceberg type texts, nested ones too: ``struct<a: long, b: list<string>>`` to a tree.

Contract: reads what Iceberg's own type strings say, plus a nested type's parts in angle brackets. A mistake is a
``ValueError`` that says at which place what was expected.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

__all__ = ["PRIMITIVES", "TypeText", "parse_type"]

_SIMPLE: dict[str, PrimitiveType] = {
    str(t): t
    for t in (
        *(BooleanType(), IntegerType(), LongType(), FloatType(), DoubleType(), StringType(), BinaryType(), UUIDType()),
        *(DateType(), TimeType(), TimestampType(), TimestamptzType(), TimestampNanoType(), TimestamptzNanoType()),
    )
}
PRIMITIVES = (
    f"allowed are {', '.join(_SIMPLE)}, decimal(precision, scale), fixed(length), struct<name: type, …>, list<type>, "
    "map<type, type>"
)
_REFUSED = {
    "variant": "it is not landed from JSON; use a string, a struct or a map",
    "geometry": "JSON has no agreed form of it; use binary or a string",
    "geography": "JSON has no agreed form of it; use binary or a string",
    "unknown": "nothing can be landed in it; leave the column out until its type is known",
}
_MAX_PRECISION = 38
_TOKEN = re.compile(r"\s*(decimal\s*\(\s*\d+\s*,\s*\d+\s*\)|fixed\s*[(\[]\s*\d+\s*[)\]]|[<>,:]|[^\s<>,:]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeText:
    """A type: ``primitive``, or a ``struct``, ``list`` or ``map`` of ``parts``; only a struct's have names."""

    kind: str
    primitive: PrimitiveType | None = None
    parts: tuple[tuple[str, TypeText], ...] = ()


def parse_type(text: str) -> TypeText:
    """Parse a whole type text.

    :raises ValueError: saying what is wrong with it
    """
    tokens = _TOKEN.findall(text)
    parser = _Parser(tokens)
    try:
        found = parser.type()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if parser.rest:
        raise ValueError(f"{' '.join(parser.rest)!r} is left over")
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
                raise ValueError(f"{name!r} is not the name of another field")
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


def _primitive(word: str) -> PrimitiveType:
    if word in _SIMPLE:
        return _SIMPLE[word]
    numbers = [int(n) for n in re.findall(r"\d+", word)]
    if word.startswith("decimal") and len(numbers) == 2:
        precision, scale = numbers
        if not 1 <= precision <= _MAX_PRECISION or scale > precision:
            raise ValueError(f"precision 1 to {_MAX_PRECISION} and a scale up to it are allowed")
        return DecimalType(precision, scale)
    if re.fullmatch(r"fixed\s*[(\[].*", word) and numbers and numbers[0] > 0:
        return FixedType(numbers[0])
    raise ValueError(_REFUSED.get(word.split("(")[0], PRIMITIVES))
