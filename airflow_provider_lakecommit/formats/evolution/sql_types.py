# SPDX-License-Identifier: Apache-2.0
"""Infer columns from the types that a landing's SQL gives.

A new column gets the Iceberg type that holds all of the SQL's type; types without one are left out with advice. An
existing column keeps its type, or gets the wider one of the SQL if widening is allowed.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as kinds
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.formats.evolution.changes import MAX_DIGITS, OF_SCHEMAS, Finding, left_out
from airflow_provider_lakecommit.formats.evolution.inferred import InferredTypes
from airflow_provider_lakecommit.formats.evolution.paths import optional_struct

_BOOLEAN, _UUID = pa.bool8(), pa.uuid()
"""The engine's types for these, as it keeps types."""
_SCALARS: tuple[tuple[pa.DataType, PrimitiveType], ...] = (
    *((kind, IntegerType()) for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32())),
    *((kind, LongType()) for kind in (pa.uint32(), pa.int64())),
    (pa.uint64(), DecimalType(20, 0)),
    (pa.float32(), FloatType()),
    (pa.float64(), DoubleType()),
    (_BOOLEAN, BooleanType()),
    (pa.bool_(), BooleanType()),
    (pa.string(), StringType()),
    (pa.binary(), BinaryType()),
    (_UUID, UUIDType()),
    (pa.date32(), DateType()),
    (pa.time64("us"), TimeType()),
)


def inferred_from_sql(schema: Schema, given: pa.Schema, *, widen: bool) -> InferredTypes:
    """Return the columns that SQL needs in a table.

    :param given: the columns of the SQL
    :param widen: True if types of the table may be widened
    """
    scan = _Scan(widen)
    columns = scan.struct(schema.as_struct(), list(given), "")
    origin = "the SQL of the landing"
    return InferredTypes(columns=columns, origin=origin, left_out=tuple(scan.left_out), limits=OF_SCHEMAS)


class _Scan:
    def __init__(self, widen: bool) -> None:
        self._widen = widen
        self.left_out: list[Finding] = []

    def struct(self, own: StructType, given: list[pa.Field], above: str) -> StructType:
        names, out = {f.name: f.field_type for f in own.fields}, dict[str, IcebergType]()
        for field in given:
            kind = names.get(field.name)
            path = f"{above}{field.name}"
            found = self._new(field.type, path) if kind is None else self._own(kind, field.type, path)
            if found is not None:
                out.setdefault(field.name, found)
        return optional_struct(out)

    def _own(self, kind: IcebergType, given: pa.DataType, path: str) -> IcebergType:
        if isinstance(kind, StructType) and kinds.is_struct(given):
            return self.struct(kind, list(given), f"{path}.")
        if isinstance(kind, ListType) and kinds.is_list(given):
            return ListType(1, self._own(kind.element_type, given.value_type, f"{path}.element"), False)
        if isinstance(kind, MapType) and kinds.is_map(given):
            return MapType(1, kind.key_type, 2, self._own(kind.value_type, given.item_type, f"{path}.value"), False)
        return _wider(kind, given) if self._widen else kind

    def _new(self, given: pa.DataType, path: str) -> IcebergType | None:
        if kinds.is_struct(given):
            inner = self.struct(StructType(), list(given), f"{path}.")
            if len({f.name for f in given}) < given.num_fields:
                self.left_out.append(left_out(path, "its fields have no names: give each one of its own"))
            # Without all of its fields it would not be what the SQL gives.
            return inner if len(inner.fields) == given.num_fields else None
        if kinds.is_list(given):
            element = self._new(given.value_type, f"{path}.element")
            return None if element is None else ListType(1, element, element_required=False)
        if kinds.is_map(given):
            key, value = self._new(given.key_type, f"{path}.key"), self._new(given.item_type, f"{path}.value")
            return None if key is None or value is None else MapType(1, key, 2, value, value_required=False)
        if (found := _scalar(given)) is None:
            self.left_out.append(left_out(path, f"columns cannot have type {given}: cast it"))
        return found


def _scalar(given: pa.DataType) -> PrimitiveType | None:
    if isinstance(given, pa.OpaqueType):
        return DecimalType(MAX_DIGITS, 0) if given.type_name in ("hugeint", "uhugeint") else None
    if kinds.is_decimal128(given):
        return DecimalType(given.precision, given.scale)
    if kinds.is_timestamp(given):
        return TimestampType() if given.tz is None else TimestamptzType()
    return next((kind for arrow, kind in _SCALARS if arrow == given), None)


def _wider(kind: IcebergType, given: pa.DataType) -> IcebergType:
    found = _scalar(given)
    match kind, found:
        case IntegerType(), LongType():
            return LongType()
        case FloatType(), DoubleType():
            return DoubleType()
        case DecimalType(), DecimalType():
            whole = max(kind.precision - kind.scale, found.precision - found.scale)
            # Digits behind the point that the column lacks are judged by their values.
            return DecimalType(min(whole + kind.scale, MAX_DIGITS), kind.scale)
        case _:
            return kind
