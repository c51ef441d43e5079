# SPDX-License-Identifier: Apache-2.0
"""Our control events against the connector's own classes: they write what we write, each reads the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.control.data_file import DataFile, PartitionValue
from airflow_provider_lakecommit.control.events import Event, decode, encode, head
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    CommitToTable,
    DataComplete,
    DataWritten,
    Payload,
    StartCommit,
    TableReference,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.iceberg.data_files import partition_fields
from dev.jars import fetch
from tests.integration.connector_classes import ConnectorClasses, connector_classes, described
from tests.support.golden_events import PAYLOADS, SCHEMA, SPEC, golden_bytes, golden_event

pytestmark = pytest.mark.integration

COMMIT = UUID("0b0d2f0e-3f1c-4b6e-9a51-6a5f4f3d2c1b")
MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
TABLE = TableReference(
    catalog="lake", namespace=("shop", "eu"), name="orders", table_uuid=UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
)
OLD_TABLE = replace(TABLE, table_uuid=None)
UNPARTITIONED = PartitionSpec()
ONE_COLUMN = Schema(NestedField(1, "id", "long"))

MICROS_OF_DAY = 81_068_123_456
MICROS = 1_772_368_215_123_456
PARTITIONED: dict[str, tuple[str, str, list[PartitionValue]]] = {
    "identity-boolean": ("boolean", "identity", [True, False, None]),
    "identity-int": ("int", "identity", [-(2**31), 2**31 - 1, None]),
    "identity-long": ("long", "identity", [-(2**63), 2**63 - 1, 0, None]),
    "identity-float": ("float", "identity", [1.5, -0.25, None]),
    "identity-double": ("double", "identity", [2.5, -1e-3, None]),
    "identity-date": ("date", "identity", [-1, 20_513, None]),
    "identity-time": ("time", "identity", [MICROS_OF_DAY, None]),
    "identity-timestamp": ("timestamp", "identity", [MICROS, None]),
    "identity-timestamptz": ("timestamptz", "identity", [MICROS, None]),
    "identity-string": ("string", "identity", ["", 'héé 😀 \x00 "\\', None]),
    "identity-uuid": ("uuid", "identity", [COMMIT, None]),
    "identity-binary": ("binary", "identity", [b"", b"\x00\xff", None]),
    "identity-small-decimal": ("decimal(9, 2)", "identity", [Decimal("-12345.67"), Decimal("0.01"), None]),
    "identity-large-decimal": ("decimal(38, 10)", "identity", [Decimal(f"-{'9' * 28}.{'9' * 10}"), None]),
    "bucket-string": ("string", "bucket[16]", [0, 15, None]),
    "bucket-uuid": ("uuid", "bucket[16]", [7, None]),
    "truncate-string": ("string", "truncate[3]", ["abc", "😀", None]),
    "truncate-long": ("long", "truncate[10]", [-10, 20, None]),
    "truncate-decimal": ("decimal(9, 2)", "truncate[50]", [Decimal("10.50"), None]),
    "truncate-binary": ("binary", "truncate[2]", [b"\x01\x02", None]),
    "year": ("date", "year", [56, -1, None]),
    "month": ("timestamp", "month", [674, None]),
    "day": ("timestamptz", "day", [20_513, None]),
    "hour": ("timestamptz", "hour", [492_324, None]),
}
ODD_NAMES = ["a b", "héé", "😀", "1x", "a.b", "_ok", 'q"\\\n', "名前", "x-y", "٣x"]


@pytest.fixture(scope="module")
def connector() -> Iterator[ConnectorClasses]:
    with connector_classes(fetch("connector")["connector"]) as classes:
        yield classes


def make_event(payload: Payload) -> Event:
    return Event(
        id=UUID("11111111-2222-3333-4444-555555555555"), timestamp=MOMENT, group_id="lakecommit-orders", payload=payload
    )


def make_file(partition: tuple[PartitionValue, ...] = (), columns: int = 3, **changes: Any) -> DataFile:
    ids = range(1, columns + 1)
    file = DataFile(
        file_path=f"s3://lake/shop/orders/data/{columns}-é.parquet",
        partition=partition,
        record_count=columns * 1000,
        file_size_in_bytes=5_000_000_000,
        column_sizes={i: i * 100 for i in ids},
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts={i: i % 3 for i in ids},
        nan_value_counts={},
        lower_bounds={i: i.to_bytes(8, "little") for i in ids},
        upper_bounds={i: (i + 2**40).to_bytes(8, "little") for i in ids},
        split_offsets=(4, 128_000_000),
        sort_order_id=0,
    )
    return replace(file, **changes)


def spec_over(fields: list[tuple[str, str, str]], spec_id: int = 0) -> tuple[Schema, PartitionSpec]:
    """A schema of (name, type, transform) columns and the spec that partitions by all of them."""
    schema = Schema(*(NestedField(i, name, kind) for i, (name, kind, _) in enumerate(fields, 1)))
    return schema, PartitionSpec(
        *(
            SpecField(source_id=i, field_id=999 + i, transform=parse_transform(transform), name=name)
            for i, (name, _, transform) in enumerate(fields, 1)
        ),
        spec_id=spec_id,
    )


def assert_same(connector: ConnectorClasses, event: Event, schema: Schema, spec: PartitionSpec) -> None:
    """The connector writes the bytes that we write, reads ours, and we read its."""
    java_spec = connector.spec(schema.model_dump_json(), spec.model_dump_json())
    written = encode(event)
    theirs = connector.encode(event, java_spec)
    assert decode(theirs) == event
    assert connector.read(written, java_spec) == described(event)
    assert written == theirs
    assert head(theirs).commit_id == event.payload.commit_id


@pytest.mark.parametrize(
    "payload",
    [
        StartCommit(commit_id=COMMIT),
        DataWritten(commit_id=COMMIT, table=TABLE),
        DataWritten(commit_id=COMMIT, table=TABLE, data_files=(), delete_files=()),
        DataWritten(commit_id=COMMIT, table=OLD_TABLE, data_files=(make_file(),)),
        DataComplete(commit_id=COMMIT),
        DataComplete(commit_id=COMMIT, assignments=()),
        DataComplete(
            commit_id=COMMIT,
            assignments=(
                TopicPartitionOffset(topic="orders", partition=0, offset=2**40, timestamp=MOMENT),
                TopicPartitionOffset(topic="orders", partition=7, offset=5, timestamp=MOMENT - timedelta(days=40_000)),
                TopicPartitionOffset(topic="orders", partition=8),
            ),
        ),
        CommitToTable(commit_id=COMMIT, table=TABLE, snapshot_id=2**62, valid_through=MOMENT),
        CommitToTable(commit_id=COMMIT, table=OLD_TABLE),
        CommitComplete(commit_id=COMMIT, valid_through=MOMENT),
        CommitComplete(commit_id=COMMIT),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_every_payload_has_the_connectors_bytes(connector: ConnectorClasses, payload: Payload) -> None:
    assert_same(connector, make_event(payload), ONE_COLUMN, UNPARTITIONED)


@pytest.mark.parametrize("name", PAYLOADS)
def test_golden_events_are_the_connectors(connector: ConnectorClasses, name: str) -> None:
    spec = connector.spec(SCHEMA.model_dump_json(), SPEC.model_dump_json())
    assert connector.encode(golden_event(name, "1.12.0"), spec) == golden_bytes(name, "1.12.0")


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_connector_reads_golden_events_of_its_predecessor(connector: ConnectorClasses, name: str) -> None:
    spec = connector.spec(SCHEMA.model_dump_json(), SPEC.model_dump_json())
    assert connector.read(golden_bytes(name, "1.10.1"), spec) == described(golden_event(name, "1.10.1"))


@pytest.mark.parametrize("case", PARTITIONED)
def test_partition_types_have_the_connectors_bytes(connector: ConnectorClasses, case: str) -> None:
    kind, transform, values = PARTITIONED[case]
    schema, spec = spec_over([("source", kind, transform)], spec_id=3)
    files = tuple(make_file((value,), spec_id=3) for value in values)
    fields = partition_fields(spec, schema)
    payload = DataWritten(commit_id=COMMIT, table=TABLE, partition_fields=fields, data_files=files)
    assert_same(connector, make_event(payload), schema, spec)


def test_a_void_field_next_to_another_has_the_connectors_bytes(connector: ConnectorClasses) -> None:
    schema, spec = spec_over([("gone", "string", "void"), ("kept", "long", "identity")])
    fields = partition_fields(spec, schema)
    payload = DataWritten(commit_id=COMMIT, table=TABLE, partition_fields=fields, data_files=(make_file((None, 5)),))
    assert_same(connector, make_event(payload), schema, spec)


def test_partition_types_of_a_spec_are_the_connectors(connector: ConnectorClasses) -> None:
    schema, spec = spec_over([(case, kind, transform) for case, (kind, transform, _) in PARTITIONED.items()])
    java_spec = connector.spec(schema.model_dump_json(), spec.model_dump_json())
    assert list(partition_fields(spec, schema)) == connector.partition_fields(java_spec)


def test_one_spec_of_every_partition_type_defines_named_types_once(connector: ConnectorClasses) -> None:
    columns = [
        (f"{case}-{copy}", kind, transform) for copy in "ab" for case, (kind, transform, _) in PARTITIONED.items()
    ]
    schema, spec = spec_over(columns)
    file = make_file(tuple(values[0] for _ in "ab" for _, _, values in PARTITIONED.values()))
    fields = partition_fields(spec, schema)
    payload = DataWritten(commit_id=COMMIT, table=TABLE, partition_fields=fields, data_files=(file,))
    assert_same(connector, make_event(payload), schema, spec)


def test_odd_column_names_have_the_connectors_bytes(connector: ConnectorClasses) -> None:
    schema, spec = spec_over([(name, "string", "identity") for name in ODD_NAMES])
    file = make_file(tuple(ODD_NAMES))
    fields = partition_fields(spec, schema)
    assert [field.name for field in fields] == ODD_NAMES
    payload = DataWritten(commit_id=COMMIT, table=TABLE, partition_fields=fields, data_files=(file,))
    assert_same(connector, make_event(payload), schema, spec)


@pytest.mark.parametrize("columns", [1, 3, 50])
def test_column_statistics_have_the_connectors_bytes(connector: ConnectorClasses, columns: int) -> None:
    files = tuple(make_file(columns=columns, file_path=f"file:///{n}.parquet") for n in range(3))
    payload = DataWritten(commit_id=COMMIT, table=TABLE, data_files=files)
    assert_same(connector, make_event(payload), ONE_COLUMN, UNPARTITIONED)


@pytest.mark.parametrize(
    "changes",
    [
        dict.fromkeys(
            (
                "column_sizes",
                "value_counts",
                "null_value_counts",
                "nan_value_counts",
                "lower_bounds",
                "upper_bounds",
                "split_offsets",
                "sort_order_id",
            )
        ),
        {"key_metadata": b"\x00key\xff", "first_row_id": 10**12, "file_format": "ORC"},
        {"key_metadata": b"", "lower_bounds": {1: b""}, "file_format": "AVRO"},
    ],
    ids=["without-statistics", "with-key-and-rows", "with-empty-bytes"],
)
def test_optional_parts_of_a_file_have_the_connectors_bytes(
    connector: ConnectorClasses, changes: dict[str, Any]
) -> None:
    payload = DataWritten(commit_id=COMMIT, table=TABLE, data_files=(make_file(**changes),))
    assert_same(connector, make_event(payload), ONE_COLUMN, UNPARTITIONED)


def test_delete_files_have_the_connectors_bytes(connector: ConnectorClasses) -> None:
    schema, spec = spec_over([("u", "uuid", "identity"), ("d", "decimal(9, 2)", "identity")])
    partition = (COMMIT, Decimal("1.00"))
    by_key = make_file(partition, content=2, equality_ids=(1, 2))
    vector = make_file(
        partition,
        content=1,
        file_format="PUFFIN",
        sort_order_id=None,
        referenced_data_file="s3://lake/shop/orders/data/1.parquet",
        content_offset=4,
        content_size_in_bytes=2**33,
    )
    payload = DataWritten(
        commit_id=COMMIT,
        table=TABLE,
        partition_fields=partition_fields(spec, schema),
        data_files=(make_file(partition),),
        delete_files=(by_key, vector),
    )
    assert_same(connector, make_event(payload), schema, spec)


@pytest.mark.parametrize(
    "payload",
    [
        StartCommit(commit_id=COMMIT),
        DataWritten(commit_id=COMMIT, table=TABLE, data_files=(make_file(),)),
        DataComplete(commit_id=COMMIT, assignments=()),
        CommitToTable(commit_id=COMMIT, table=TABLE, snapshot_id=5, valid_through=None),
        CommitComplete(commit_id=COMMIT, valid_through=MOMENT),
    ],
    ids=lambda payload: type(payload).__name__,
)
def test_the_connector_reads_the_form_of_its_predecessors(connector: ConnectorClasses, payload: Payload) -> None:
    spec = connector.spec(ONE_COLUMN.model_dump_json(), UNPARTITIONED.model_dump_json())
    decoded = connector.read(encode(make_event(payload), form="1.10"), spec)
    if isinstance(payload, DataWritten | CommitToTable):
        payload = replace(payload, table=OLD_TABLE)
    assert decoded == described(make_event(payload))


def test_a_thousand_files_travel_in_one_event(connector: ConnectorClasses) -> None:
    files = tuple(make_file(file_path=f"s3://lake/{n}.parquet", record_count=n) for n in range(1000))
    event = make_event(DataWritten(commit_id=COMMIT, table=TABLE, data_files=files))
    spec = connector.spec(ONE_COLUMN.model_dump_json(), UNPARTITIONED.model_dump_json())
    data_files = connector.read(encode(event), spec)["payload"]["data_files"]
    assert [file["record-count"] for file in data_files] == list(range(1000))
    assert decode(encode(event)) == event
