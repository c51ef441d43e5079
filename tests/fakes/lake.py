# SPDX-License-Identifier: Apache-2.0
"""A lake of one table, and sections and slices for it. Data files are entries only, unless a test says otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState, read_ledger
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from tests.fakes.catalog import FaultyCatalog

NAME = "shop.orders"
SCHEMA = Schema(NestedField(1, "id", LongType(), required=True), NestedField(2, "note", StringType(), required=False))
BY_BUCKET = PartitionSpec(PartitionField(1, 1000, BucketTransform(4), "id_bucket"))
TOPIC_ID = "dG9waWMtb25lLS0tLS0tLQ"
CONTROL = ControlPosition(
    cluster_id="cluster", topic="control-lakecommit", topic_id="Y29udHJvbA", partition=2, read_from=0, low=None
)


def at(partition: int, topic_id: str = TOPIC_ID) -> SourcePartition:
    return SourcePartition("orders", partition, topic_id)


def coverage(*ranges: tuple[int, int, int], topic_id: str = TOPIC_ID) -> Coverage:
    """From (partition, start, end)."""
    return Coverage.of((at(p, topic_id), OffsetRange(a, b)) for p, a, b in ranges)


def section(landing: str = "orders", lane: str = LIVE, **changes: Any) -> LedgerSection:
    """Of landing orders, or of one of other partitions: no two landings of a table share a topic."""
    first = 0 if landing == "orders" else 5
    values: dict[str, Any] = {
        "landing": landing,
        "lane": lane,
        "cluster_id": "cluster",
        "epoch": uuid4(),
        "spec_version": "spec-1",
        "starts": {at(first): 0, at(first + 1): 0},
        "covered": Coverage(),
        "control": CONTROL,
    }
    return LedgerSection(**{**values, **changes})


def data_file(path: str, rows: int, *, spec_id: int = 0, partition: Iterable[Any] = (), **stats: Any) -> DataFile:
    values: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": path,
        "file_format": FileFormat.PARQUET,
        "partition": Record(*partition),
        "record_count": rows,
        "file_size_in_bytes": 100 + rows,
        "column_sizes": {},
        "value_counts": {},
        "null_value_counts": {},
        "nan_value_counts": {},
        "lower_bounds": {},
        "upper_bounds": {},
        "key_metadata": None,
        "split_offsets": [4],
        "equality_ids": None,
        "sort_order_id": None,
    }
    file = DataFile.from_args(**{**values, **stats})
    file.spec_id = spec_id
    return file


def spans(*ranges: tuple[int, int, int], topic_id: str = TOPIC_ID) -> tuple[SpanReport, ...]:
    """Every offset of these ranges gave a row."""
    return tuple(
        SpanReport(span=Span(at(p, topic_id), OffsetRange(a, b)), counts=Counts(landed=b - a)) for p, a, b in ranges
    )


def staged(*ranges: tuple[int, int, int], epoch: UUID, topic_id: str = TOPIC_ID, **changes: Any) -> StagedSlice:
    """A slice that landed one row per offset in one file of its own."""
    rows = sum(b - a for _, a, b in ranges)
    values: dict[str, Any] = {
        "slice_id": uuid4(),
        "attempt": uuid4(),
        "window_id": uuid4(),
        "epoch": epoch,
        "spans": spans(*ranges, topic_id=topic_id),
        "files": (data_file(f"file:///data/{uuid4()}.parquet", rows),),
        "rows": rows,
        "schema_id": 0,
        "spec_id": 0,
        "counted_as": "landed",
    }
    return StagedSlice(**{**values, **changes})


@dataclass
class Clock:
    """A clock that only sleeping moves; `during` is run in each sleep."""

    now: float = 0.0
    slept: int = 0
    during: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += 1
        self.during()

    def retry_policy(self, **changes: Any) -> RetryPolicy:
        return RetryPolicy(clock=lambda: self.now, sleep=self.sleep, **changes)


@dataclass
class Lake:
    """One table in a real catalog of this test, whose commits can be made to fail."""

    path: Path
    clock: Clock = field(default_factory=Clock)
    properties: Mapping[str, str] = field(default_factory=dict)
    name: str = NAME
    storage: Mapping[str, str] = field(default_factory=dict)
    """Storage properties, where the warehouse is no folder of ``path``."""

    def __post_init__(self) -> None:
        (self.path / "warehouse").mkdir(exist_ok=True)
        self.catalog_properties = {
            "type": "sql",
            "uri": f"sqlite:///{self.path / 'catalog.db'}",
            "warehouse": f"file://{self.path / 'warehouse'}",
            **self.storage,
        }
        self.catalog = FaultyCatalog("lakecommit", **self.catalog_properties)
        self.tables = Tables(self.catalog_properties, connect=lambda *_, **__: self.catalog)

    def create(self, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
        return self.tables.create(self.name, SCHEMA, spec, dict(self.properties))

    def another(self) -> Catalog:
        """The same catalog as another process has it: nothing goes wrong there."""
        return SqlCatalog("lakecommit", **{k: v for k, v in self.catalog_properties.items() if k != "type"})

    def load(self) -> Table:
        with self.another() as other:
            return other.load_table(self.name)

    def state(self, branch: str = "main") -> LedgerState:
        return read_ledger(self.load().metadata, branch)

    def join(self, stated: LedgerSection | None = None, branch: str = "main") -> LedgerSection:
        stated = stated or section()
        state = join_table(self.tables, self.name, stated, branch=branch, retry_policy=self.clock.retry_policy())
        found = state.section(stated.landing, stated.lane)
        assert found is not None
        return found

    def request(self, *slices: StagedSlice, **changes: Any) -> AppendRequest:
        values: dict[str, Any] = {
            "table": self.name,
            "table_uuid": changes.pop("table_uuid", None) or self.load().metadata.table_uuid,
            "landing": "orders",
            "commit_id": uuid4(),
            "slices": slices,
        }
        return AppendRequest(**{**values, **changes})

    def publish(self, request: AppendRequest, **retry_policy: Any) -> PublishOutcome:
        return publish(self.tables, request, retry_policy=self.clock.retry_policy(**retry_policy))

    def append_foreign(self, rows: int = 1) -> int:
        """A user else appends a file."""
        table = self.load()
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            append.append_data_file(data_file(f"file:///foreign/{uuid4()}.parquet", rows))
        return append.snapshot_id

    def cherry_pick(self, snapshot_id: int) -> int:
        """A user else has a snapshot's files on the head, as Iceberg does it where that is not its parent."""
        table = self.load()
        picked = table.snapshot_by_id(snapshot_id)
        assert picked is not None
        manifests = [m for m in picked.manifests(table.io) if m.added_snapshot_id == snapshot_id]
        source = {"source-snapshot-id": str(snapshot_id)}
        with table.transaction() as change, change.update_snapshot(snapshot_properties=source).fast_append() as append:
            for entry in (e for m in manifests for e in m.fetch_manifest_entry(table.io)):
                append.append_data_file(entry.data_file)
        return append.snapshot_id

    def roll_back(self, snapshot_id: int) -> None:
        """A user sets the branch to one of its older snapshots."""
        self.load().manage_snapshots().rollback_to_snapshot(snapshot_id).commit()

    def rows(self, branch: str = "main") -> int:
        """Rows by the manifests of the branch, which is what readers go by."""
        table = self.load()
        snapshot = table.metadata.snapshot_by_name(branch)
        if snapshot is None:
            return 0
        entries = (e for m in snapshot.manifests(table.io) for e in m.fetch_manifest_entry(table.io))
        return sum(e.data_file.record_count for e in entries)

    def paths(self) -> list[str]:
        table = self.load()
        snapshot = table.current_snapshot()
        manifests = snapshot.manifests(table.io) if snapshot else []
        return [e.data_file.file_path for m in manifests for e in m.fetch_manifest_entry(table.io)]

    def metadata_files(self, pattern: str) -> set[str]:
        return {p.name for p in (self.path / "warehouse").rglob(pattern)}
