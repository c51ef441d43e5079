# SPDX-License-Identifier: Apache-2.0
"""Well-known messages as table types with the same meaning, converted without rounding.

A ``google.protobuf.Timestamp`` with a fraction of a microsecond does not fit a column of microseconds; one beyond the
years 1 to 9999 fits none. A missing message is null; a present wrapper holds its value, even a default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf import json_format, struct_pb2
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError
from pyiceberg.types import (
    DateType,
    DecimalType,
    IcebergType,
    StringType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from airflow_provider_lakecommit.formats.protobuf.arrays import wire_name
from airflow_provider_lakecommit.formats.reading import Convert, require

F = FieldDescriptor
WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_JSON = {
    "google.protobuf.Struct": struct_pb2.Struct,
    "google.protobuf.Value": struct_pb2.Value,
    "google.protobuf.ListValue": struct_pb2.ListValue,
}
_NANOS = 1_000_000_000
_EARLIEST, _LATEST = -62_135_596_800, 253_402_300_799
_MOST_DIGITS, _MOST_OCTETS = 76, 32
_DURATION_SECONDS = 315_576_000_000


def known_message(message: Descriptor, kind: IcebergType) -> tuple[Convert, Mapping[int, int]] | None:
    """Return how a well-known message fills a column of that type, if it can: the conversion, and the declared fields.

    Fields are by number; without any, the message is read as its bytes, all pieces joined.
    """
    name = message.full_name
    if name == "google.protobuf.Timestamp" and isinstance(kind, TimestamptzType | TimestamptzNanoType):
        return _timestamp, {1: F.TYPE_INT64, 2: F.TYPE_INT32}
    if name == "google.protobuf.Duration" and isinstance(kind, DecimalType):
        return _duration, {1: F.TYPE_INT64, 2: F.TYPE_INT32}
    if name == "google.type.Date" and isinstance(kind, DateType):
        return _by_parts(date, 3), dict.fromkeys((1, 2, 3), F.TYPE_INT32)
    if name == "google.type.TimeOfDay" and isinstance(kind, TimeType):
        return _by_parts(_time_of, 4), dict.fromkeys((1, 2, 3, 4), F.TYPE_INT32)
    if name == "confluent.type.Decimal" and isinstance(kind, DecimalType):
        return _decimal, {1: F.TYPE_BYTES, 2: F.TYPE_UINT32, 3: F.TYPE_INT32}
    if name in _JSON and isinstance(kind, StringType):
        return _json_of(_JSON[name]), {}
    return None


def _parts(array: pa.Array, count: int) -> Sequence[pa.Array]:
    found = [array.field(array.type.get_field_index(wire_name(n))) for n in range(1, count + 1)]
    if not array.null_count:
        return found
    there = array.is_valid()
    return [pc.if_else(there, part, pa.scalar(None, part.type)) for part in found]


def _timestamp(array: pa.Array, target: pa.DataType) -> pa.Array:
    seconds, nanos = _parts(array, 2)
    _require_within(nanos, 0, _NANOS - 1, "not the nanoseconds of a timestamp (0 to 999999999)")
    _require_within(seconds, _EARLIEST, _LATEST, "not the second of a timestamp in the years 1 to 9999")
    if target.unit == "ns":
        try:
            ticks = pc.add_checked(pc.multiply_checked(seconds, _NANOS), nanos.cast(pa.int64()))
        except pa.ArrowInvalid:
            raise ValueError("not in the years 1677 to 2262, which nanoseconds can express") from None
    else:
        micros = pc.divide(nanos, 1000)
        require(pc.equal(pc.multiply(micros, 1000), nanos), nanos, "not a whole number of microseconds")
        ticks = pc.add(pc.multiply(seconds, 1_000_000), micros.cast(pa.int64()))
    return ticks.cast(pa.int64()).cast(target)


def _duration(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert to seconds; both parts have one sign, or are 0."""
    seconds, nanos = _parts(array, 2)
    _require_within(seconds, -_DURATION_SECONDS, _DURATION_SECONDS, "not the seconds of a duration")
    _require_within(nanos, 1 - _NANOS, _NANOS - 1, "not the nanoseconds of a duration")
    same = pc.not_equal(pc.multiply(pc.sign(seconds).cast(pa.int32()), pc.sign(nanos).cast(pa.int32())), -1)
    require(same, nanos, "not of the sign of its seconds")
    whole, part = (each.cast(pa.decimal256(20, 0)).cast(pa.decimal256(40, 9)) for each in (seconds, nanos))
    fraction = pc.multiply(part, pa.scalar("0.000000001").cast(pa.decimal256(10, 9)))
    return pc.add(whole.cast(pa.decimal256(60, 18)), fraction.cast(pa.decimal256(60, 18))).cast(target)


def _decimal(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a whole number in big-endian bytes, and its number of decimals."""
    octets, _, scales = (part.to_pylist() for part in _parts(array, 3))
    made = [None if each is None else _number(each, scale) for each, scale in zip(octets, scales, strict=True)]
    return pa.array(made, pa.decimal256(_MOST_DIGITS, target.scale)).cast(target)


def _number(octets: bytes, scale: int) -> Decimal:
    if len(octets) > _MOST_OCTETS or abs(scale) > _MOST_DIGITS:
        raise ValueError(f"not a decimal of at most {_MOST_DIGITS} digits")
    number = int.from_bytes(octets, signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _by_parts(make: Callable[..., Any], count: int) -> Convert:
    """Convert value by value, each different one once."""

    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        made: dict[tuple[Any, ...], Any] = {}
        rows = list(zip(*(part.to_pylist() for part in _parts(array, count)), strict=True))
        for row in rows:
            if row not in made:
                made[row] = None if row[0] is None else make(*row)
        return pa.array([made[row] for row in rows], target)

    return convert


def _time_of(hours: int, minutes: int, seconds: int, nanos: int) -> time:
    if nanos % 1000:
        raise ValueError(f"{nanos} nanoseconds are not a whole number of microseconds")
    return time(hours, minutes, seconds, nanos // 1000)


def _json_of(kind: type[Any]) -> Convert:
    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        return pa.array([None if octets is None else _json(kind, octets) for octets in array.to_pylist()], target)

    return convert


def _json(kind: type[Any], octets: bytes) -> str:
    try:
        found = json_format.MessageToDict(kind.FromString(octets))
        # Members have no order of their own, and a record read again must be the same row.
        return json.dumps(found, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    except (json_format.Error, ValueError, DecodeError, RecursionError) as e:
        raise ValueError(f"the value has no form in JSON: {e}") from e


def _require_within(array: pa.Array, least: int, most: int, what: str) -> None:
    ends = pc.min_max(array)
    if array.null_count == len(array) or least <= ends["min"].as_py() <= ends["max"].as_py() <= most:
        return
    require(pc.and_(pc.greater_equal(array, least), pc.less_equal(array, most)), array, what)
