# SPDX-License-Identifier: Apache-2.0
"""Avro schemas and values of all kinds, and what a table is to have of a value that `fastavro` has read.

The expectation is in plain Python: nothing of the decoder is used, and nothing of Arrow.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any
from uuid import UUID

from fastavro import parse_schema, schemaless_reader
from hypothesis import strategies as st

__all__ = ["encoded", "expected", "read_by_reference", "schemas", "values_of", "word"]

_INT, _LONG = 2**31, 2**63
_MICROS = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_EPOCH = datetime(1970, 1, 1)
_PLAIN = ("boolean", "int", "long", "float", "double", "bytes", "string")
_UNITS = {"millis": 1000, "micros": 1, "nanos": 0}
_TIMES = [
    {"type": "int", "logicalType": "date"},
    {"type": "int", "logicalType": "time-millis"},
    {"type": "long", "logicalType": "time-micros"},
    *({"type": "long", "logicalType": f"{local}timestamp-{unit}"} for local in ("", "local-") for unit in _UNITS),
    {"type": "string", "logicalType": "uuid"},
]


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, least: int = 1) -> dict[str, Any]:
    """A record with fields of any kind. Named types are of different names."""
    names = iter(range(10_000))
    return _record(draw, depth, names, least)


def _record(draw: st.DrawFn, depth: int, names: Any, least: int = 1) -> dict[str, Any]:
    many = draw(st.integers(least, 5))
    fields = [{"name": f"f{n}", "type": _type(draw, depth - 1, names)} for n in range(many)]
    return {"type": "record", "name": f"R{next(names)}", "fields": fields}


def _type(draw: st.DrawFn, depth: int, names: Any, union: bool = True) -> Any:
    kinds = ["plain", "plain", "time", "enum", "fixed", "decimal"]
    kinds += ["record", "array", "map"] if depth > 0 else []
    kinds += ["optional", "optional", "union"] if union else []
    match draw(st.sampled_from(kinds)):
        case "plain":
            return draw(st.sampled_from(_PLAIN))
        case "time":
            return draw(st.sampled_from(_TIMES))
        case "enum":
            return {
                "type": "enum",
                "name": f"E{next(names)}",
                "symbols": [f"S{n}" for n in range(draw(st.integers(1, 5)))],
            }
        case "fixed":
            return {"type": "fixed", "name": f"X{next(names)}", "size": draw(st.integers(1, 20))}
        case "decimal":
            return _decimal(draw, names)
        case "record":
            return _record(draw, depth, names)
        case "array":
            return {"type": "array", "items": _type(draw, depth - 1, names)}
        case "map":
            return {"type": "map", "values": _type(draw, depth - 1, names)}
        case "optional":
            inner = _type(draw, depth, names, union=False)
            return draw(st.permutations(["null", inner]))
    return _union(draw, depth, names)


def _union(draw: st.DrawFn, depth: int, names: Any) -> list[Any]:
    parts: dict[str, Any] = {}
    for _ in range(draw(st.integers(2, 4))):
        part = _type(draw, depth, names, union=False)
        parts.setdefault(word(part), part)
    return draw(st.permutations([*parts.values(), *(["null"] if draw(st.booleans()) else [])]))


def word(kind: Any) -> str:
    """By which Avro tells the types of a union apart."""
    if isinstance(kind, str):
        return kind
    return str(kind.get("name", kind["type"]))


def _decimal(draw: st.DrawFn, names: Any) -> dict[str, Any]:
    precision = draw(st.integers(1, 38))
    stated = {"logicalType": "decimal", "precision": precision, "scale": draw(st.integers(0, precision))}
    if draw(st.booleans()):
        return {"type": "bytes", **stated}
    least = next(n for n in range(1, 20) if 10**precision < 2 ** (8 * n - 1))
    return {"type": "fixed", "name": f"D{next(names)}", "size": least + draw(st.integers(0, 4)), **stated}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values as Avro has them, logical types as what stands behind them, unions as pairs of word and value."""
    if isinstance(kind, list):
        return st.one_of(*(st.tuples(st.just(n), values_of(part)) for n, part in enumerate(kind)))
    stated = kind if isinstance(kind, Mapping) else {"type": kind}
    if "logicalType" in stated:
        return _logical_values(stated)
    match stated["type"]:
        case "record":
            return st.fixed_dictionaries({f["name"]: values_of(f["type"]) for f in stated["fields"]})
        case "array":
            return st.lists(values_of(stated["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=5), values_of(stated["values"]), max_size=4)
        case "enum":
            return st.sampled_from(range(len(stated["symbols"])))
        case "fixed":
            return st.binary(min_size=stated["size"], max_size=stated["size"])
    return _PLAIN_VALUES[stated["type"]]


_PLAIN_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-_INT, _INT - 1),
    "long": st.integers(-_LONG, _LONG - 1) | st.integers(-200, 200),
    "float": st.floats(width=32),
    "double": st.floats(),
    "bytes": st.binary(max_size=30),
    "string": st.text(max_size=30),
}


def _logical_values(stated: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    logical = stated["logicalType"]
    if logical == "decimal":
        most = 10 ** stated["precision"] - 1
        return st.integers(-most, most)
    if logical == "uuid":
        return st.uuids().map(str)
    if logical == "date":
        return st.integers(-719_162, 2_932_896)
    if logical.startswith("time-"):
        return st.integers(0, 86_400 * (1000 if logical.endswith("millis") else 1_000_000) - 1)
    scale = _UNITS[logical.rpartition("-")[2]]
    if scale == 0:
        return st.integers(-_LONG, _LONG - 1)
    return st.integers(-(-_MICROS[0] // scale), _MICROS[1] // scale)


def encoded(kind: Any, value: Any) -> bytes:
    """The bytes of a value, made here: nothing of `fastavro` is used."""
    if isinstance(kind, list):
        return _number(value[0]) + encoded(kind[value[0]], value[1])
    stated = kind if isinstance(kind, Mapping) else {"type": kind}
    logical = stated.get("logicalType")
    match stated["type"]:
        case "record":
            return b"".join(encoded(f["type"], value[f["name"]]) for f in stated["fields"])
        case "array":
            return _blocks([encoded(stated["items"], each) for each in value])
        case "map":
            return _blocks([encoded("string", key) + encoded(stated["values"], each) for key, each in value.items()])
        case "fixed" if logical == "decimal":
            return bytes(value.to_bytes(stated["size"], signed=True))
        case "bytes" if logical == "decimal":
            return encoded("bytes", value.to_bytes((value.bit_length() + 8) // 8, signed=True))
    return _ENCODERS[stated["type"]](value)


def _blocks(items: list[bytes]) -> bytes:
    """In two blocks if there are enough, the first one with its length."""
    if len(items) < 3:
        return (_number(len(items)) + b"".join(items) if items else b"") + _number(0)
    first = b"".join(items[:2])
    return _number(-2) + _number(len(first)) + first + _number(len(items) - 2) + b"".join(items[2:]) + _number(0)


def _spanned(octets: bytes) -> bytes:
    return _number(len(octets)) + octets


def _number(value: int) -> bytes:
    raw, out = (value << 1) ^ (value >> 63), b""
    while raw > 0x7F:
        out += bytes([raw & 0x7F | 0x80])
        raw >>= 7
    return out + bytes([raw])


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"",
    "boolean": lambda value: bytes([value]),
    "int": _number,
    "long": _number,
    "enum": _number,
    "float": partial(struct.pack, "<f"),
    "double": partial(struct.pack, "<d"),
    "fixed": bytes,
    "bytes": _spanned,
    "string": lambda value: _spanned(value.encode()),
}


def read_by_reference(schema: Any, octets: bytes) -> tuple[Any, int]:
    """What `fastavro` reads, logical types left as what stands behind them, and how many bytes it took.

    :raises Exception: whatever it raises
    """
    source = io.BytesIO(octets)
    value = schemaless_reader(source, parse_schema(_bare(schema)), None, return_record_name=False)
    return value, source.tell()


def _bare(kind: Any) -> Any:
    if isinstance(kind, list):
        return [_bare(part) for part in kind]
    if isinstance(kind, Mapping):
        return {key: _bare(each) for key, each in kind.items() if key not in ("logicalType", "precision", "scale")}
    return kind


def expected(kind: Any, value: Any) -> Any:
    """What a table has of a value as :func:`values_of` makes it."""
    if isinstance(kind, list):
        return _expected_of_union(kind, value)
    stated = kind if isinstance(kind, Mapping) else {"type": kind}
    if "logicalType" in stated:
        return _expected_logical(stated, value)
    match stated["type"]:
        case "record":
            return {f["name"]: expected(f["type"], value[f["name"]]) for f in stated["fields"]}
        case "array":
            return [expected(stated["items"], each) for each in value]
        case "map":
            return [(key, expected(stated["values"], each)) for key, each in value.items()]
        case "enum":
            return stated["symbols"][value]
        case "float":
            return struct.unpack("<f", struct.pack("<f", value))[0]
    return value


def _expected_of_union(kind: list[Any], value: Any) -> Any:
    number, inner = value
    several = [part for part in kind if part != "null"]
    if kind[number] == "null":
        return None
    if len(several) == 1:
        return expected(kind[number], inner)
    return {word(part): expected(part, inner) if part is kind[number] else None for part in several}


def _expected_logical(stated: Mapping[str, Any], value: Any) -> Any:
    logical = stated["logicalType"]
    if logical == "decimal":
        return (
            Decimal(value).scaleb(-stated["scale"]) if abs(value) < 10**28 else Decimal(f"{value}E-{stated['scale']}")
        )
    if logical == "uuid":
        return UUID(value)
    if logical == "date":
        return date(1970, 1, 1) + timedelta(days=value)
    unit = logical.rpartition("-")[2]
    if unit == "nanos":
        return value
    moment = _EPOCH + timedelta(microseconds=value * _UNITS[unit])
    if logical.startswith("time-"):
        return moment.time()
    return moment if logical.startswith("local") else moment.replace(tzinfo=UTC)
