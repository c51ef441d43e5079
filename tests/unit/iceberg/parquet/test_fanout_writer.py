# SPDX-License-Identifier: Apache-2.0
"""Files of the fan-out writer against pyiceberg's own writer and readers, on a real table."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io import load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from tests.support.targets import target_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "country", StringType()),
    NestedField(4, "amount", DecimalType(12, 2)),
    NestedField(5, "on", DateType()),
    NestedField(6, "ratio", DoubleType()),
    NestedField(7, "ok", BooleanType()),
    NestedField(8, "place", StructType(NestedField(10, "city", StringType()), NestedField(11, "zip", LongType()))),
    NestedField(9, "tags", ListType(12, StringType(), element_required=False)),
)
START = datetime(2026, 1, 30, 22, 0, tzinfo=UTC)


def rows(n: int, first: int = 0) -> pa.Table:
    """Rows with nulls in every optional column, over three days, two months."""
    records = [
        {
            "id": i,
            "ts": None if i % 11 == 0 else START + timedelta(minutes=17 * (i % 200)),
            "country": (None, "DE", "France/Île", "")[i % 4],
            "amount": None if i % 5 == 0 else Decimal(i * 7 - 1000) / 100,
            "on": None if i % 3 == 0 else date(2026, 1, 1) + timedelta(days=i % 60),
            "ratio": None if i % 6 == 0 else i / 7,
            "ok": (None, True, False)[i % 3],
            "place": None if i % 4 == 0 else {"city": f"city {i % 9}" if i % 5 else None, "zip": i},
            "tags": None if i % 7 == 0 else [None if i % 2 else f"tag {k}" for k in range(i % 3)],
        }
        for i in range(first, first + n)
    ]
    return pa.Table.from_pylist(records, schema=arrow_schema(SCHEMA))


def spec(*fields: tuple[int, Transform[Any, Any]]) -> PartitionSpec:
    return PartitionSpec(*[PartitionField(s, 1000 + i, t, f"p{i}") for i, (s, t) in enumerate(fields)])


@pytest.fixture
def make_table(catalog: Catalog) -> Callable[..., Table]:
    def make(partitioning: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, **write: str) -> Table:
        properties = {f"write.{k.replace('__', '-').replace('_', '.')}": v for k, v in write.items()}
        return catalog.create_table("shop.orders", SCHEMA, partition_spec=partitioning, properties=properties)

    return make


def writer_for(table: Table, **bounds: int) -> FanoutWriter:
    return FanoutWriter(target_of(table), load_file_io({}, table.location()), uuid4(), **bounds)


def land(table: Table, *blocks: pa.Table, **bounds: int) -> list[DataFile]:
    """Write the blocks and append the files."""
    writer = writer_for(table, **bounds)
    for block in blocks:
        writer.write(block)
    files = writer.close()
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    return files


def local(path: str) -> Path:
    return Path(urlparse(path).path)


def content(table: Table) -> list[dict[str, Any]]:
    return table.scan().to_arrow().sort_by("id").to_pylist()


def files_below(table: Table) -> list[Path]:
    return [p for p in local(table.location()).rglob("*.parquet") if p.is_file()]


SPECS = {
    "none": spec(),
    "identity": spec((3, IdentityTransform())),
    "identity of a date": spec((5, IdentityTransform())),
    "identity of a time": spec((2, IdentityTransform())),
    "identity of a decimal": spec((4, IdentityTransform())),
    "identity of a truth": spec((7, IdentityTransform())),
    "year": spec((2, YearTransform())),
    "month": spec((5, MonthTransform())),
    "day": spec((2, DayTransform())),
    "hour": spec((2, HourTransform())),
    "bucket": spec((1, BucketTransform(5))),
    "bucket of a decimal": spec((4, BucketTransform(3))),
    "truncate": spec((3, TruncateTransform(3))),
    "truncate of a decimal": spec((4, TruncateTransform(500))),
    "nested": spec((10, IdentityTransform()), (11, BucketTransform(2))),
    "void": spec((3, VoidTransform())),
    "several": spec((2, DayTransform()), (3, IdentityTransform()), (1, BucketTransform(2))),
}


@pytest.mark.heavy(but=("identity", "identity of a time", "bucket of a decimal", "several"))
@pytest.mark.parametrize("partitioning", SPECS.values(), ids=SPECS.keys())
def test_rows_come_back_and_files_are_in_their_partitions(
    make_table: Callable[..., Table], partitioning: PartitionSpec
) -> None:
    table = make_table(partitioning)
    data = rows(400)

    files = land(table, data.slice(0, 100), data.slice(100))

    assert content(table) == data.to_pylist()
    partitions = [tuple(f.partition[i] for i in range(len(partitioning.fields))) for f in files]
    assert len(set(partitions)) == len(files)
    for file, partition in zip(files, partitions, strict=True):
        inside = pq.read_table(local(file.file_path), partitioning=None)
        for field, value in zip(partitioning.fields, partition, strict=True):
            assert values_of(inside, field) == {value}, file.file_path


def values_of(inside: pa.Table, field: PartitionField) -> set[Any]:
    """Partition values of a file's rows by the transform's scalar form: not the code that dealt them out."""
    name, *inner = SCHEMA.find_column_name(field.source_id).split(".")  # type: ignore[union-attr]
    column = inside[name].combine_chunks()
    if inner:
        column = pc.struct_field(column, inner)
    kind = SCHEMA.find_type(field.source_id)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    transform = field.transform.transform(kind)
    return {transform(v) for v in column.to_pylist()}


def test_statistics_are_pyicebergs_where_those_are_right(make_table: Callable[..., Table], catalog: Catalog) -> None:
    """Next to pyiceberg's own we have NaN counts, bounds of nested columns and no counts below lists."""
    data = rows(300)
    ours = land(make_table(spec((3, IdentityTransform()))), data)
    other = catalog.create_table("shop.other", SCHEMA, partition_spec=spec((3, IdentityTransform())))
    other.append(data)

    theirs = {f.file.partition[0]: f.file for f in other.scan().plan_files()}
    for file in ours:
        twin = theirs[file.partition[0]]
        assert file.record_count == twin.record_count
        for what in ("value_counts", "null_value_counts"):
            assert getattr(file, what) == {k: v for k, v in getattr(twin, what).items() if k != 12}, what
        for what in ("lower_bounds", "upper_bounds"):
            assert {k: v for k, v in getattr(file, what).items() if k not in (10, 11)} == getattr(twin, what), what
        assert (file.nan_value_counts, file.split_offsets) == ({6: 0}, twin.split_offsets)
        assert file.column_sizes.keys() == twin.column_sizes.keys()
        assert file.file_size_in_bytes == local(file.file_path).stat().st_size
        assert file.spec_id == other.spec().spec_id


def test_files_are_named_by_the_attempt_and_never_overwritten(make_table: Callable[..., Table]) -> None:
    table, attempt = make_table(), uuid4()
    io = load_file_io({}, table.location())
    first = FanoutWriter(target_of(table), io, attempt)
    first.write(rows(3))
    (file,) = first.close()
    before = local(file.file_path).read_bytes()

    second = FanoutWriter(target_of(table), io, attempt)
    second.write(rows(9))
    with pytest.raises(FileExistsError):
        second.close()

    assert local(file.file_path).name == f"{attempt}-00000.parquet"
    assert local(file.file_path).read_bytes() == before


def test_an_abort_deletes_what_was_written_and_nothing_else(make_table: Callable[..., Table]) -> None:
    table = make_table(spec((1, BucketTransform(4))))
    kept = land(table, rows(20))
    writer = writer_for(table, buffer_bytes=1)
    writer.write(rows(200))
    assert len(files_below(table)) > len(kept)

    writer.abort()
    writer.abort()

    assert {str(p) for p in files_below(table)} == {str(local(f.file_path)) for f in kept}


def test_an_abort_after_a_failed_close_deletes_the_finished_files_too(
    make_table: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make_table(spec((1, BucketTransform(4))))
    writer = writer_for(table)
    writer.write(rows(200))
    third = local(table.location()) / "data" / "p0=2"
    third.parent.mkdir(exist_ok=True)
    third.write_text("in the way of the directory of a partition")

    with pytest.raises(OSError, match="p0=2"):
        writer.close()
    writer.abort()

    assert files_below(table) == []


def test_memory_is_bounded_over_all_partitions(make_table: Callable[..., Table]) -> None:
    table = make_table(spec((1, BucketTransform(16))))
    data = rows(2000)
    bound = data.nbytes // 10
    writer = writer_for(table, buffer_bytes=bound)
    held = []
    for at in range(0, 2000, 50):
        writer.write(data.slice(at, 50))
        held.append(writer._buffered)
    files = writer.close()

    assert max(held) <= bound + 50 * data.nbytes // 2000 + data.nbytes // 100
    assert sum(f.record_count for f in files) == 2000


@pytest.mark.heavy
def test_open_files_are_bounded_by_writing_further_ones(make_table: Callable[..., Table]) -> None:
    table = make_table(spec((1, BucketTransform(8))))
    data = rows(1000)
    writer = writer_for(table, buffer_bytes=1, open_files=3)
    most = 0
    for at in range(0, 1000, 100):
        writer.write(data.slice(at, 100))
        most = max(most, open_parquet_files(table))
    files = writer.close()
    with table.transaction() as tx, tx.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)

    assert 0 < most <= 3
    assert len(files) > 8
    assert content(table) == data.to_pylist()


def open_parquet_files(table: Table) -> int:
    """Files below the table that this process has open, asked of the system."""
    root = str(local(table.location()))
    paths = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            paths.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            continue
    return sum(p.startswith(root) for p in paths)


def test_a_file_is_closed_at_the_target_size(make_table: Callable[..., Table]) -> None:
    table = make_table(target__file__size__bytes="10000")
    data = rows(4000)

    files = land(table, *(data.slice(at, 500) for at in range(0, 4000, 500)))

    assert len(files) > 3
    assert max(f.file_size_in_bytes for f in files) < 30_000
    assert content(table) == data.to_pylist()


def test_row_groups_codec_and_dictionaries_obey_the_table(make_table: Callable[..., Table]) -> None:
    table = make_table(
        parquet_row__group__limit="100", parquet_compression__codec="gzip", parquet_compression__level="9"
    )

    (file,) = land(table, rows(450))

    footer = pq.ParquetFile(local(file.file_path)).metadata
    assert [footer.row_group(i).num_rows for i in range(footer.num_row_groups)] == [100, 100, 100, 100, 50]
    assert footer.row_group(0).column(0).compression == "GZIP"
    assert len(file.split_offsets or []) == 5


@pytest.mark.parametrize(("codec", "found"), [("uncompressed", "UNCOMPRESSED"), ("snappy", "SNAPPY"), ("zstd", "ZSTD")])
def test_a_codec_without_levels_gets_none_of_ours(make_table: Callable[..., Table], codec: str, found: str) -> None:
    (file,) = land(make_table(parquet_compression__codec=codec), rows(10))

    assert pq.ParquetFile(local(file.file_path)).metadata.row_group(0).column(0).compression == found


def test_locations_obey_the_table(make_table: Callable[..., Table], tmp_path: Path) -> None:
    elsewhere = f"file://{tmp_path / 'elsewhere'}"
    table = make_table(spec((3, IdentityTransform())), object__storage_enabled="true", data_path=elsewhere)

    files = land(table, rows(40))

    assert all(
        re.match(rf"{re.escape(elsewhere)}/[01]{{4}}/[01]{{4}}/[01]{{4}}/[01]{{8}}/p0=", f.file_path) for f in files
    )
    assert content(table) == rows(40).to_pylist()


def test_odd_column_names_are_written_as_pyiceberg_writes_them(catalog: Catalog) -> None:
    odd = Schema(
        NestedField(1, "order id", LongType()),
        NestedField(2, "a.b", StructType(NestedField(3, "1st", StringType()), NestedField(4, "ok", LongType()))),
        NestedField(5, "li-st", ListType(6, StructType(NestedField(7, "x y", LongType())), element_required=False)),
    )
    table = catalog.create_table("shop.orders", odd, partition_spec=spec((3, IdentityTransform())))
    data = pa.Table.from_pylist(
        [
            {"order id": 1, "a.b": {"1st": "x", "ok": 1}, "li-st": [{"x y": 1}, None]},
            {"order id": 2, "a.b": None, "li-st": None},
            {"order id": 3, "a.b": {"1st": "x", "ok": None}, "li-st": []},
        ],
        schema=arrow_schema(odd),
    )

    files = land(table, data)

    # Read as plain Parquet: pyiceberg reads a missing list of structs as an empty one.
    found = [r for f in files for r in pq.read_table(local(f.file_path), partitioning=None).to_pylist()]
    assert [list(r.values()) for r in sorted(found, key=lambda r: r["order_x20id"])] == [
        [1, {"_1st": "x", "ok": 1}, [{"x_x20y": 1}, None]],
        [2, None, None],
        [3, {"_1st": "x", "ok": None}, []],
    ]
    assert table.scan().to_arrow().column_names == ["order id", "a.b", "li-st"]
    assert pq.read_schema(local(files[0].file_path)).names == ["order_x20id", "a_x2Eb", "li_x2Dst"]


def test_no_rows_give_no_files(make_table: Callable[..., Table]) -> None:
    assert land(make_table(), rows(0)) == []


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"write.format.default": "orc"}, "only parquet is written"),
        ({"write.target-file-size-bytes": "big"}, "write.target-file-size-bytes='big' is not a whole number"),
    ],
)
def test_a_table_that_wants_what_we_cannot_is_refused(
    make_table: Callable[..., Table], properties: dict[str, str], message: str
) -> None:
    table = make_table()
    with pytest.raises(TableError, match=re.escape(message)):
        FanoutWriter(replace(target_of(table), properties=properties), load_file_io({}, table.location()), uuid4())


def test_rows_of_another_shape_are_refused(make_table: Callable[..., Table]) -> None:
    with pytest.raises(TableError, match="LC3333"):
        writer_for(make_table()).write(rows(3).drop_columns(["on"]))
