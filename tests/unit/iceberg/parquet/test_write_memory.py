# SPDX-License-Identifier: Apache-2.0
"""What the writer holds is bounded by bytes: with thousands of partitions, with big records, with skew."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlparse
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, LongType, NestedField

from airflow_provider_lakecommit.core.model import TableTarget
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import file_io
from airflow_provider_lakecommit.iceberg.parquet.parquet import Dictionaries

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", LongType()), NestedField(3, "v", BinaryType()))
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
MIB = 1 << 20


def target(folder: Path, spec: PartitionSpec) -> TableTarget:
    return TableTarget(
        table="shop.orders",
        uuid=uuid4(),
        location=f"file://{folder}",
        schema=SCHEMA.model_dump_json(),
        schema_id=0,
        spec=spec.model_dump_json(),
        spec_id=0,
        properties={},
        format_version=2,
        epoch=uuid4(),
    )


def blocks(count: int, rows: int, parts: int, size: int) -> Iterator[pa.Table]:
    """Rows in turn to all partitions, with values that do not compress."""
    for b in range(count):
        ids = range(b * rows, (b + 1) * rows)
        noise = os.urandom(size * rows)
        values = [noise[i * size : (i + 1) * size] for i in range(rows)]
        arrays = [pa.array(ids), pa.array([i % parts for i in ids]), pa.array(values, pa.binary())]
        yield pa.Table.from_arrays(arrays, schema=arrow_schema(SCHEMA))


def highest(writer: FanoutWriter, made: Iterator[pa.Table]) -> tuple[list[DataFile], int]:
    """The files, and the most that Arrow held, asked after each block."""
    pool, most = pa.default_memory_pool(), 0
    before = pool.bytes_allocated()
    for block in made:
        writer.write(block)
        most = max(most, pool.bytes_allocated() - before)
    return writer.close(), most


def ids_in(files: list[DataFile]) -> list[int]:
    return sorted(
        i
        for f in files
        for i in pq.read_table(Path(urlparse(f.file_path).path), columns=["id"], partitioning=None)["id"].to_pylist()
    )


@pytest.mark.heavy
def test_two_thousand_partitions_in_few_open_files(tmp_path: Path) -> None:
    to = target(tmp_path, BY_PART)
    writer = FanoutWriter(to, file_io({"warehouse": to.location}), uuid4(), buffer_bytes=MIB, open_files=32)

    files, most = highest(writer, blocks(2, 4000, 2000, 256))

    assert sum(f.record_count for f in files) == 8_000
    assert {f.partition[0] for f in files} == set(range(2000))
    assert most < 5 * MIB


@pytest.mark.heavy(but=("partitioned",))
@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_PART], ids=["unpartitioned", "partitioned"])
def test_records_of_a_megabyte(tmp_path: Path, spec: PartitionSpec) -> None:
    to = target(tmp_path, spec)
    writer = FanoutWriter(to, file_io({"warehouse": to.location}), uuid4(), buffer_bytes=16 * MIB)

    files, most = highest(writer, blocks(12, 8, 5, MIB))

    assert ids_in(files) == list(range(96))
    assert most < 50 * MIB
    for file in files:
        footer = pq.ParquetFile(Path(urlparse(file.file_path).path)).metadata
        assert max(footer.row_group(i).total_byte_size for i in range(footer.num_row_groups)) <= 17 * MIB


def test_whether_values_repeat_is_evaluated_by_a_few_where_they_are_big() -> None:
    rows = pa.table({"v": [os.urandom(MIB) for _ in range(32)], "same": ["a" * 1000] * 32})
    pool = pa.proxy_memory_pool(pa.default_memory_pool())
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        assert Dictionaries(["v", "same"]).of(rows) == ["same"]
    finally:
        pa.set_memory_pool(before)
    most = pool.max_memory()
    assert most is not None
    assert most < 24 * MIB


def test_a_small_partition_next_to_a_big_one_keeps_no_more_than_its_rows(tmp_path: Path) -> None:
    """Blocks are dealt out as they come; what stays behind of a block must not hold all of it."""
    to = target(tmp_path, BY_PART)
    writer = FanoutWriter(to, file_io({"warehouse": to.location}), uuid4(), buffer_bytes=4 * MIB)

    def skewed() -> Iterator[pa.Table]:
        for block in blocks(30, 4000, 400, 256):
            part = pa.array([1 if i % 400 == 0 else 0 for i in range(block.num_rows)])
            yield block.set_column(1, block.schema.field(1), part)

    files, most = highest(writer, skewed())

    assert ids_in(files) == list(range(120_000))
    assert most < 12 * MIB


def test_streams_that_hold_back_count_as_open_bytes(tmp_path: Path) -> None:
    to = target(tmp_path, BY_PART)
    writer = FanoutWriter(to, file_io({"warehouse": to.location}), uuid4(), buffer_bytes=MIB // 4, open_bytes=MIB // 2)

    files, _ = highest(writer, blocks(20, 1000, 8, 256))

    assert ids_in(files) == list(range(20_000))
    assert len(files) > 8
