# SPDX-License-Identifier: Apache-2.0
"""Iceberg type texts, nested ones too: ``struct<a: long, b: list<string>>`` as a mapping of its parts.

Contract: pure, so that a declaration can be checked without an Iceberg library. Reads Iceberg's own type strings, and
nested parts in angle brackets. A nested type becomes the mapping by which ``create.schema`` may state it. A mistake is
a ``ValueError`` with the place, what was expected there, and the type that may have been meant.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

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
    word: here
    for here, words in {
        "boolean": "bool",
        "int": "integer int2 int4 int16 int32 smallint tinyint mediumint short serial",
        "long": "bigint int64 int8 bigserial int_unsigned",
        "float": "real float4 float32",
        "double": "float8 float64 double_precision",
        "decimal": "number numeric dec money decimal",
        "string": "str text varchar char character nvarchar nchar varchar2 character_varying clob json jsonb enum",
        "binary": "bytes bytea blob varbinary",
        "uuid": "guid uniqueidentifier",
        "time": "time_without_time_zone",
        "timestamp": "datetime datetime2 timestamp_ntz timestamp_without_time_zone",
        "timestamptz": "timestamp_with_time_zone timestamp_with_local_time_zone timestamp_tz timestamp_ltz",
        "list": "array",
        "struct": "record row",
    }.items()
    for word in words.split()
}
"""Type names of other systems, with ``_`` between words, to those of Iceberg."""
_WORDS = re.compile(r"[A-Za-z_]\w*+(?:\s*\([^)]*\))?+(?:\s+[A-Za-z]\w*)*+(?:\s*\([^)]*\))?+(?!\s*:)")
"""A type with all its words and sizes, as in `timestamp(3) with time zone`; not the name of a field."""
_MAX_PRECISION = 38
_TOKEN = re.compile(r"\s*(decimal\s*\(\s*\d+\s*,\s*\d+\s*\)|fixed\s*[(\[]\s*\d+\s*[)\]]|[<>,:]|[^\s<>,:]+)")


def parse_type(text: str) -> str | dict[str, Any]:
    """Parse a whole type text: the word of a primitive type, or a mapping with ``struct``, ``list`` or ``map``.

    :raises ValueError: saying what is wrong, and which type was probably meant
    """
    with suppress(ValueError):
        return _parsed(text)
    here = _WORDS.sub(_in_iceberg, text)
    _parsed(here)
    raise ValueError(f"use {here!r}")


def _in_iceberg(found: re.Match[str]) -> str:
    sizes = sizes_of("".join(re.findall(r"\(.*?\)", found[0])))
    plain = "_".join(re.sub(r"\(.*?\)", " ", found[0]).lower().split())
    here = _ELSEWHERE.get(plain, plain)
    if here == "decimal" and sizes:
        return f"decimal({sizes[0]}, {(*sizes, 0)[1]})"
    return here if here in (*SIMPLE, "list", "map", "struct") else found[0]


def _parsed(text: str) -> str | dict[str, Any]:
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

    def type(self) -> str | dict[str, Any]:
        word = self._next("a type")
        if word == "struct":
            return self._struct()
        if word == "list":
            self._expect("<")
            element = self.type()
            self._expect(">")
            return {"list": element}
        if word == "map":
            self._expect("<")
            key = self.type()
            self._expect(",")
            value = self.type()
            self._expect(">")
            return {"map": {"key": key, "value": value}}
        return _primitive(word)

    def _struct(self) -> dict[str, Any]:
        self._expect("<")
        fields: list[dict[str, Any]] = []
        while True:
            name = self._next("a field name")
            if not re.fullmatch(r"[^<>,:]+", name) or any(name == other["name"] for other in fields):
                raise ValueError(f"{name!r} is the name of an earlier field too")
            self._expect(":")
            fields.append({"name": name, "type": self.type()})
            if (mark := self._next("',' or '>'")) == ">":
                return {"struct": fields}
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
    if _ELSEWHERE.get(plain) == "decimal":
        raise ValueError("state its digits, as in decimal(18, 2)")
    raise ValueError(_REFUSED.get(plain, f"{word!r} is unknown; {PRIMITIVES}{meant(plain, SIMPLE)}"))


def sizes_of(word: str) -> list[int]:
    """Return the numbers in the word of a primitive type: precision and scale, or a length."""
    return [int(n) for n in re.findall(r"\d+", word)]
