# SPDX-License-Identifier: Apache-2.0
"""A second, slow reader of JSON records that shares no code with the decoder: Python's parser and a schema walk."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

EPOCH = datetime(1970, 1, 1)
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
    """The record as a row. Timestamps as microseconds, floats as they are stored."""
    try:
        record = json.loads(
            value.decode(),
            parse_int=Number,
            parse_float=Number,
            parse_constant=lambda _: Number("NaN"),
            object_pairs_hook=Pairs,
        )
    except (UnicodeDecodeError, ValueError) as e:
        raise Refused(str(e)) from e
    if not isinstance(record, Pairs) or has_lone_surrogate(record):
        raise Refused("not an object of text")
    return members(schema.fields, rules, "", record, strict)


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
    return SCALARS[type(kind)](kind, rules.get(path, "iso8601"), value)


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
        need(isinstance(value, Number) and not set(value) & set(".eEN"))
        micros = int(value) * {"epoch_seconds": 10**6, "epoch_millis": 1000, "epoch_micros": 1}[rule]
        need(
            date(1, 1, 1).toordinal() <= micros // 86_400_000_000 + EPOCH.toordinal() <= date(9999, 12, 31).toordinal()
        )
        return micros
    need(isinstance(value, str) and not isinstance(value, Number))
    try:
        at = datetime.fromisoformat(value)
    except ValueError as e:
        raise Refused(str(e)) from e
    need((at.tzinfo is not None) == isinstance(kind, TimestamptzType))
    naive = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    return (naive - EPOCH) // timedelta(microseconds=1)


def day(_kind: IcebergType, _rule: str, value: Any) -> date:
    need(isinstance(value, str) and not isinstance(value, Number) and len(value) == 10)
    try:
        return date.fromisoformat(value)
    except ValueError as e:
        raise Refused(str(e)) from e


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
    DateType: day,
}
