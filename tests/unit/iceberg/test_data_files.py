# SPDX-License-Identifier: Apache-2.0
"""Data files that travel over the control topic are appended as if they had not."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile as ManifestFile
from pyiceberg.manifest import ManifestEntry
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
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
from pyiceberg.typedef import Record
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.control.data_file import DataFile, PartitionField
from airflow_provider_lakecommit.control.events import Event, decode, encode
from airflow_provider_lakecommit.control.payloads import DataWritten
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.data_files import partition_fields, to_pyiceberg, to_wire
from tests.support.golden_events import COMMIT, FILE, MOMENT, PARTITION_FIELDS, SCHEMA, SPEC, TABLE

COLUMNS: dict[str, tuple[str, pa.DataType, list[Any]]] = {
    "flag": ("boolean", pa.bool_(), [True, False, None]),
    "small": ("int", pa.int32(), [1, -5, None]),
    "large": ("long", pa.int64(), [2**62, -1, None]),
    "single": ("float", pa.float32(), [1.5, -0.25, None]),
    "double": ("double", pa.float64(), [1e300, -0.5, None]),
    "ratio": ("double", pa.float64(), [float("nan"), 0.5, None]),
    "text": ("string", pa.large_string(), ["héé 😀", "", None]),
    "raw": ("binary", pa.large_binary(), [b"\x00\xff", b"", None]),
    "key": ("uuid", pa.binary(16), [COMMIT.bytes, UUID(int=2**128 - 1).bytes, None]),
    "code": ("fixed[3]", pa.binary(3), [b"abc", b"\x00\x01\xff", None]),
    "price": ("decimal(9, 2)", pa.decimal128(9, 2), [Decimal("-12.50"), Decimal("9999999.99"), None]),
    "day": ("date", pa.date32(), [date(2026, 3, 1), date(1969, 12, 31), None]),
    "clock": ("time", pa.time64("us"), [time(1, 2, 3, 4), time(0), None]),
    "at": ("timestamptz", pa.timestamp("us", "UTC"), [MOMENT, datetime(1969, 1, 1, tzinfo=UTC), None]),
    "local": ("timestamp", pa.timestamp("us"), [datetime(2026, 3, 1, 1, 2, 3, 4), datetime(1969, 1, 1), None]),
}
SPECS: dict[str, list[tuple[str, Transform[Any, Any]]]] = {
    "unpartitioned": [],
    **{
        f"identity-{name}": [(name, IdentityTransform())]
        for name in COLUMNS
        # pyiceberg cannot write tables partitioned by these itself
        if name not in {"clock", "raw", "code", "ratio"}
    },
    "year": [("day", YearTransform())],
    "month": [("at", MonthTransform())],
    "day-and-hour": [("at", DayTransform()), ("local", HourTransform())],
    "bucket": [("large", BucketTransform(4)), ("text", BucketTransform(4))],
    "truncate": [("text", TruncateTransform(2)), ("price", TruncateTransform(50)), ("large", TruncateTransform(10))],
    "void": [("small", VoidTransform()), ("flag", IdentityTransform())],
}


def make_tables(catalog: Catalog, columns: list[tuple[str, Transform[Any, Any]]]) -> tuple[Table, Table]:
    schema = Schema(*(NestedField(i, name, kind) for i, (name, (kind, _, _)) in enumerate(COLUMNS.items(), 1)))
    ids = {name: i for i, name in enumerate(COLUMNS, 1)}
    spec = PartitionSpec(
        *(SpecField(ids[name], 1000 + n, transform, f"{name} {n}") for n, (name, transform) in enumerate(columns))
    )
    return tuple(catalog.create_table(f"shop.{name}", schema, partition_spec=spec) for name in ("near", "far"))


def rows() -> pa.Table:
    return pa.table({name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()})


def travelled(files: list[ManifestFile], table: Table) -> list[ManifestFile]:
    """*files* of *table*, through an event's bytes."""
    payload = DataWritten(
        commit_id=COMMIT,
        table=TABLE,
        partition_fields=partition_fields(table.spec(), table.schema()),
        data_files=to_wire(files, spec=table.spec(), schema=table.schema()),
    )
    arrived = decode(encode(Event(id=COMMIT, timestamp=MOMENT, group_id="g", payload=payload))).payload
    assert isinstance(arrived, DataWritten)
    assert arrived.data_files is not None
    return to_pyiceberg(arrived.data_files, arrived.partition_fields, spec=table.spec(), schema=table.schema())


def append(table: Table, files: list[ManifestFile]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)


def entries(table: Table) -> list[ManifestEntry]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [entry for manifest in snapshot.manifests(table.io) for entry in manifest.fetch_manifest_entry(table.io)]


def contents(table: Table) -> list[str]:
    # as text, because NaN is not equal to itself
    return sorted(repr(vars(entry.data_file)) for entry in entries(table))


def partition_summaries(table: Table) -> list[Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return [vars(summary) for manifest in snapshot.manifests(table.io) for summary in manifest.partitions or []]


@pytest.mark.heavy(but=("day-and-hour", "bucket", "void", "identity-*"))
@pytest.mark.parametrize("case", SPECS)
def test_travelled_files_give_the_same_manifest_entries(catalog: Catalog, case: str) -> None:
    near, far = make_tables(catalog, SPECS[case])
    near.append(rows())
    append(far, travelled([entry.data_file for entry in entries(near)], far))
    assert contents(far) == contents(near)
    assert partition_summaries(far) == partition_summaries(near)
    order = [("large", "ascending")]
    assert far.scan().to_arrow().sort_by(order).drop("ratio") == near.scan().to_arrow().sort_by(order).drop("ratio")


@pytest.mark.parametrize("name", ["clock", "raw", "code"])
def test_partition_values_that_pyiceberg_cannot_write_itself_are_appended(catalog: Catalog, name: str) -> None:
    near, far = make_tables(catalog, [(name, IdentityTransform())])
    value = {"clock": 3_723_000_004, "raw": b"\x00\xff", "code": b"abc"}[name]
    file = ManifestFile.from_args(
        content=0,
        file_path="file:///none.parquet",
        file_format="PARQUET",
        partition=Record(value),
        record_count=1,
        file_size_in_bytes=10,
    )
    append(near, [file])
    append(far, travelled([file], far))
    assert contents(far) == contents(near)
    assert [entry.data_file.partition[0] for entry in entries(far)] == [value]


def test_files_are_found_by_the_pruning_of_a_scan(catalog: Catalog) -> None:
    near, far = make_tables(catalog, SPECS["identity-price"])
    near.append(rows())
    append(far, travelled([entry.data_file for entry in entries(near)], far))
    scan = far.scan(row_filter="price = -12.50", selected_fields=("large",))
    assert len(list(scan.plan_files())) == 1
    assert scan.to_arrow()["large"].to_pylist() == [2**62]


def test_partition_fields_are_named_in_icebergs_terms() -> None:
    assert partition_fields(SPEC, SCHEMA) == PARTITION_FIELDS


def test_a_renamed_and_moved_partition_field_is_found_by_its_id() -> None:
    announced = tuple(reversed([replace(field, name=f"old {field.name}") for field in PARTITION_FIELDS]))
    file = replace(FILE, partition=tuple(reversed(FILE.partition)))
    (appendable,) = to_pyiceberg([file], announced, spec=SPEC, schema=SCHEMA)
    assert list(appendable.partition._data) == [20_513, "Zürich", COMMIT.bytes, Decimal("-12.50")]


def test_a_day_that_was_announced_as_a_number_is_appended() -> None:
    announced = (replace(PARTITION_FIELDS[0], type="int"), *PARTITION_FIELDS[1:])
    (appendable,) = to_pyiceberg([FILE], announced, spec=SPEC, schema=SCHEMA)
    assert appendable.partition[0] == 20_513


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"file_path": ""}, "has no path"),
        ({"record_count": -1}, "is of -1 rows"),
        ({"file_size_in_bytes": -5}, "and -5 bytes"),
        ({"sort_order_id": 2**31}, "sort order 2147483648"),
        ({"column_sizes": {-1: 5}}, "a column that no table has"),
        ({"lower_bounds": {2**31: b"a"}}, "a column that no table has"),
        ({"null_value_counts": {1: -1}}, "a count below 0"),
    ],
)
def test_files_that_contradict_themselves_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match="LC3312"):
        to_pyiceberg([replace(FILE, **changes)], PARTITION_FIELDS, spec=SPEC, schema=SCHEMA)


def test_statistics_are_copied() -> None:
    (appendable,) = to_pyiceberg([FILE], PARTITION_FIELDS, spec=SPEC, schema=SCHEMA)
    appendable.column_sizes[1] = 0
    assert FILE.column_sizes is not None
    assert FILE.column_sizes[1] == 100


@pytest.mark.parametrize(
    ("file", "announced", "message"),
    [
        (replace(FILE, content=1), PARTITION_FIELDS, "is a delete file.*LC3310"),
        (replace(FILE, spec_id=1), PARTITION_FIELDS, "under partition spec 1, the table is at spec 2.*LC3311"),
        (
            replace(FILE, partition=(1,)),
            PARTITION_FIELDS[:1],
            r"ts_day \(1000\), spec 2 of the table has ts_day .*a b.*LC3314",
        ),
        (replace(FILE, partition=()), (), "partition fields none, spec 2.*LC3314"),
        (
            FILE,
            (*PARTITION_FIELDS[:3], PartitionField(name="1x", field_id=1003, type="decimal(9, 3)")),
            r"'1x' as decimal\(9, 3\), spec 2 of the table has it as decimal\(9, 2\).*LC3315",
        ),
    ],
    ids=["delete-file", "older-spec", "fewer-fields", "unpartitioned", "another-type"],
)
def test_files_that_the_table_cannot_take_are_refused(
    file: DataFile, announced: tuple[PartitionField, ...], message: str
) -> None:
    with pytest.raises(TableError, match=message):
        to_pyiceberg([file], announced, spec=SPEC, schema=SCHEMA)
