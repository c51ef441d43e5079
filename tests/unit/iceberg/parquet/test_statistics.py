# SPDX-License-Identifier: Apache-2.0
"""File statistics against what the Iceberg specification and its Java writers say of the same rows."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
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
    TimestamptzType,
    TimeType,
    UUIDType,
)

from airflow_provider_lakecommit.core.model import TableTarget
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.statistics import Metrics, _upper_bytes, _upper_text
from tests.support.effort import examples

NAN, INFINITY = float("nan"), float("inf")
Write = Callable[..., DataFile]


@pytest.fixture
def write(tmp_path: Any) -> Write:
    """A file of some columns: (type, values) by name, or a schema with rows; no catalog is needed for it."""

    def one(rows: list[dict[str, Any]], schema: Schema, *, groups_of: int = 1000, **properties: str) -> DataFile:
        values = {f"write.metadata.metrics.{k.replace('__', '.')}": v for k, v in properties.items()}
        target = TableTarget(
            table="shop.orders",
            uuid=uuid4(),
            location=f"file://{tmp_path}",
            schema=schema.model_dump_json(),
            schema_id=0,
            spec=UNPARTITIONED_PARTITION_SPEC.model_dump_json(),
            spec_id=0,
            properties={**values, "write.parquet.row-group-limit": str(groups_of)},
            format_version=2,
            epoch=uuid4(),
        )
        writer = FanoutWriter(target, load_file_io({}, target.location), uuid4())
        writer.write(pa.Table.from_pylist(rows, schema=arrow_schema(schema)))
        (file,) = writer.close()
        return file

    return one


def column(kind: IcebergType) -> Schema:
    return Schema(NestedField(1, "c", kind))


def test_nans_are_counted_and_never_bounds(write: Write) -> None:
    schema = Schema(
        NestedField(1, "some", DoubleType()),
        NestedField(2, "all", FloatType()),
        NestedField(3, "none", DoubleType()),
        NestedField(4, "number", LongType()),
        NestedField(5, "place", StructType(NestedField(6, "x", FloatType()))),
        NestedField(7, "list", ListType(8, DoubleType(), element_required=False)),
    )
    rows = [
        {"some": NAN, "all": NAN, "none": 1.5, "number": 1, "place": {"x": NAN}, "list": [NAN]},
        {"some": -2.5, "all": NAN, "none": None, "number": 2, "place": None, "list": [1.0, 2.0]},
        {"some": NAN, "all": None, "none": -INFINITY, "number": 3, "place": {"x": 4.0}, "list": None},
    ]

    file = write(rows, schema, groups_of=1)

    assert file.nan_value_counts == {1: 2, 2: 2, 3: 0, 6: 1}
    assert file.null_value_counts == {1: 0, 2: 1, 3: 1, 4: 0, 6: 1}
    assert file.value_counts == dict.fromkeys((1, 2, 3, 4, 6), 3)
    assert file.lower_bounds == {
        1: struct.pack("<d", -2.5),
        3: struct.pack("<d", -INFINITY),
        4: struct.pack("<q", 1),
        6: struct.pack("<f", 4.0),
    }
    assert file.upper_bounds == {
        1: struct.pack("<d", -2.5),
        3: struct.pack("<d", 1.5),
        4: struct.pack("<q", 3),
        6: struct.pack("<f", 4.0),
    }


@pytest.mark.parametrize("values", [[0.0], [-0.0], [0.0, -0.0]])
def test_zero_bounds_hold_both_zeros(write: Write, values: list[float]) -> None:
    file = write([{"c": v} for v in values], column(DoubleType()))

    assert (file.lower_bounds[1], file.upper_bounds[1]) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))


def test_columns_below_lists_and_maps_have_a_size_only(write: Write) -> None:
    schema = Schema(
        NestedField(1, "l", ListType(2, StructType(NestedField(3, "a", LongType())), element_required=False)),
        NestedField(4, "m", MapType(5, StringType(), 6, LongType(), value_required=False)),
        NestedField(7, "s", StructType(NestedField(8, "a", StringType()), NestedField(9, "b", StructType(
            NestedField(10, "c", LongType())
        )))),
    )  # fmt: skip
    rows = [
        {"l": [{"a": 1}], "m": [("k", 1)], "s": {"a": "x", "b": {"c": 5}}},
        {"l": None, "m": None, "s": {"a": None, "b": None}},
        {"l": [], "m": [], "s": None},
    ]

    file = write(rows, schema)

    assert set(file.column_sizes) == {3, 5, 6, 8, 10}
    assert file.value_counts == {8: 3, 10: 3}
    assert file.null_value_counts == {8: 2, 10: 2}
    assert file.lower_bounds == {8: b"x", 10: struct.pack("<q", 5)}
    assert file.upper_bounds == {8: b"x", 10: struct.pack("<q", 5)}


BOUNDS = [
    (BooleanType(), [True, False], b"\x00", b"\x01"),
    (IntegerType(), [-5, 7], struct.pack("<i", -5), struct.pack("<i", 7)),
    (LongType(), [-(2**63), 2**63 - 1], struct.pack("<q", -(2**63)), struct.pack("<q", 2**63 - 1)),
    (DateType(), [-1, 20000], struct.pack("<i", -1), struct.pack("<i", 20000)),
    (TimeType(), [1, 86_399_999_999], struct.pack("<q", 1), struct.pack("<q", 86_399_999_999)),
    (TimestamptzType(), [-1, 1], struct.pack("<q", -1), struct.pack("<q", 1)),
    (TimestampNanoType(), [-1001, 1], struct.pack("<q", -1001), struct.pack("<q", 1)),
    (UUIDType(), [UUID(int=1).bytes, UUID(int=2**127).bytes], UUID(int=1).bytes, UUID(int=2**127).bytes),
    (FixedType(20), [b"\x00" * 20, b"\xff" * 20], b"\x00" * 20, b"\xff" * 20),
    (DecimalType(9, 2), [Decimal("-1.28"), Decimal("1.28")], b"\x80", b"\x00\x80"),
    (DecimalType(18, 2), [Decimal("-1.29"), Decimal("0.00")], b"\xff\x7f", b"\x00"),
    (DecimalType(38, 0), [Decimal(-(10**37)), Decimal(256)], (-(10**37)).to_bytes(16, "big", signed=True), b"\x01\x00"),
    (StringType(), ["b" * 20, "a"], b"a", b"b" * 15 + b"c"),
    (StringType(), ["😀" * 17, "é"], "é".encode(), ("😀" * 15 + "😁").encode()),
    (StringType(), ["\ud7ff" * 17], ("\ud7ff" * 16).encode(), ("\ud7ff" * 15 + "\ue000").encode()),
    (BinaryType(), [b"\x01" * 17, b""], b"", b"\x01" * 15 + b"\x02"),
    (BinaryType(), [b"\x01" + b"\xff" * 17], b"\x01" + b"\xff" * 15, b"\x02"),
]


@pytest.mark.parametrize(("kind", "values", "lower", "upper"), BOUNDS, ids=[str(b[0]) for b in BOUNDS])
@pytest.mark.parametrize("groups_of", [1, 100])
def test_bounds_of_every_type(
    write: Write, kind: IcebergType, values: list[Any], lower: bytes, upper: bytes, groups_of: int
) -> None:
    arrow = arrow_schema(column(kind)).field(0).type
    if pa.types.is_temporal(arrow):
        width = pa.int32() if arrow.bit_width == 32 else pa.int64()
        values = pa.array(values, width).cast(arrow).to_pylist() if arrow != pa.timestamp("ns") else values

    file = write([{"c": v} for v in (*values, None)], column(kind), groups_of=groups_of)

    assert (file.lower_bounds, file.upper_bounds) == ({1: lower}, {1: upper})


@pytest.mark.parametrize(("kind", "top"), [(StringType(), "\U0010ffff"), (BinaryType(), b"\xff")])
def test_what_cannot_be_raised_has_no_upper_bound(write: Write, kind: IcebergType, top: Any) -> None:
    file = write([{"c": top * 17}], column(kind))

    assert (len(file.lower_bounds), file.upper_bounds) == (1, {})


@pytest.mark.parametrize("kind", [StringType(), BinaryType()])
def test_values_too_long_for_a_footer_are_in_the_bounds(write: Write, kind: IcebergType) -> None:
    values = ["b", "a" + "x" * 5000, "c" * 5000, "b" * 3]
    made = values if isinstance(kind, StringType) else [v.encode() for v in values]

    file = write([{"c": v} for v in made], column(kind), groups_of=1)

    assert file.lower_bounds == {1: b"a" + b"x" * 15}
    assert file.upper_bounds == {1: b"c" * 15 + b"d"}


@given(st.text(max_size=6), st.integers(1, 5))
@settings(max_examples=examples(200), deadline=None)
def test_an_upper_text_bound_is_not_below_its_value_and_short(text: str, length: int) -> None:
    value = text.encode()
    bound = _upper_text(value, length)

    assert bound is not None or all(c == "\U0010ffff" for c in text[:length])
    assert bound is None or (bound >= value and len(bound.decode()) <= length)


@given(st.binary(max_size=6), st.integers(1, 5))
@settings(max_examples=examples(200), deadline=None)
def test_an_upper_binary_bound_is_not_below_its_value_and_short(value: bytes, length: int) -> None:
    bound = _upper_bytes(value, length)

    assert bound is not None or set(value[:length]) == {0xFF}
    assert bound is None or (bound >= value and len(bound) <= length)


MODES = [
    ({}, {1, 2}, {1: b"abcdefghijklmnop"}),
    ({"default": "none"}, set(), {}),
    ({"default": "counts"}, {1, 2}, {}),
    ({"default": "full"}, {1, 2}, {1: b"abcdefghijklmnopqrstuvwxyz"}),
    ({"default": "truncate(3)"}, {1, 2}, {1: b"abc"}),
    ({"default": "none", "column__c": "truncate(2)"}, {1}, {1: b"ab"}),
    ({"default": "nonsense"}, {1, 2}, {1: b"abcdefghijklmnop"}),
    ({"column__c": "truncate(0)"}, {1, 2}, {1: b"abcdefghijklmnop"}),
    ({"column__s.x": "none"}, {1}, {1: b"abcdefghijklmnop"}),
    ({"max-inferred-column-defaults": "1"}, {1}, {1: b"abcdefghijklmnop"}),
    ({"max-inferred-column-defaults": "-7"}, {1, 2}, {1: b"abcdefghijklmnop"}),
]


@pytest.mark.parametrize(("properties", "counted", "lower"), MODES, ids=[str(m[0]) for m in MODES])
def test_metrics_modes(write: Write, properties: dict[str, str], counted: set[int], lower: dict[int, bytes]) -> None:
    schema = Schema(
        NestedField(1, "c", StringType()), NestedField(3, "s", StructType(NestedField(2, "x", StringType())))
    )

    file = write([{"c": "abcdefghijklmnopqrstuvwxyz", "s": {"x": None}}], schema, **properties)

    assert set(file.value_counts) == set(file.null_value_counts) == set(file.column_sizes) == counted
    assert file.lower_bounds == lower


def test_columns_with_metrics_are_counted_out_as_iceberg_does() -> None:
    """The order of the Java library: of a struct first its primitive fields, then what is in its nested ones."""
    schema = Schema(
        NestedField(1, "a", StructType(
            NestedField(11, "b", StructType(NestedField(111, "deep", LongType()))), NestedField(12, "x", LongType())
        )),
        NestedField(2, "z", LongType()),
    )  # fmt: skip

    counted = []
    for most in range(4):
        metrics = Metrics(schema, {"write.metadata.metrics.max-inferred-column-defaults": str(most)})
        counted.append({leaf.field_id for leaf in metrics.leaves if leaf.counted})

    assert counted == [set(), {2}, {2, 12}, {2, 12, 111}]


def test_a_sort_column_has_bounds_whatever_the_default() -> None:
    schema = Schema(NestedField(1, "a", LongType()), NestedField(2, "b", LongType()))

    metrics = Metrics(schema, {"write.metadata.metrics.default": "none"}, sorted_by=[2])

    assert [leaf.bounded for leaf in metrics.leaves] == [False, True]


def test_infinite_and_tiny_floats_bound_themselves(write: Write) -> None:
    file = write([{"c": v} for v in (math.inf, -math.inf, 5e-324)], column(DoubleType()))

    assert file.lower_bounds == {1: struct.pack("<d", -math.inf)}
    assert file.upper_bounds == {1: struct.pack("<d", math.inf)}
