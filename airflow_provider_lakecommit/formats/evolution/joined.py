# SPDX-License-Identifier: Apache-2.0
"""Join the columns of several schemas into types that hold the values of all of them, in whatever order they come.

Fields that no type holds are left out by path; the rest of a struct stays.

====================================== =====================================
types                                  joined type
====================================== =====================================
one that holds the other               that one
whole numbers and ones with a fraction ``double``, which refuses what it would round
decimals, and whole numbers with them  a decimal with the most digits on each side, up to 38 in all
``uuid`` and ``string``                ``string``
bytes, and texts with them             ``binary``
====================================== =====================================
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.types import (
    BinaryType,
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
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)

from airflow_provider_lakecommit.formats.evolution.changes import MAX_DIGITS, LeftOut, holds
from airflow_provider_lakecommit.formats.evolution.paths import Path, dotted, plain

_WHOLE = {IntegerType: 10, LongType: 19}
"""Integer types, with their digits."""
_FRACTIONS = (FloatType, DoubleType)
_OCTETS = (BinaryType, FixedType)


@dataclass(slots=True)
class JoinedColumns:
    """The columns of all structs that were added."""

    columns: StructType = field(default_factory=StructType)
    left_out: dict[Path, LeftOut] = field(default_factory=dict)

    def add(self, columns: StructType) -> None:
        self.columns = StructType(*self._fields(self.columns.fields, columns.fields, ()))

    def _fields(self, one: Iterable[NestedField], other: Iterable[NestedField], path: Path) -> list[NestedField]:
        out = {f.name: f for f in one}
        for f in other:
            at = (*path, f.name)
            if at in self.left_out:
                continue
            kind = self._type(out[f.name].field_type, f.field_type, at) if f.name in out else f.field_type
            if kind is None:
                del out[f.name]
            else:
                out[f.name] = NestedField(f.field_id, f.name, kind, required=False)
        return list(out.values())

    def _type(self, one: IcebergType, other: IcebergType, path: Path) -> IcebergType | None:
        if isinstance(one, StructType) and isinstance(other, StructType):
            fields = self._fields(one.fields, other.fields, path)
            return StructType(*fields) if fields else None
        if isinstance(one, ListType) and isinstance(other, ListType):
            inner = self._type(one.element_type, other.element_type, (*path, "element"))
            return None if inner is None else ListType(1, inner, element_required=False)
        if isinstance(one, MapType) and isinstance(other, MapType) and plain(one.key_type) == plain(other.key_type):
            inner = self._type(one.value_type, other.value_type, (*path, "value"))
            return None if inner is None else MapType(1, one.key_type, 2, inner, value_required=False)
        if (found := _common(one, other)) is None:
            why = f"its schemas disagree: {plain(one)} and {plain(other)}"
            self.left_out[path] = LeftOut(column=dotted(path), why=why)
        return found


def _common(one: IcebergType, other: IcebergType) -> IcebergType | None:
    if holds(one, other):
        return one
    if holds(other, one):
        return other
    if not isinstance(one, PrimitiveType) or not isinstance(other, PrimitiveType):
        return None
    both = (one, other)
    if all(isinstance(kind, (*_WHOLE, *_FRACTIONS)) for kind in both):
        return DoubleType()
    if all(isinstance(kind, (*_WHOLE, DecimalType)) for kind in both):
        return _decimal(*map(_digits, both))
    if all(isinstance(kind, UUIDType | StringType) for kind in both):
        return StringType()
    if all(isinstance(kind, (*_OCTETS, StringType)) for kind in both):
        return BinaryType()
    return None


def _digits(kind: PrimitiveType) -> tuple[int, int]:
    return (kind.precision - kind.scale, kind.scale) if isinstance(kind, DecimalType) else (_WHOLE[type(kind)], 0)


def _decimal(one: tuple[int, int], other: tuple[int, int]) -> DecimalType | None:
    whole, scale = (max(pair) for pair in zip(one, other, strict=True))
    return DecimalType(whole + scale, scale) if whole + scale <= MAX_DIGITS else None
