# SPDX-License-Identifier: Apache-2.0
"""Real Parquet files, published and read back by readers that know nothing of the committer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec

from airflow_provider_lakecommit.core.offsets import OffsetRange
from tests.fakes.lake import BY_BUCKET, Lake, data_file, section, spans, staged

pytestmark = pytest.mark.integration


def written(lake: Lake, rows: OffsetRange) -> tuple[DataFile, ...]:
    """A file per partition, as a writer of this table makes them."""
    table = lake.load()
    values = range(rows.start, rows.end)
    data = pa.table(
        {"id": pa.array(values, pa.int64()), "note": [f"row {n}" for n in values]},
        schema=pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())]),
    )
    files = tuple(_dataframe_to_data_files(table.metadata, data, table.io))
    for file in files:
        file.spec_id = table.metadata.default_spec_id
    return files


@pytest.mark.parametrize("spec", [UNPARTITIONED_PARTITION_SPEC, BY_BUCKET], ids=["unpartitioned", "bucket"])
def test_what_is_published_is_what_readers_read(tmp_path: Path, spec: PartitionSpec) -> None:
    lake = Lake(tmp_path)
    lake.create(spec)
    ours = lake.join()
    spec_id = lake.load().metadata.default_spec_id
    for start in (0, 100):
        files = written(lake, OffsetRange(start, start + 100))
        one = staged((0, start, start + 100), epoch=ours.epoch, files=files, spec_id=spec_id)
        assert lake.publish(lake.request(one)).published == (one,)
    lake.publish(lake.request(one))
    read = lake.load().scan().to_arrow().sort_by("id")
    assert read["id"].to_pylist() == list(range(200))
    assert read["note"].to_pylist() == [f"row {n}" for n in range(200)]
    assert lake.load().scan(row_filter="id = 150").to_arrow()["id"].to_pylist() == [150]


def wide_files(count: int) -> Iterator[DataFile]:
    """Files with the statistics of twenty columns."""
    columns = range(1, 21)
    numbers, bounds = dict.fromkeys(columns, 1), dict.fromkeys(columns, b"\x01\x02\x03\x04\x05\x06\x07\x08")
    for n in range(count):
        yield data_file(
            f"file:///warehouse/shop/orders/data/{uuid4()}-{n}.parquet",
            1,
            partition=[n % 4],
            column_sizes=numbers,
            value_counts=numbers,
            null_value_counts=numbers,
            lower_bounds=bounds,
            upper_bounds=bounds,
        )


@pytest.mark.heavy
def test_ten_thousand_files_with_statistics_are_one_commit(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.create(BY_BUCKET)
    ours = lake.join(section())
    one = staged((0, 0, 10_000), epoch=ours.epoch, files=tuple(wide_files(10_000)), spans=spans((0, 0, 10_000)))
    request = lake.request(one)
    outcome = lake.publish(request)
    assert (outcome.published, outcome.requests_sent) == ((one,), 1)
    assert lake.rows() == 10_000
