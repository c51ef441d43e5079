# SPDX-License-Identifier: Apache-2.0
"""A lake whose rows say which record they are of, in real Parquet files, landed by the committer without brokers; and
what a reader that shares no code with us finds in it: DuckDB reads the files that the head lists, and their deletes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import duckdb
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)

from airflow_provider_lakecommit.core.destinations import Role
from airflow_provider_lakecommit.core.model import LIVE, LedgerSection
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import PublishOutcome
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import Layout
from airflow_provider_lakecommit.iceberg.schemas import mark_columns
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.verify import check_landing
from tests.fakes.kafka import FakeControl, FakeSource
from tests.fakes.lake import TOPIC_ID, Lake, at, section, spans, staged
from tests.support.declared import landing_of

ROWS_SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "note", StringType()),
    NestedField(3, "day", TimestamptzType()),
    NestedField(4, "parts", ListType(20, StructType(NestedField(21, "a", IntegerType())), element_required=False)),
    NestedField(5, "ref", UUIDType()),
    NestedField(6, "named", MapType(22, StringType(), 23, DecimalType(12, 2), value_required=False)),
    NestedField(10, "kafka_topic", StringType()),
    NestedField(11, "kafka_partition", IntegerType()),
    NestedField(12, "kafka_offset", LongType()),
    NestedField(13, "kafka_timestamp", TimestamptzType()),
    NestedField(14, "kafka_key", BinaryType()),
    NestedField(15, "kafka_generation", LongType()),
)
READING = 1
"""The generation of what the lake lands, unless it is said."""
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
Ranges = tuple[int, int, int]


def rows_of(
    ranges: Iterable[Ranges], schema: pa.Schema, note: str, topic: str = "orders", generation: int | None = READING
) -> pa.Table:
    """One row per offset; an hour per offset, so that a day has 24 of a partition."""
    found = [(p, o) for p, a, b in ranges for o in range(a, b)]
    columns: dict[str, list[Any]] = {
        "id": [p * 1_000_000 + o for p, o in found],
        "note": [note for _ in found],
        "day": [BEGIN + timedelta(hours=o) for _, o in found],
        "parts": [[{"a": o}] * (o % 3) for _, o in found],
        "ref": [UUID(int=o).bytes for _, o in found],
        "named": [{"a": Decimal(o)} if o % 4 else None for _, o in found],
        "kafka_topic": [topic for _ in found],
        "kafka_partition": [p for p, _ in found],
        "kafka_offset": [o for _, o in found],
        "kafka_timestamp": [BEGIN for _ in found],
        "kafka_key": [b"k" if o % 2 else None for _, o in found],
        "kafka_generation": [generation for _ in found],
    }
    return pa.table({f.name: pa.array(columns.get(f.name, [None] * len(found)), f.type) for f in schema}, schema=schema)


@dataclass
class RowsLake(Lake):
    """One landing with its session, a table of real rows, and what is in it by an independent reader."""

    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC
    order: SortOrder = UNSORTED_SORT_ORDER
    schema: Schema = field(default_factory=lambda: ROWS_SCHEMA)
    branch: str = "main"
    disk: tuple[str, str] = ("file://", "")
    """The beginning of the files' locations, and that of their paths on this host."""

    def make(self) -> Table:
        return self.tables.create(self.name, self.schema, self.spec, dict(self.properties), self.order)

    def session(self, tables: Tables | None = None, **fields: Any) -> LandingSession:
        landing = {"name": "orders", "topics": "orders", "table": self.name, "metadata_columns": True}
        return LandingSession(
            landing=landing_of(**{**landing, "branch": self.branch, **fields}),
            kafka={},
            tables=tables or self.tables,
            control=FakeControl(),
            source=FakeSource({}),
            log=lambda _: None,
        )

    def written(
        self, *ranges: Ranges, note: str = "first", topic: str = "orders", generation: int | None = READING
    ) -> tuple[DataFile, ...]:
        """Files of a slice, by the writer that landings have."""
        table = self.load()
        target = target_of(self.name, table, uuid4())
        writer = FanoutWriter(target, table.io, uuid4())
        writer.write(rows_of(ranges, Layout(target).arrow, note, topic, generation))
        return tuple(writer.close())

    def slice(self, *ranges: Ranges, epoch: UUID, note: str = "first", **changes: Any) -> StagedSlice:
        metadata = self.load().metadata
        generation = changes.get("generation", READING)
        values = {
            "files": self.written(*ranges, note=note, generation=generation),
            "generation": generation,
            "columns": mark_columns(metadata.schema(), Role.ROWS),
            "schema_id": metadata.current_schema_id,
            "spec_id": metadata.default_spec_id,
        }
        return staged(*ranges, epoch=epoch, **{**values, **changes})

    def land(self, *ranges: Ranges, lane: str = LIVE, landing: str = "orders", **changes: Any) -> PublishOutcome:
        own = self.state(self.branch).section(landing, lane)
        assert own is not None
        outcome = self.publish(
            self.request(
                self.slice(*ranges, epoch=own.epoch, **changes), lane=lane, landing=landing, branch=self.branch
            )
        )
        assert outcome.published, outcome.refused
        return outcome

    def starting(self, lane: str = LIVE, *starts: tuple[int, int]) -> LedgerSection:
        """A stream that begins at these offsets of its partitions."""
        return section(lane=lane, starts={at(p): o for p, o in starts or ((0, 0), (1, 0))})

    def files(self, content: ManifestContent = ManifestContent.DATA) -> list[DataFile]:
        table = self.load()
        head = table.metadata.snapshot_by_name(self.branch)
        manifests = [m for m in head.manifests(table.io) if m.content == content] if head else []
        return [e.data_file for m in manifests for e in m.fetch_manifest_entry(table.io)]

    def found(self, columns: str = "id, note, kafka_topic, kafka_partition, kafka_offset") -> Counter[tuple[Any, ...]]:
        """The rows of the head, by DuckDB."""
        data, deletes = [f.file_path for f in self.files()], self.files(ManifestContent.DELETES)
        if not data:
            return Counter()
        removed, (prefix, folder) = "", self.disk
        if deletes:
            listed = [f.file_path.replace(prefix, folder, 1) for f in deletes]
            removed = (
                f"WHERE NOT EXISTS (SELECT 1 FROM read_parquet({listed}) d "
                f"WHERE replace(d.file_path, '{prefix}', '{folder}') = r.filename AND d.pos = r.file_row_number)"
            )
        source = f"read_parquet({[p.replace(prefix, folder, 1) for p in data]}, union_by_name=true, filename=true, "
        with duckdb.connect() as database:
            rows = database.execute(f"SELECT {columns} FROM {source} file_row_number=true) r {removed}").fetchall()
        return Counter(rows)

    def expected(self, notes: Mapping[str, Sequence[Ranges]]) -> Counter[tuple[Any, ...]]:
        """Rows of these ranges, by the note that they have."""
        return Counter(
            (p * 1_000_000 + o, note, "orders", p, o)
            for note, ranges in notes.items()
            for p, a, b in ranges
            for o in range(a, b)
        )

    def findings(self, level: Severity = Severity.WRONG) -> list[str]:
        """What `verify` says."""
        history = read_history(self.tables, self.name, self.branch, files=True, progress=lambda _: None)
        return [str(f) for f in check_landing(self.session().landing, [history]) if f.level is level]

    def compact(self) -> None:
        """Another writer makes one file of all rows, in the order in which it reads them."""
        with self.another() as other:
            table = other.load_table(self.name)
            scan = table.scan(snapshot_id=table.metadata.refs[self.branch].snapshot_id)
            table.overwrite(scan.to_arrow(), branch=self.branch)

    def append_rows(self, count: int = 5, *, marked: bool = False) -> None:
        """Another writer's rows: they say of no record that they are of it."""
        with self.another() as other:
            table = other.load_table(self.name)
            rows = rows_of([(9, 0, count)], table.schema().as_arrow(), "foreign")
            for name in () if marked else ("kafka_topic", "kafka_partition", "kafka_offset"):
                place = rows.column_names.index(name)
                kind = rows.schema.field(name)
                rows = rows.set_column(place, kind, pa.nulls(count, kind.type))
            table.append(rows, branch=self.branch)

    def foreign(self, count: int = 5) -> Counter[tuple[Any, ...]]:
        return Counter((9_000_000 + n, "foreign", None, None, None) for n in range(count))

    def parquet_files(self) -> set[str]:
        return {f"file://{p}" for p in (self.path / "warehouse").rglob("*.parquet")}


def lake_at(path: Path, **options: Any) -> RowsLake:
    """A table with a live stream, into main."""
    made = RowsLake(path, **options)
    made.make()
    return made


__all__ = ["BEGIN", "ROWS_SCHEMA", "TOPIC_ID", "RowsLake", "lake_at", "rows_of", "spans"]
