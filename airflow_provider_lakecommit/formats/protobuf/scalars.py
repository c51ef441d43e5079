# SPDX-License-Identifier: Apache-2.0
"""Conversions from Protobuf scalars to table types, exactly or not at all.

:func:`scalar_convert` returns the conversion, or why there is none. Values that the column cannot hold (out of range,
an unnamed enum number, a wrong length) raise :class:`ValueError`. Nothing is rounded; non-finite floats are values.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.descriptor import FieldDescriptor
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
    LongType,
    StringType,
    UUIDType,
)

from airflow_provider_lakecommit.formats.reading import UUID_READING, Convert, require, unchanged, whole_numbers
from airflow_provider_lakecommit.formats.text_columns import NUMBER, decimals_of
from airflow_provider_lakecommit.formats.time_values import TEMPORAL, number_times, time_reading

F = FieldDescriptor
_INTEGERS = {
    *(F.TYPE_INT32, F.TYPE_SINT32, F.TYPE_SFIXED32, F.TYPE_UINT32, F.TYPE_FIXED32),
    *(F.TYPE_INT64, F.TYPE_SINT64, F.TYPE_SFIXED64, F.TYPE_UINT64, F.TYPE_FIXED64),
}
_UUID_OCTETS = 16
_NAMES = {number: name[5:].lower() for name, number in vars(F).items() if re.match("TYPE_[A-Z]", name)}


def type_name(field: FieldDescriptor) -> str:
    if field.message_type is not None:
        return str(field.message_type.full_name)
    return str(field.enum_type.full_name) if field.enum_type is not None else _NAMES[field.type]


def scalar_convert(field: FieldDescriptor, kind: IcebergType, rule: str | None) -> Convert | str:
    """Return the conversion of a field's values to a column's, or a text why it is impossible."""
    if field.type in _INTEGERS:
        return _of_integer(kind, rule)
    made: Convert | None = None
    if field.type == F.TYPE_BOOL and isinstance(kind, BooleanType):
        made = unchanged
    elif field.type == F.TYPE_FLOAT and isinstance(kind, FloatType | DoubleType):
        made = _cast
    elif field.type == F.TYPE_DOUBLE and isinstance(kind, DoubleType):
        made = unchanged
    elif field.type == F.TYPE_STRING:
        made = _of_text(kind, rule)
    elif field.type == F.TYPE_BYTES:
        made = _of_octets(kind)
    elif field.type == F.TYPE_ENUM and isinstance(kind, IntegerType | LongType):
        made = _cast
    elif field.type == F.TYPE_ENUM and isinstance(kind, StringType):
        made = _names_of(field)
    return made or f"is {kind}, the field is {type_name(field)}"


def _of_integer(kind: IcebergType, rule: str | None) -> Convert | str:
    if isinstance(kind, IntegerType | LongType | DecimalType):
        return whole_numbers
    if isinstance(kind, TEMPORAL):
        if rule is None or rule == "iso8601" or "%" in rule:
            named = "epoch_days" if isinstance(kind, DateType) else "epoch_millis or another"
            return f"is {kind}, the field is a number: state its meaning in `timestamps` ({named})"
        return number_times(kind, rule)
    return f"is {kind}, the field is a whole number"


def _of_text(kind: IcebergType, rule: str | None) -> Convert | None:
    if isinstance(kind, StringType):
        return unchanged
    if isinstance(kind, UUIDType):
        return UUID_READING.convert
    if isinstance(kind, DecimalType):
        return _decimal_of_text
    if isinstance(kind, TEMPORAL):
        reading = time_reading(kind, rule or "iso8601")
        return reading.convert if pa.types.is_string(reading.wire) else None
    return None


def _of_octets(kind: IcebergType) -> Convert | None:
    if isinstance(kind, BinaryType):
        return unchanged
    if isinstance(kind, FixedType):
        return _fixed(len(kind))
    return _fixed(_UUID_OCTETS) if isinstance(kind, UUIDType) else None


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    return array.cast(target)


def _decimal_of_text(array: pa.Array, target: pa.DataType) -> pa.Array:
    require(pc.match_substring_regex(array, NUMBER), array, "not a number")
    return decimals_of(array, target)


def _fixed(length: int) -> Convert:
    def convert(array: pa.Array, target: pa.DataType) -> pa.Array:
        require(pc.equal(pc.binary_length(array), length), array, f"not {length} bytes")
        values = pa.array(array.to_pylist(), pa.binary(length))
        return target.wrap_array(values) if isinstance(target, pa.BaseExtensionType) else values

    return convert


def _names_of(field: FieldDescriptor) -> Callable[[pa.Array, pa.DataType], pa.Array]:
    """Return enum names; of several with one number the first, as Protobuf writes."""
    names: dict[int, str] = {}
    for value in field.enum_type.values:
        names.setdefault(value.number, value.name)
    numbers, texts = pa.array(names, pa.int32()), pa.array(names.values(), pa.string())

    def convert(array: pa.Array, _target: pa.DataType) -> pa.Array:
        positions = pc.index_in(array, numbers)
        known = pc.or_(positions.is_valid(), array.is_null())
        require(known, array, f"not a value of {field.enum_type.full_name} in this schema")
        return texts.take(positions)

    return convert
