# SPDX-License-Identifier: Apache-2.0
"""Files that another engine imported from folders, as Spark's `add_files` does: a column that a partition is by is only
in the manifest. A row of them has its key, and a compaction keeps the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, DateType, IcebergType, IntegerType, LongType, StringType, UUIDType

from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from airflow_provider_lakecommit.status.upserted import check_keys
from tests.fakes.lake import data_file
from tests.support.upserts import UpsertLake

BY_FIRST = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "by_first"))
ONE, OTHER = UUID(int=7), UUID(int=7 << 100)
COLUMNS: dict[str, tuple[IcebergType, Any, Any, Any]] = {
    "string": (StringType(), "eu", "us", "eu"),
    "int": (IntegerType(), 7, 8, 7),
    "date": (DateType(), date(2026, 1, 2), date(2026, 1, 3), (date(2026, 1, 2) - date(1970, 1, 1)).days),
    "uuid": (UUIDType(), ONE.bytes, OTHER.bytes, ONE),
}
"""A column's type, two of its values, and the first one as it is in a manifest."""


def imported(lake: UpsertLake, files: Sequence[pa.Table], *, named: bool = True, **stated: Any) -> None:
    """Add files of these rows, which state no field ids.

    :param named: the table has a name mapping
    :param stated: values of their manifest entries
    """
    table = lake.loaded
    made = []
    for n, rows in enumerate(files):
        path = f"{table.location()}/imported-{n}.parquet"
        pq.write_table(rows, path.removeprefix("file://"), store_schema=False)
        size = Path(path.removeprefix("file://")).stat().st_size
        made.append(data_file(path, len(rows), file_size_in_bytes=size, **stated))
    with table.transaction() as change:
        if named:
            change.set_properties({"schema.name-mapping.default": table.schema().name_mapping.model_dump_json()})
        with change.update_snapshot().fast_append() as append:
            for file in made:
                append.append_data_file(file)


@pytest.mark.parametrize("kind", COLUMNS)
def test_their_rows_are_replaced_and_compacted(tmp_path: Path, kind: str) -> None:
    column, one, other, stated = COLUMNS[kind]
    lake = UpsertLake(tmp_path, {"first": column, "id": LongType()}, BY_FIRST)
    # Two rows each, whose first column is in the partition only.
    files = [pa.table({"id": [2 * n, 2 * n + 1], "value": [0, 0]}) for n in range(6)]
    imported(lake, files, partition=(stated,))

    def rows() -> list[tuple[Any, int, int]]:
        found = lake.loaded.scan().to_arrow().to_pylist()
        return sorted((str(r["first"]), r["id"], r["value"]) for r in found)

    [before, *_] = {name for name, _, _ in rows()}
    lake.land([((one, 1), 5), ((other, 2), 5), ((one, 4), None)])
    expected = sorted([(before, n, 5 if n == 1 else 0) for n in range(12) if n != 4])
    assert [r for r in rows() if r[0] == before] == expected
    assert len(rows()) == len(expected) + 1
    found = rows()
    session = cast(LandingSession, SimpleNamespace(landing=lake.landing, tables=lake.tables))
    (done,) = compact(session, write=True)
    assert (done.error, len(done.snapshots)) == ("", 1)
    assert rows() == found
    assert list(check_keys(lake.landing, lake.tables, lambda _: None)) == []
    lake.land([((one, 0), 6)])
    assert (before, 0, 6) in rows()
    assert (before, 0, 0) not in rows()


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        # Iceberg's library for Java compares UUIDs as two signed numbers (apache/iceberg#14216).
        (UUIDType(), pa.array([bytes(16), b"\xff" * 16], pa.binary(16)), (b"\x80" + bytes(15), b"\x7f" + b"\xff" * 15)),
        (LongType(), pa.array([1, 2]), (b"1", b"2")),
        (StringType(), pa.array([b"a", b"b"], pa.binary()), None),
        (BinaryType(), pa.array(["a", "b"], pa.string()), None),
    ],
    ids=["uuid", "long", "string", "binary"],
)
def test_rows_are_found_whatever_their_writer_states(
    tmp_path: Path, kind: IcebergType, values: pa.Array, bounds: tuple[bytes, bytes] | None
) -> None:
    lake = UpsertLake(tmp_path, {"id": kind})
    stated = {} if bounds is None else {"lower_bounds": {1: bounds[0]}, "upper_bounds": {1: bounds[1]}}
    imported(lake, [pa.table({"id": values, "value": [0, 0]})], **stated)
    lake.land([(values.cast(schema_to_pyarrow(kind))[1].as_py(), 1)])
    assert sorted(lake.loaded.scan().to_arrow().column("value").to_pylist()) == [0, 1]


def test_the_order_of_a_row_may_be_in_its_partition(tmp_path: Path) -> None:
    by_value = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "by_value"))
    lake = UpsertLake(tmp_path, spec=by_value, order=True)
    imported(lake, [pa.table({"id": [1, 2]})], partition=(5,))
    lake.land([(1, 4), (2, 6)])
    assert lake.content() == {1: 5, 2: 6}


@pytest.mark.parametrize(("named", "keys", "code"), [(False, ["a"], "LC3338"), (True, [b"\xff"], "LC3066")])
def test_files_whose_keys_are_unknown_are_refused_by_name(
    tmp_path: Path, named: bool, keys: list[Any], code: str
) -> None:
    lake = UpsertLake(tmp_path, {"id": StringType()})
    imported(lake, [pa.table({"id": keys, "value": [0]})], named=named)
    with pytest.raises(TableError, match=code):
        lake.land([("a", 1), ("\U0010ffff", 1)])
