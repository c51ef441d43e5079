# SPDX-License-Identifier: Apache-2.0
"""Partition tuples and paths of written files, on their way over the control topic into a manifest and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
)
from pyiceberg.types import DoubleType, IcebergType, LongType, NestedField, StringType, TimestamptzType

from airflow_provider_lakecommit.control.data_file import FileCodec
from airflow_provider_lakecommit.iceberg.data_files import partition_fields, to_pyiceberg, to_wire
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from tests.support.targets import target_of
from tests.unit.iceberg.parquet.test_partitions import STORED, table_of


def written(table: Table, *blocks: pa.Table, **bounds: int) -> list[DataFile]:
    writer = FanoutWriter(target_of(table), load_file_io({}, table.location()), uuid4(), **bounds)
    for block in blocks:
        writer.write(block)
    return writer.close()


def sent(files: Sequence[DataFile], table: Table) -> list[DataFile]:
    """The files as the commit sees them: through the body of an event."""
    fields = partition_fields(table.spec(), table.schema())
    codec = FileCodec(fields)
    bodies = [codec.write(f) for f in to_wire(files, spec=table.spec(), schema=table.schema())]
    announced = [codec.read(_read(b)) for b in bodies]
    return to_pyiceberg(announced, fields, spec=table.spec(), schema=table.schema())


def _read(body: Any) -> Any:
    """What a reader of Avro has for a body: branches of unions have no names."""
    if isinstance(body, dict):
        return {k: _read(v) for k, v in body.items()}
    if isinstance(body, tuple) and len(body) == 2 and isinstance(body[0], str):
        return _read(body[1])
    return [_read(v) for v in body] if isinstance(body, list) else body


def appended(table: Table, files: Sequence[DataFile]) -> dict[str, DataFile]:
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    return {task.file.file_path: task.file for task in table.scan().plan_files()}


VALUES: dict[str, list[Any]] = {
    "boolean": [True, False, None],
    "int": [-(2**31), 2**31 - 1, None],
    "long": [-(2**63), 0, None],
    "date": [-1, 20_000, None],
    "time": [0, 86_399_999_999, None],
    "timestamp": [-1, 1_700_000_000_123_456, None],
    "timestamptz": [-1, 1_700_000_000_123_456, None],
    "string": ["", "a/b=c d%2F&?#+", "Île 😀", "null", "..", None],
    "binary": [b"", b"\x00\xff/", None],
    "fixed": [b"\x00\x01\x02", None],
    "uuid": [UUID(int=0).bytes, UUID(int=2**128 - 1).bytes, None],
    "decimal 9": [Decimal("-0.01"), Decimal("9999999.99"), None],
    "decimal 38": [Decimal("-1234567890123456789012345678.0123456789"), Decimal(0).quantize(Decimal("1e-10")), None],
}


@pytest.mark.parametrize("name", VALUES)
def test_identity_values_reach_the_manifest_unchanged(catalog: Catalog, name: str) -> None:
    kind: IcebergType = STORED[name][0]
    schema, data = table_of(kind, VALUES[name])
    table = catalog.create_table(
        "shop.by", schema, partition_spec=PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c"))
    )

    files = written(table, data)
    entries = appended(table, sent(files, table))

    assert {repr(f.partition[0]) for f in files} == {repr(v) for v in VALUES[name]}
    assert len(entries) == len(files) == len(VALUES[name])
    assert all(Path(urlparse(p).path).parent.name.startswith("c=") for p in entries)
    for file in files:
        entry = entries[file.file_path]
        found = entry.partition[0].bytes if isinstance(entry.partition[0], UUID) else entry.partition[0]
        assert found == file.partition[0]
        for what in ("record_count", "null_value_counts", "lower_bounds", "upper_bounds", "split_offsets"):
            assert getattr(entry, what) == getattr(file, what), what
    assert table.scan().to_arrow().num_rows == len(VALUES[name])


def test_values_too_long_for_the_name_of_a_folder_are_cut_in_the_path_alone(catalog: Catalog) -> None:
    values = ["x" * 5000 + "a", "x" * 5000 + "b", "é/" * 100, "x" * 198]
    schema, data = table_of(StringType(), values)
    fields = [PartitionField(1, 1000 + i, TruncateTransform(5001 + i), f"c{i}") for i in range(4)]
    for spec, most in ((PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "c")), 200), (fields, 150)):
        spec = spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec)
        table = catalog.create_table(f"shop.by{most}", schema, partition_spec=spec)

        files = written(table, data)
        appended(table, sent(files, table))

        assert {f.partition[0] for f in files} == set(values)
        assert table.scan().to_arrow()["c"].sort().to_pylist() == sorted(values)
        folders = [Path(urlparse(f.file_path).path).parent for f in files]
        assert len(set(folders)) == len(values)
        named = [part for folder in folders for part in folder.parts if part.startswith("c")]
        assert all(len(part) <= most and re.fullmatch("([^%]|%[0-9A-F]{2})*", part) for part in named)


def test_nan_counts_and_the_sort_order_reach_the_manifest(catalog: Catalog) -> None:
    schema = Schema(NestedField(1, "x", DoubleType()))
    table = catalog.create_table("shop.by", schema, sort_order=SortOrder(SortField(1, IdentityTransform())))
    data = pa.Table.from_arrays([pa.array([float("nan"), None, 1.0])], schema=arrow_schema(schema))

    (entry,) = appended(table, sent(written(table, data), table)).values()

    assert (entry.nan_value_counts, entry.null_value_counts, entry.sort_order_id) == ({1: 1}, {1: 1}, 1)


WIDE = Schema(
    NestedField(1, "ts", TimestamptzType()),
    NestedField(2, "id", LongType()),
    NestedField(3, "name", StringType()),
    NestedField(4, "ts_day", StringType()),
)


def wide_rows(n: int = 60) -> pa.Table:
    ts = pa.array([i * 3_600_000_000 * 5 - 10**11 for i in range(n)], pa.timestamp("us", "UTC"))
    names = pa.array([f"né{i % 4}" for i in range(n)])
    return pa.Table.from_arrays([ts, pa.array(range(n)), names, names], schema=arrow_schema(WIDE))


def test_two_fields_of_one_source_and_names_like_columns_are_distinguished(catalog: Catalog) -> None:
    spec = PartitionSpec(
        PartitionField(1, 1000, DayTransform(), "ts_of_day"),
        PartitionField(1, 1001, HourTransform(), "a/b=c"),
        PartitionField(2, 1002, BucketTransform(3), "id_bucket"),
        PartitionField(2, 1003, TruncateTransform(10), "id_trunc"),
        PartitionField(4, 1004, IdentityTransform(), "ts_day"),
        PartitionField(3, 1005, TruncateTransform(1), "name_trunc"),
    )
    table = catalog.create_table("shop.by", WIDE, partition_spec=spec)

    files = written(table, wide_rows())
    entries = appended(table, sent(files, table))

    for file in files:
        (day, hour, bucket, ten, name, cut) = (entries[file.file_path].partition[i] for i in range(6))
        inside = pq.read_table(Path(urlparse(file.file_path).path), partitioning=None).to_pylist()
        hours = {int(r["ts"].timestamp() // 3600) for r in inside}
        assert (hours, {h // 24 for h in hours}) == ({hour}, {day})
        assert {r["id"] - r["id"] % 10 for r in inside} == {ten}
        assert {r["ts_day"] for r in inside} == {name}
        assert cut == "n"
        assert f"/a%2Fb%3Dc={datetime.fromtimestamp(hour * 3600, UTC):%Y-%m-%d-%H}/" in file.file_path
        assert bucket in range(3)
    assert table.scan().to_arrow().num_rows == 60


@pytest.mark.parametrize("version", ["1", "2"])
def test_dropped_fields_stay_in_place_as_void_or_are_missing(catalog: Catalog, version: str) -> None:
    table = catalog.create_table(
        "shop.by",
        WIDE,
        partition_spec=PartitionSpec(
            PartitionField(1, 1000, DayTransform(), "day"), PartitionField(2, 1001, BucketTransform(2), "bucket")
        ),
        properties={"format-version": version},
    )
    with table.update_spec() as update:
        update.remove_field("day")
    with table.update_spec() as update:
        update.add_field("ts", HourTransform(), "hour")

    files = written(table, wide_rows(6))
    entries = appended(table, sent(files, table))

    transforms = [f.transform for f in table.spec().fields]
    assert (VoidTransform() in transforms) is (version == "1")
    for entry in entries.values():
        values = [entry.partition[i] for i in range(len(transforms))]
        assert [v is None for v in values] == [t == VoidTransform() for t in transforms]
        assert entry.spec_id == table.spec().spec_id
    assert sorted(table.scan().to_arrow()["id"].to_pylist()) == list(range(6))
