# SPDX-License-Identifier: Apache-2.0
"""Sorted files: the order of the specification, by a comparison written out here, and what a file may claim."""

from __future__ import annotations

import math
import struct
from functools import cmp_to_key
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType, StructType

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import Sorting
from tests.support.targets import target_of
from tests.unit.iceberg.parquet.test_partitions import STORED, expected, table_of

ASC, DESC = SortDirection.ASC, SortDirection.DESC
FIRST, LAST = NullOrder.NULLS_FIRST, NullOrder.NULLS_LAST
ORDERS = [(d, n) for d in (ASC, DESC) for n in (FIRST, LAST)]


def compared(a: Any, b: Any) -> int:
    if isinstance(a, float):
        a, b = (math.isnan(a), a, math.copysign(1, a)), (math.isnan(b), b, math.copysign(1, b))
        if a[0] or b[0]:
            return int(a[0]) - int(b[0])
    if isinstance(a, str):
        a, b = list(map(ord, a)), list(map(ord, b))
    return int(a > b) - int(a < b)


def sorted_rows(values: list[Any], direction: SortDirection, nulls: NullOrder) -> list[int]:
    """Row numbers in order, by comparing two at a time."""

    def of(i: int, j: int) -> int:
        a, b = values[i], values[j]
        if a is None or b is None:
            return ((b is None) - (a is None)) * (-1 if nulls == LAST else 1) if (a is None) != (b is None) else 0
        return compared(a, b) * (1 if direction == ASC else -1)

    return sorted(range(len(values)), key=cmp_to_key(of))


SORTED = {**STORED, "double": (DoubleType(), st.floats()), "small": (LongType(), st.integers(-2, 2))}


@pytest.mark.parametrize("name", SORTED)
def test_every_type_is_sorted_as_the_specification_reports(name: str) -> None:
    kind, stored = SORTED[name]
    transforms: list[Transform[Any, Any]] = [IdentityTransform(), BucketTransform(3), TruncateTransform(2)]

    @given(st.lists(st.none() | stored, max_size=20))
    @settings(max_examples=12, deadline=None)
    def check(values: list[Any]) -> None:
        schema, table = table_of(kind, values)
        for transform in (t for t in transforms if t.can_transform(kind)):
            for direction, nulls in ORDERS:
                order = SortOrder(SortField(1, transform, direction, nulls))
                keys = [expected(transform, kind, v) for v in values]
                assert Sorting(order, schema).order(table).tolist() == sorted_rows(keys, direction, nulls)

    check()


def test_fields_count_in_turn_and_equal_rows_keep_their_order() -> None:
    schema = Schema(NestedField(1, "s", StructType(NestedField(2, "x", LongType()))), NestedField(3, "y", StringType()))
    rows: list[dict[str, Any]] = [
        {"s": {"x": 1}, "y": "b"},
        {"s": None, "y": "a"},
        {"s": {"x": 2}, "y": "b"},
        {"s": {"x": 2}, "y": None},
        {"s": {"x": 1}, "y": "b"},
    ]
    order = SortOrder(SortField(3, IdentityTransform(), DESC, LAST), SortField(2, IdentityTransform(), DESC, FIRST))

    found = Sorting(order, schema).order(pa.Table.from_pylist(rows, schema=arrow_schema(schema))).tolist()

    assert found == [2, 0, 4, 1, 3]


def test_no_order_and_void_fields_are_no_order() -> None:
    schema = Schema(NestedField(1, "x", LongType()))

    assert not Sorting(None, schema)
    void = Sorting(SortOrder(SortField(1, VoidTransform(), ASC, FIRST)), schema)
    assert (bool(void), void.order_id) == (False, None)


def test_an_order_that_cannot_be_made_is_refused_by_name() -> None:
    schema = Schema(NestedField(1, "x", LongType()))
    with pytest.raises(TableError, match="LC3331"):
        Sorting(SortOrder(SortField(1, DayTransform(), ASC, FIRST)), schema)


SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
BY_NAME = SortOrder(SortField(2, IdentityTransform(), DESC, FIRST), SortField(1, IdentityTransform(), ASC, FIRST))


def rows(n: int) -> pa.Table:
    names = [None if i % 13 == 0 else f"name {i * 7 % 50}" for i in range(n)]
    return pa.Table.from_arrays([pa.array(range(n)), pa.array(names)], schema=arrow_schema(SCHEMA))


def land(table: Table, data: pa.Table, **bounds: int) -> list[DataFile]:
    writer = FanoutWriter(target_of(table), load_file_io({}, table.location()), uuid4(), **bounds)
    for at in range(0, data.num_rows, 100):
        writer.write(data.slice(at, 100))
    files = writer.close()
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    return files


@pytest.mark.parametrize("buffer_bytes", [1 << 26, 10_000])
@pytest.mark.parametrize("buckets", [0, 5])
def test_each_file_is_one_sorted_run_with_its_order(catalog: Catalog, buckets: int, buffer_bytes: int) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, BucketTransform(buckets), "b")) if buckets else None
    table = catalog.create_table(
        "shop.sorted",
        SCHEMA,
        partition_spec=spec or UNPARTITIONED_PARTITION_SPEC,
        sort_order=BY_NAME,
        properties={"write.parquet.row-group-limit": "64", "write.metadata.metrics.default": "none"},
    )
    data = rows(1500)

    files = land(table, data, buffer_bytes=buffer_bytes)

    for file in files:
        inside = pq.read_table(Path(urlparse(file.file_path).path), partitioning=None).to_pylist()
        assert inside == sorted(
            inside, key=lambda r: (r["name"] is not None, [-ord(c) for c in (r["name"] or "") + "\0"], r["id"])
        )
        assert file.sort_order_id == table.sort_order().order_id == 1
        assert set(file.lower_bounds) == {1, 2}
    assert (len(files) == max(1, buckets)) is (buffer_bytes > 10_000)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == data.to_pylist()
    planned = [task.file.sort_order_id for task in table.scan().plan_files()]
    assert planned == [1] * len(files)


def test_files_of_an_unsorted_table_claim_no_order(catalog: Catalog) -> None:
    (file,) = land(catalog.create_table("shop.plain", SCHEMA), rows(10))

    assert file.sort_order_id is None


def test_a_run_over_the_target_size_is_more_than_one_file(catalog: Catalog) -> None:
    table = catalog.create_table(
        "shop.sorted", SCHEMA, sort_order=BY_NAME, properties={"write.target-file-size-bytes": "3000"}
    )

    files = land(table, rows(3000))

    runs = [pq.read_table(Path(urlparse(f.file_path).path))["name"].to_pylist() for f in files]
    assert len(files) > 1
    for names in runs:
        present = [n for n in names if n is not None]
        assert present == sorted(present, reverse=True)


def test_metrics_of_a_bucket_in_the_order_are_not_promoted(catalog: Catalog) -> None:
    order = SortOrder(SortField(1, BucketTransform(4), ASC, FIRST), SortField(2, IdentityTransform(), ASC, FIRST))
    table = catalog.create_table(
        "shop.sorted", SCHEMA, sort_order=order, properties={"write.metadata.metrics.default": "counts"}
    )

    (file,) = land(table, rows(20))

    assert set(file.lower_bounds) == {2}
    assert file.value_counts == {1: 20, 2: 20}


def bits(value: float) -> bytes:
    return struct.pack("<d", value)


def test_zeros_and_nans_are_in_total_order() -> None:
    kind: IcebergType = DoubleType()
    values = [math.nan, 0.0, math.inf, -0.0, -math.inf, -math.nan, -5e-324]
    schema, table = table_of(kind, values)
    order = SortOrder(SortField(1, IdentityTransform(), ASC, FIRST))

    found = [values[i] for i in Sorting(order, schema).order(table)]

    assert [bits(v) for v in found[:5]] == [bits(v) for v in (-math.inf, -5e-324, -0.0, 0.0, math.inf)]
    assert all(map(math.isnan, found[5:]))
