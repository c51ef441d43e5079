# SPDX-License-Identifier: Apache-2.0
"""A second, slow reader of JSON records that shares no code with the decoder: Python's parser and a schema walk."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

EPOCH = datetime(1970, 1, 1)
DAY = 86_400 * 10**9
NANOS = {"seconds": 10**9, "millis": 10**6, "micros": 10**3, "nanos": 1}
BARE_KEYS = (BooleanType, IntegerType, LongType, DecimalType)
SINGLE_MAX = float(np.finfo(np.float32).max)


class Refused(Exception):
    """The record cannot be a row."""


class Number(str):
    """The text of a JSON number."""


class Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, repeated ones included."""


def row_or_none(schema: Schema, rules: dict[str, str], value: bytes, strict: bool = False) -> dict[str, Any] | None:
    """The record as a row, or nothing when it must be refused."""
    try:
        return row(schema, rules, value, strict)
    except Refused:
        return None


def row(schema: Schema, rules: dict[str, str], value: bytes, strict: bool = False) -> dict[str, Any]:
    """The record as a row. Timestamps as numbers of their unit, maps as lists of pairs, floats as they are stored.

    :param rules: of timestamps and of encodings, per column path
    """
    try:
        record = loads(value.decode())
    except UnicodeDecodeError as e:
        raise Refused(str(e)) from e
    if not isinstance(record, Pairs) or has_lone_surrogate(record):
        raise Refused("not an object of text")
    return members(schema.fields, rules, "", record, strict)


def loads(text: str) -> Any:
    try:
        return json.loads(
            text, parse_int=Number, parse_float=Number, parse_constant=lambda _: Number("NaN"), object_pairs_hook=Pairs
        )
    except ValueError as e:
        raise Refused(str(e)) from e


def has_lone_surrogate(value: Any) -> bool:
    if isinstance(value, Pairs):
        return any(has_lone_surrogate(k) or has_lone_surrogate(v) for k, v in value)
    if isinstance(value, list):
        return any(map(has_lone_surrogate, value))
    return isinstance(value, str) and any(0xD800 <= ord(c) < 0xE000 for c in value)


def members(
    fields: tuple[NestedField, ...], rules: dict[str, str], at: str, pairs: Pairs, strict: bool
) -> dict[str, Any]:
    given = dict(pairs)
    known = {f.name for f in fields}
    if any(sum(k == name for k, _ in pairs) > 1 for name in known):
        raise Refused("twice")
    if strict and set(given) - known:
        raise Refused("unknown")
    out = {}
    for f in fields:
        out[f.name] = convert(f.field_type, rules, at + f.name, given.get(f.name), strict)
        if f.required and out[f.name] is None:
            raise Refused(f"{f.name} is required")
    return out


def convert(kind: IcebergType, rules: dict[str, str], path: str, value: Any, strict: bool) -> Any:
    if value is None:
        return None
    if isinstance(kind, StructType):
        need(isinstance(value, Pairs))
        return members(kind.fields, rules, path + ".", value, strict)
    if isinstance(kind, ListType):
        need(isinstance(value, list) and not isinstance(value, Pairs))
        out = [convert(kind.element_type, rules, path + ".element", v, strict) for v in value]
        need(not (kind.element_required and None in out))
        return out
    if isinstance(kind, MapType):
        need(isinstance(value, Pairs))
        keys = [key(kind.key_type, rules, path + ".key", k) for k, _ in value]
        items = [convert(kind.value_type, rules, path + ".value", v, strict) for _, v in value]
        need(len(set(keys)) == len(keys) and not (kind.value_required and None in items))
        return list(zip(keys, items, strict=True))
    return SCALARS[type(kind)](kind, rules.get(path, "iso8601"), value)


def key(kind: IcebergType, rules: dict[str, str], path: str, text: str) -> Any:
    """A key is a text; where a number is due, the text of one."""
    number = isinstance(kind, BARE_KEYS) or rules.get(path, "").startswith("epoch")
    if number:
        need(bool(text) and text[0] in "-0123456789tf" and text == text.strip())
    return convert(kind, rules, path, loads(text) if number else text, strict=False)


def need(truth: bool) -> None:
    if not truth:
        raise Refused("wrong type or value")


def integer(kind: IcebergType, _rule: str, value: Any) -> int:
    need(isinstance(value, Number) and not set(value) & set(".eEN"))
    bits = 63 if isinstance(kind, LongType) else 31
    need(-(2**bits) <= int(value) < 2**bits)
    return int(value)


def floating(kind: IcebergType, _rule: str, value: Any) -> float:
    need(isinstance(value, Number) and math.isfinite(float(value)))
    return float(value) if isinstance(kind, DoubleType) else nearest_single(str(value))


def nearest_single(number: str) -> float:
    """The single-precision number nearest to the text, not to the double nearest to the text."""
    exact = Fraction(number)
    need(abs(exact) < 2**128 - 2**103)
    guess = np.float32(np.clip(float(number), -SINGLE_MAX, SINGLE_MAX))
    near = {guess, np.nextafter(guess, np.float32(-SINGLE_MAX)), np.nextafter(guess, np.float32(SINGLE_MAX))}
    best = min(near, key=lambda c: (abs(Fraction(float(c)) - exact), int(c.view(np.int32)) % 2))
    return math.copysign(float(best), float(number))


def decimal(kind: IcebergType, _rule: str, value: Any) -> Decimal:
    assert isinstance(kind, DecimalType)
    need(isinstance(value, str))
    try:
        number = Decimal(str(value))
    except ArithmeticError as e:
        raise Refused("no number") from e
    need(number.is_finite() and number.adjusted() < 300)
    scaled = number.scaleb(kind.scale)
    need(scaled == scaled.to_integral_value() and abs(scaled) < 10**kind.precision)
    return number


def text(_kind: IcebergType, _rule: str, value: Any) -> str:
    need(isinstance(value, str) and not isinstance(value, Number))
    return str(value)


def boolean(_kind: IcebergType, _rule: str, value: Any) -> bool:
    need(isinstance(value, bool))
    return bool(value)


def moment(kind: IcebergType, rule: str, value: Any) -> int:
    if rule.startswith("epoch"):
        nanos = whole(value) * NANOS[rule.removeprefix("epoch_")]
        need(date(1, 1, 1).toordinal() <= nanos // DAY + EPOCH.toordinal() <= date(9999, 12, 31).toordinal())
    else:
        string(value)
        nanos = since_epoch(value, digits=9 if isinstance(kind, NANO) else 6, zoned=isinstance(kind, ZONED))
        # A text in the first, cut off second of 64 bits of nanoseconds is refused: the parser has no room for it.
        need(not isinstance(kind, NANO) or nanos // 10**9 * 10**9 >= -(2**63))
    if isinstance(kind, NANO):
        need(-(2**63) <= nanos < 2**63)
        return nanos
    need(nanos % 1000 == 0)
    return nanos // 1000


def since_epoch(text: str, *, digits: int, zoned: bool) -> int:
    """Nanoseconds, which Python's datetime does not have: the digits behind the point are read here."""
    head, point, tail = text.partition(".")
    fraction = tail[: len(tail) - len(tail.lstrip("0123456789"))]
    need(not point or 1 <= len(fraction) <= digits)
    try:
        at = datetime.fromisoformat(head + tail[len(fraction) :])
    except ValueError as e:
        raise Refused(str(e)) from e
    need((at.tzinfo is not None) == zoned)
    since = at - EPOCH.replace(tzinfo=UTC) if zoned else at - EPOCH
    nanos = since // timedelta(microseconds=1) * 1000 + int(fraction.ljust(9, "0"))
    need(date(1, 1, 1).toordinal() <= nanos // DAY + EPOCH.toordinal() <= date(9999, 12, 31).toordinal())
    return nanos


def whole(value: Any) -> int:
    need(isinstance(value, Number) and not set(value) & set(".eEN") and len(value) < 100)
    return int(value)


def string(value: Any) -> str:
    need(isinstance(value, str) and not isinstance(value, Number))
    return str(value)


def day(_kind: IcebergType, rule: str, value: Any) -> date:
    try:
        if rule == "epoch_days":
            return date.fromordinal(whole(value) + EPOCH.toordinal())
        need(len(string(value)) == 10)
        return date.fromisoformat(value)
    except (ValueError, OverflowError) as e:
        raise Refused(str(e)) from e


def clock(_kind: IcebergType, rule: str, value: Any) -> time:
    if rule.endswith("_of_day"):
        nanos = whole(value) * NANOS[rule.removesuffix("_of_day")]
        need(0 <= nanos < DAY and nanos % 1000 == 0)
        return (EPOCH + timedelta(microseconds=nanos // 1000)).time()
    need(string(value).isascii() and value < "24" and value[2:3] == ":")
    need(len(value) in (5, 8) or (value[5:6] == ":" and value[8:9] == "." and 10 <= len(value) <= 15))
    nanos = since_epoch(f"1970-01-01T{value}", digits=6, zoned=False)
    return (EPOCH + timedelta(microseconds=nanos // 1000)).time()


def uuid(_kind: IcebergType, _rule: str, value: Any) -> UUID:
    need(len(string(value)) == 36 and value.isascii())
    try:
        number = UUID(value)
    except ValueError as e:
        raise Refused(str(e)) from e
    need(str(number) == value.lower())
    return number


def octets(kind: IcebergType, rule: str, value: Any) -> bytes:
    """By re-encoding: what does not give the same text again is refused."""
    string(value)
    try:
        found = {
            "base64": lambda: base64.b64decode(value),
            "base64url": lambda: base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)),
            "hex": lambda: bytes.fromhex(value),
            "utf8": lambda: value.encode(),
        }[rule]()
    except ValueError as e:
        raise Refused(str(e)) from e
    padded = base64.urlsafe_b64encode(found).decode()
    again = {
        "base64": {base64.b64encode(found).decode()},
        "base64url": {padded, padded.rstrip("=")},
        "hex": {found.hex()},
        "utf8": {value},
    }[rule]
    need((value.lower() if rule == "hex" else value) in again)
    need(not isinstance(kind, FixedType) or len(found) == len(kind))
    return found


NANO, ZONED = (TimestampNanoType, TimestamptzNanoType), (TimestamptzType, TimestamptzNanoType)
SCALARS = {
    IntegerType: integer,
    LongType: integer,
    FloatType: floating,
    DoubleType: floating,
    DecimalType: decimal,
    StringType: text,
    BooleanType: boolean,
    TimestampType: moment,
    TimestamptzType: moment,
    TimestampNanoType: moment,
    TimestamptzNanoType: moment,
    DateType: day,
    TimeType: clock,
    UUIDType: uuid,
    FixedType: octets,
    BinaryType: octets,
}
