# SPDX-License-Identifier: Apache-2.0
"""Control events as the connector's own classes wrote them, and what they say.

`golden_events.json` holds, per connector release and event, the bytes that its `AvroUtil.encode` gave for the content
below (deflated, base64). The integration tests compare those of 1.12.0 with the classes again; those of 1.10.1 stand
for older connectors, which know no table uuid.
"""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform
from pyiceberg.types import DecimalType, NestedField, StringType, TimestamptzType, UUIDType

from airflow_provider_lakecommit.control.data_file import DataFile, PartitionField
from airflow_provider_lakecommit.control.events import Event
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

COMMIT = UUID("0b0d2f0e-3f1c-4b6e-9a51-6a5f4f3d2c1b")
MOMENT = datetime(2026, 3, 1, 12, 30, 15, 123456, tzinfo=UTC)
TABLE = TableReference(
    catalog="lake", namespace=("shop", "eu"), name="orders", table_uuid=UUID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
)

SCHEMA = Schema(
    NestedField(1, "ts", TimestamptzType()),
    NestedField(2, "a b", StringType()),
    NestedField(3, "héé 😀", UUIDType()),
    NestedField(4, "1x", DecimalType(9, 2)),
)
SPEC = PartitionSpec(
    SpecField(1, 1000, DayTransform(), "ts_day"),
    SpecField(2, 1001, IdentityTransform(), "a b"),
    SpecField(3, 1002, IdentityTransform(), "héé 😀"),
    SpecField(4, 1003, IdentityTransform(), "1x"),
    spec_id=2,
)
PARTITION_FIELDS = (
    PartitionField(name="ts_day", field_id=1000, type="date"),
    PartitionField(name="a b", field_id=1001, type="string"),
    PartitionField(name="héé 😀", field_id=1002, type="uuid"),
    PartitionField(name="1x", field_id=1003, type="decimal(9, 2)"),
)
FILE = DataFile(
    file_path="s3://lake/shop/orders/data/é.parquet",
    spec_id=2,
    partition=(20_513, "Zürich", COMMIT, Decimal("-12.50")),
    record_count=1000,
    file_size_in_bytes=5_000_000_000,
    column_sizes={1: 100, 2: 200},
    value_counts={1: 1000, 2: 1000},
    null_value_counts={1: 0, 2: 7},
    nan_value_counts={},
    lower_bounds={1: b"\x00" * 8, 2: b"A"},
    upper_bounds={1: b"\xff" * 8, 2: b"z"},
    split_offsets=(4, 128_000_000),
    sort_order_id=0,
)
BARE_FILE = DataFile(
    file_path="s3://lake/shop/orders/data/bare.parquet",
    spec_id=2,
    partition=(None, None, None, None),
    record_count=1,
    file_size_in_bytes=10,
)

PAYLOADS: dict[str, Payload] = {
    "start_commit": StartCommit(commit_id=COMMIT),
    "data_written": DataWritten(
        commit_id=COMMIT, table=TABLE, partition_fields=PARTITION_FIELDS, data_files=(FILE, BARE_FILE)
    ),
    "data_written_without_files": DataWritten(
        commit_id=COMMIT, table=TABLE, partition_fields=PARTITION_FIELDS, data_files=(), delete_files=()
    ),
    "data_complete": DataComplete(
        commit_id=COMMIT,
        assignments=(
            TopicPartitionOffset(topic="orders", partition=0, offset=2**40, timestamp=MOMENT),
            TopicPartitionOffset(topic="orders", partition=1),
        ),
    ),
    "commit_to_table": CommitToTable(commit_id=COMMIT, table=TABLE, snapshot_id=2**62, valid_through=MOMENT),
    "commit_complete": CommitComplete(commit_id=COMMIT, valid_through=MOMENT),
    "commit_complete_without_promise": CommitComplete(commit_id=COMMIT),
}


def golden_event(name: str, release: str) -> Event:
    """What the golden bytes of *name* say."""
    payload = PAYLOADS[name]
    if release == "1.10.1" and isinstance(payload, DataWritten | CommitToTable):
        payload = replace(payload, table=replace(TABLE, table_uuid=None))
    return Event(
        id=UUID("11111111-2222-3333-4444-555555555555"), timestamp=MOMENT, group_id="connect-orders", payload=payload
    )


def golden_bytes(name: str, release: str) -> bytes:
    """What the classes of connector *release* wrote for it."""
    stored = json.loads(Path(__file__).with_suffix(".json").read_text())
    return zlib.decompress(base64.b64decode(stored[release][name]))
