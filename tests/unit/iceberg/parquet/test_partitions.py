# SPDX-License-Identifier: Apache-2.0
"""Partition values against the formulas of the Iceberg specification, written out plainly here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from decimal import Context, Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    UnknownTransform,
    VoidTransform,
    YearTransform,
)
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

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.partitions import Partitioning

MASK = 0xFFFFFFFF


def murmur3(data: bytes) -> int:
    """The 32-bit murmur3 hash, x86 variant, seed 0, as a signed number."""

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & MASK
        return ((k << 15 | k >> 17) & MASK) * 0x1B873593 & MASK

    h, whole = 0, len(data) // 4 * 4
    for at in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[at : at + 4], "little"))
        h = ((h << 13 | h >> 19) & MASK) * 5 + 0xE6546B64 & MASK
    h ^= mixed(int.from_bytes(data[whole:], "little")) ^ len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def hash_of(kind: IcebergType, value: Any) -> int:
    """Appendix B of the specification, from values as they are stored."""
    if isinstance(kind, (TimestampNanoType, TimestamptzNanoType)):
        value //= 1000
    if isinstance(kind, StringType):
        return murmur3(value.encode())
    if isinstance(kind, DecimalType):
        unscaled = int(value.scaleb(kind.scale, _EXACT))
        bits = (unscaled if unscaled >= 0 else ~unscaled).bit_length()
        return murmur3(unscaled.to_bytes(bits // 8 + 1, "big", signed=True))
    return murmur3(value if isinstance(value, bytes) else int(value).to_bytes(8, "little", signed=True))


def _days(kind: IcebergType, value: int) -> int:
    if isinstance(kind, DateType):
        return value
    return value // (86_400 * (10**9 if "ns" in str(kind) else 10**6))


def expected(transform: Transform[Any, Any], kind: IcebergType, value: Any) -> Any:
    """A partition value, from a value as it is stored."""
    if value is None or isinstance(transform, VoidTransform):
        return None
    if isinstance(transform, BucketTransform):
        return (hash_of(kind, value) & 0x7FFFFFFF) % transform.num_buckets
    if isinstance(transform, TruncateTransform):
        width = transform.width
        if isinstance(kind, DecimalType):
            unscaled = int(value.scaleb(kind.scale, _EXACT))
            return Decimal(unscaled - unscaled % width).scaleb(-kind.scale, _EXACT)
        return value - value % width if isinstance(value, int) else value[:width]
    if isinstance(transform, HourTransform):
        return value // (3600 * (10**9 if "ns" in str(kind) else 10**6))
    if isinstance(transform, IdentityTransform):
        return value
    day = date(1970, 1, 1) + timedelta(days=_days(kind, value))
    if isinstance(transform, DayTransform):
        return _days(kind, value)
    return (day.year - 1970) * (12 if isinstance(transform, MonthTransform) else 1) + (
        day.month - 1 if isinstance(transform, MonthTransform) else 0
    )


_EXACT = Context(prec=60)
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
STORED: dict[str, tuple[IcebergType, st.SearchStrategy[Any]]] = {
    "boolean": (BooleanType(), st.booleans()),
    "int": (IntegerType(), st.integers(-(2**31) + 1000, 2**31 - 1)),
    "long": (LongType(), st.integers(-(2**63) + 1000, 2**63 - 1)),
    "date": (DateType(), st.integers(-719_162, 2_932_896)),
    "time": (TimeType(), st.integers(0, 86_399_999_999)),
    "timestamp": (TimestampType(), st.integers(_FIRST, _LAST)),
    "timestamptz": (TimestamptzType(), st.integers(_FIRST, _LAST)),
    "timestamp_ns": (TimestampNanoType(), st.integers(-(2**62), 2**62)),
    "timestamptz_ns": (TimestamptzNanoType(), st.integers(-5000, 5000) | st.integers(-(2**62), 2**62)),
    "string": (StringType(), st.text(max_size=6)),
    "binary": (BinaryType(), st.binary(max_size=6)),
    "fixed": (FixedType(3), st.binary(min_size=3, max_size=3)),
    "uuid": (UUIDType(), st.uuids().map(lambda u: u.bytes)),
    "decimal 9": (DecimalType(9, 2), st.decimals(-9_999_999, 9_999_999, places=2)),
    "decimal 38": (DecimalType(38, 10), st.integers(-(10**38) + 1000, 10**38 - 1).map(
        lambda n: Decimal(n).scaleb(-10, _EXACT)
    )),
}  # fmt: skip
TRANSFORMS: tuple[Transform[Any, Any], ...] = (
    IdentityTransform(), VoidTransform(), BucketTransform(16), BucketTransform(2**31 - 1), TruncateTransform(1),
    TruncateTransform(7), YearTransform(), MonthTransform(), DayTransform(), HourTransform(),
)  # fmt: skip


def table_of(kind: IcebergType, values: list[Any]) -> tuple[Schema, pa.Table]:
    schema = Schema(NestedField(1, "c", kind))
    arrow = arrow_schema(schema)
    to = arrow.field(0).type
    stored = to.storage_type if isinstance(to, pa.BaseExtensionType) else to
    if pa.types.is_temporal(stored):
        array = pa.array(values, pa.int32() if stored.bit_width == 32 else pa.int64()).cast(stored)
    else:
        array = pa.array(values, stored)
    if to != stored:
        array = pa.ExtensionArray.from_storage(to, array)
    return schema, pa.Table.from_arrays([array], schema=arrow)


def values_by_row(spec: PartitionSpec, schema: Schema, table: pa.Table) -> list[Any]:
    """The partition of every row, as it was dealt out."""
    dealt = Partitioning(spec, schema).deal(table)
    found: list[Any] = [None] * table.num_rows
    for key, numbers in dealt:
        assert numbers.tolist() == sorted(numbers.tolist()), "rows keep their order"
        for row in numbers:
            found[row] = key
    assert sorted(row for _, numbers in dealt for row in numbers.tolist()) == list(range(table.num_rows))
    assert len(dealt) == len({repr(key) for key, _ in dealt}), "each partition once"
    return found


@pytest.mark.parametrize("name", STORED)
def test_every_transform_of_every_type_is_the_specifications(name: str) -> None:
    kind, stored = STORED[name]
    transforms = [t for t in TRANSFORMS if t.can_transform(kind)]
    spec = PartitionSpec(*(PartitionField(1, 1000 + i, t, f"p{i}") for i, t in enumerate(transforms)))

    @given(st.lists(st.none() | stored, min_size=1, max_size=30))
    @settings(max_examples=25, deadline=None)
    def check(values: list[Any]) -> None:
        schema, table = table_of(kind, values)
        values_expected = [tuple(expected(t, kind, v) for t in transforms) for v in values]
        assert values_by_row(spec, schema, table) == values_expected

    check()


VECTORS: list[tuple[IcebergType, Any, int]] = [
    (IntegerType(), 34, 2017239379),
    (LongType(), 34, 2017239379),
    (DecimalType(9, 2), Decimal("14.20"), -500754589),
    (DateType(), (date(2017, 11, 16) - date(1970, 1, 1)).days, -653330422),
    (TimeType(), (22 * 3600 + 31 * 60 + 8) * 10**6, -662762989),
    (TimestampType(), 1_510_871_468_000_000, -2047944441),
    (TimestampType(), 1_510_871_468_000_001, -1207196810),
    (TimestamptzType(), 1_510_871_468_000_000, -2047944441),
    (TimestampNanoType(), 1_510_871_468_000_001_001, -1207196810),
    (TimestamptzNanoType(), 1_510_871_468_000_001_001, -1207196810),
    (StringType(), "iceberg", 1210000089),
    (UUIDType(), UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7").bytes, 1488055340),
    (FixedType(4), b"\x00\x01\x02\x03", -188683207),
    (BinaryType(), b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("kind", "value", "expected_hash"), VECTORS, ids=[f"{k} {v}" for k, v, _ in VECTORS])
def test_the_test_vectors_of_the_specification(kind: IcebergType, value: Any, expected_hash: int) -> None:
    schema, table = table_of(kind, [value])
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(2**31 - 1), "b"))

    assert hash_of(kind, value) == expected_hash
    [(key, _)] = Partitioning(spec, schema).deal(table)
    assert key == ((expected_hash & 0x7FFFFFFF) % (2**31 - 1),)


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()])
def test_floats_are_distinguished_by_bits_and_nan_is_one(kind: IcebergType) -> None:
    width = np.float32 if isinstance(kind, FloatType) else np.float64
    odd_nan = np.array([-np.nan], width)
    schema = Schema(NestedField(1, "c", kind))
    values = np.concatenate((np.array([0.0, -0.0, 1.5, np.nan, 1.5, -0.0], width), odd_nan))
    table = pa.Table.from_arrays([pa.array(values)], schema=arrow_schema(schema))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))

    found = [repr(k) for k in values_by_row(spec, schema, table)]

    assert found == ["(0.0,)", "(-0.0,)", "(1.5,)", "(nan,)", "(1.5,)", "(-0.0,)", "(nan,)"]


def test_many_fields_of_many_values_do_not_run_into_each_other() -> None:
    rows = 5000
    names = [f"c{i}" for i in range(6)]
    schema = Schema(*(NestedField(i + 1, n, LongType()) for i, n in enumerate(names)))
    draw = np.random.default_rng(1)
    columns = [draw.integers(0, 3000, rows) for _ in names]
    table = pa.Table.from_arrays([pa.array(c) for c in columns], schema=arrow_schema(schema))
    spec = PartitionSpec(*(PartitionField(i + 1, 1000 + i, IdentityTransform(), n) for i, n in enumerate(names)))

    assert values_by_row(spec, schema, table) == list(zip(*(c.tolist() for c in columns), strict=True))


def test_more_partitions_than_a_short_number_holds() -> None:
    schema = Schema(NestedField(1, "c", LongType()))
    values = np.random.default_rng(2).permutation(70_000)
    table = pa.Table.from_arrays([pa.array(values)], schema=arrow_schema(schema))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))

    assert values_by_row(spec, schema, table) == [(v,) for v in values.tolist()]


def test_sources_in_structs_are_null_where_the_struct_is() -> None:
    inner = StructType(NestedField(3, "a.b", StructType(NestedField(4, "n", LongType()))))
    schema = Schema(NestedField(1, "x", LongType()), NestedField(2, "s", inner))
    rows = [{"x": 1, "s": {"a.b": {"n": 7}}}, {"x": 2, "s": None}, {"x": 3, "s": {"a.b": None}}]
    table = pa.Table.from_pylist(rows, schema=arrow_schema(schema))
    spec = PartitionSpec(PartitionField(4, 1000, TruncateTransform(5), "n"))

    assert values_by_row(spec, schema, table.slice(0, 1)) == [(5,)]
    assert values_by_row(spec, schema, table) == [(5,), (None,), (None,)]


def test_a_void_field_needs_no_source() -> None:
    """What a v1 table has in place of a dropped field, even when its column was dropped too."""
    schema = Schema(NestedField(1, "c", LongType()))
    table = pa.Table.from_arrays([pa.array([1, 2])], schema=arrow_schema(schema))
    spec = PartitionSpec(
        PartitionField(99, 1000, VoidTransform(), "gone"), PartitionField(1, 1001, IdentityTransform(), "c")
    )

    assert values_by_row(spec, schema, table) == [(None, 1), (None, 2)]


REFUSED: list[tuple[Callable[[], Transform[Any, Any]], IcebergType]] = [
    (lambda: UnknownTransform("zorder"), LongType()),
    (lambda: DayTransform(), LongType()),
    (lambda: HourTransform(), DateType()),
    (lambda: BucketTransform(4), DoubleType()),
    (lambda: TruncateTransform(4), UUIDType()),
    (lambda: IdentityTransform(), ListType(5, LongType())),
]


@pytest.mark.parametrize(("transform", "kind"), REFUSED)
def test_a_transform_that_cannot_be_is_refused_by_name(
    transform: Callable[[], Transform[Any, Any]], kind: IcebergType
) -> None:
    schema = Schema(NestedField(1, "odd", kind))
    with pytest.raises(TableError, match="LC3331"):
        Partitioning(PartitionSpec(PartitionField(1, 1000, transform(), "p")), schema)
