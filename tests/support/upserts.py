# SPDX-License-Identifier: Apache-2.0
"""An upserting table without Kafka: slices are written by the product's writers, published by its committer, and read
by DuckDB and pyiceberg.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import duckdb
import numpy as np
import pyarrow as pa
from duckdb_extensions import import_extension
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.control import DataFile as WireFile
from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import change_section, join_table
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark.upserts import LastChanges, UpsertDecoder, tombstone_target

__all__ = ["Change", "UpsertLake", "plain"]

TOPIC_ID = "b3JkZXJzLXRvcGljLWlkLQ"
Change = tuple[Any, Any]
"""A key (of one or several columns) and its new value; ``None`` deletes it."""
CONTROL = ControlPosition(
    cluster_id="test", topic="control", topic_id="Y29udHJvbC10b3BpYy0tLQ", partition=0, read_from=0, low=None
)


def plain(values: Any) -> str:
    """Return the text of a value, the same for each reader."""
    match values:
        case tuple():
            return str([*map(plain, values)])
        case datetime(tzinfo=tzinfo) if tzinfo is not None:
            return values.astimezone(UTC).isoformat()
        case UUID():
            return str(values.bytes)
        case Decimal():
            return f"{values:.5f}"
    return str(values)


class UpsertLake:
    """A table with key columns, ``value`` and the marks of Kafka records.

    :param key: types of the key columns, by name
    :param order: whether changes are ordered by their value first
    """

    def __init__(
        self,
        place: Path,
        key: Mapping[str, IcebergType] | None = None,
        spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        *,
        order: bool = False,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        kinds: Mapping[str, IcebergType] = key or {"id": LongType()}
        self.name, self.key = "shop.accounts", tuple(kinds)
        (place / "data").mkdir(parents=True)
        uri, warehouse = f"sqlite:///{place}/catalog.db", f"file://{place}/data"
        self.tables = Tables({"name": "test", "type": "sql", "uri": uri, "warehouse": warehouse})
        rest = [("value", LongType()), ("kafka_topic", StringType()), ("kafka_partition", IntegerType())]
        rest += [("kafka_generation", LongType()), ("kafka_offset", LongType())]
        fields = [NestedField(n, name, kind) for n, (name, kind) in enumerate([*kinds.items(), *rest], 1)]
        self.schema = Schema(*fields)
        self.landing = Landing(
            name="accounts",
            topics="accounts",
            table=self.name,
            columns={"key": {"columns": [*kinds], "format": "json"}},
            upsert={"key": [*kinds], "order_by": ["value", "offset"] if order else "offset", "deletes": "hard"}
            if not order
            else {"key": [*kinds], "order_by": ["value", "offset"], "deletes": "ignore"},
        )
        self.rule = UpsertRule(key=self.key, order="value" if order else None)
        self.tables.create(self.name, self.schema, spec, dict(properties or {}))
        self.places = [SourcePartition("accounts", n, TOPIC_ID) for n in range(4)]
        self.at: dict[tuple[str, SourcePartition], int] = {}
        self.sections: dict[str, LedgerSection] = {}
        self.join(LIVE)

    def join(self, lane: str, starts: int = 0, generation: int = 1, landing: str = "accounts") -> None:
        """Open a stream."""
        own = LedgerSection(
            landing=landing,
            lane=lane,
            cluster_id="test",
            epoch=uuid4(),
            spec_version="0" * 16,
            starts=dict.fromkeys(self.places, starts),
            covered=Coverage(),
            control=CONTROL,
            ends={} if lane == LIVE else dict.fromkeys(self.places, starts + 100_000),
            generation=generation,
        )
        join_table(self.tables, self.name, own, branch="main", table_uuid=self.loaded.metadata.table_uuid)
        self.sections[lane] = own
        self.at |= {(lane, p): starts for p in self.places}

    def change(self, lane: str, **values: Any) -> None:
        """Change the ledger entry of a stream."""
        self.sections[lane] = replace(self.sections[lane], **values)
        change_section(self.tables, self.name, "accounts", lane, SnapshotKind.CARRY, lambda now: replace(now, **values))

    @property
    def loaded(self) -> Any:
        return self.tables.load(self.name)

    def rows(self, changes: Sequence[Change], partition: int, first: int, generation: int) -> pa.Table:
        """Return the rows of changes as a decoder gives them."""
        schema = UpsertDecoder(self.landing, self.schema).schema
        from airflow_provider_lakecommit.iceberg import arrow_schema

        keys = [k if isinstance(k, tuple) else (k,) for k, _ in changes]
        many, arrow = len(changes), arrow_schema(schema)
        columns = {
            **{name: [k[n] for k in keys] for n, name in enumerate(self.key)},
            "value": [0 if v is None else v for _, v in changes],
            "kafka_topic": ["accounts"] * many,
            "kafka_partition": [partition] * many,
            "kafka_generation": [generation] * many,
            "kafka_offset": list(range(first, first + many)),
            "_is_deleted": [v is None for _, v in changes],
        }
        return pa.Table.from_arrays([pa.array(columns[f.name], f.type) for f in arrow], schema=arrow)

    def slice(self, changes: Sequence[Change], partition: int = 0, lane: str = LIVE) -> StagedSlice:
        """Write the next records of a partition as a task does."""
        place, own = self.places[partition], self.sections[lane]
        first = self.at[lane, place]
        self.at[lane, place] = first + len(changes)
        target = target_of(self.name, self.loaded, own.epoch)
        attempt, numbers, io = uuid4(), count(), self.loaded.io
        rows = FanoutWriter(target, io, attempt, owner=("accounts", lane), numbers=numbers)
        tombstones = FanoutWriter(tombstone_target(self.landing, target), io, attempt, numbers=numbers)
        last = LastChanges(self.landing, target, rows, tombstones)
        last.add(self.rows(changes, partition, first, own.generation), np.zeros(len(changes), np.int64))
        last.flush()
        files, deletes = rows.close(), tombstones.close()
        wire = [
            WireFile(file_path=f.file_path, record_count=f.record_count, file_size_in_bytes=f.file_size_in_bytes)
            for f in deletes
        ]
        superseded, deleted = last.superseded[0], last.deleted[0]
        counts = Counts(landed=len(changes) - superseded - deleted, superseded=superseded, deleted=deleted)
        span = Span(place, OffsetRange(first, first + len(changes)))
        return StagedSlice(
            slice_id=uuid4(),
            attempt=attempt,
            window_id=uuid4(),
            epoch=own.epoch,
            spans=(SpanReport(span=span, counts=counts),),
            files=tuple(files),
            rows=sum(f.record_count for f in files),
            schema_id=target.schema_id,
            spec_id=target.spec_id,
            generation=own.generation,
            columns=tuple(f.field_id for f in self.schema.fields[-4:]),
            tombstones=tuple(wire),
        )

    def request(self, slices: Iterable[StagedSlice], lane: str = LIVE) -> AppendRequest:
        """Return the request that publishes slices."""
        return AppendRequest(
            table=self.name,
            table_uuid=self.loaded.metadata.table_uuid,
            landing="accounts",
            lane=lane,
            commit_id=uuid4(),
            slices=tuple(slices),
            upsert=self.rule,
        )

    def land(self, changes: Sequence[Change], partition: int = 0, lane: str = LIVE) -> PublishOutcome:
        """Write and publish one slice."""
        return self.publish([self.slice(changes, partition, lane)], lane)

    def publish(self, slices: Iterable[StagedSlice], lane: str = LIVE) -> PublishOutcome:
        """Publish slices, all of which must be accepted."""
        done = publish(self.tables, self.request(slices, lane))
        assert not done.refused, done.refused
        return done

    def content(self) -> dict[Any, int]:
        """Return the rows by key, as DuckDB and pyiceberg both see them; no key may be there twice."""
        table = self.loaded
        with duckdb.connect() as database:
            for name in ("avro", "iceberg"):
                import_extension(name, con=database)
                database.load_extension(name)
            names = ", ".join((*self.key, "value"))
            sql = f"SELECT {names} FROM iceberg_scan('{table.metadata_location}')"
            duck = database.execute(sql).fetchall() if table.current_snapshot() else []
        rows = table.scan(selected_fields=(*self.key, "value")).to_arrow().to_pylist()
        ours = [tuple(r[n] for n in (*self.key, "value")) for r in rows]
        assert sorted(map(plain, duck)) == sorted(map(plain, ours))
        found = {r[0] if len(self.key) == 1 else r[:-1]: r[-1] for r in ours}
        assert len(found) == len(ours), "a key is there twice"
        return found

    def live_rows(self) -> int:
        """Return the number of live rows by the metadata alone."""
        summary = self.loaded.current_snapshot().summary.additional_properties
        return int(summary["total-records"]) - int(summary["total-position-deletes"])

    def delete_files(self) -> int:
        return int(self.loaded.current_snapshot().summary.additional_properties["total-delete-files"])

    def condition(self) -> str:
        return str(read_ledger(self.loaded.metadata, "main").condition)
