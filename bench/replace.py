# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.replace`: one day's rows taken out of a table of thirty days, by the product and by Spark's DELETE.

Contract: orders that say which record they are of, in Parquet files by the landing's own writer, in three layouts: the
table is partitioned by day; it is as it was landed, and the day begins and ends in the middle of files; it was
compacted by a bucket, so that every file has rows of every day. Each contestant begins with the same snapshot, the
branch is rolled back between them, and what is left is counted by DuckDB before a figure counts. Rows that would come
in place of the others are appended by both, so they are left out. With ``--engine`` Spark with Iceberg's runtime, warm,
deletes the same rows by copying files, and by position deletes, which leave the copying to a later compaction.

CPU is of the whole process tree. Wall seconds count on a quiet machine only: the load stands beside them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestContent
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform
from pyiceberg.types import DoubleType, IntegerType, LongType, NestedField, StringType, TimestamptzType

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.iceberg.parquet.layout import Layout
from airflow_provider_lakecommit.landing import Columns, Landing
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace as take_out
from bench.entries import section, whole_slice
from bench.measure import Cost, measured
from dev.servers.engine import Engine

TABLE = "bench.orders"
PARTITIONS = [SourcePartition("orders", n, "b3JkZXJzLXRvcGljLWlkLQ") for n in range(4)]
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestamptzType()),
    NestedField(3, "customer", StringType()),
    NestedField(4, "amount", DoubleType()),
    NestedField(5, "kafka_topic", StringType()),
    NestedField(6, "kafka_partition", IntegerType()),
    NestedField(7, "kafka_offset", LongType()),
    NestedField(8, "kafka_generation", LongType()),
)
READING = 1
MARKS = (5, 6, 8, 7)
ROWS = f"lake.{TABLE}"
DAY_MICROS = 86_400_000_000
BEGIN = 20_454 * DAY_MICROS
SLICE = 250_000
LAYOUTS = {
    "by day": PartitionSpec(PartitionField(2, 1000, DayTransform(), "ts_day")),
    "as landed": UNPARTITIONED_PARTITION_SPEC,
    "compacted": PartitionSpec(PartitionField(1, 1000, BucketTransform(16), "id_bucket")),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """One table, and the day that is taken out of it. Offsets of a day are ``per_day`` of each partition."""

    tables: Tables
    catalog: dict[str, str]
    layout: str
    days: int
    per_day: int

    @property
    def session(self) -> LandingSession:
        landing = Landing(name="orders", topics="orders", table=TABLE, columns=Columns(metadata=True))
        own = LandingSession.connect(landing, {"bootstrap.servers": "none:1"}, self.catalog, log=print)
        return replace(own, tables=self.tables, lent=True)

    @property
    def taken(self) -> OffsetRange:
        """Of each partition: a day in the middle, by the hour in which it begins; landed, it begins within a file."""
        begin = self.days // 2 * self.per_day + (min(SLICE, self.per_day) // 2 if self.layout == "as landed" else 0)
        return OffsetRange(begin, begin + self.per_day)

    def land(self) -> None:
        table = self.tables.create(TABLE, SCHEMA, LAYOUTS[self.layout], {})
        own = section("orders", PARTITIONS)
        join_table(self.tables, TABLE, own, table_uuid=table.metadata.table_uuid)
        whole = OffsetRange(0, self.days * self.per_day)
        files = list(self._compacted(whole) if self.layout == "compacted" else self._landed(whole))
        slice_ = replace(
            whole_slice(own, [Span(p, whole) for p in PARTITIONS], files), generation=READING, columns=MARKS
        )
        request = AppendRequest(
            table=TABLE, table_uuid=table.metadata.table_uuid, landing="orders", commit_id=uuid4(), slices=(slice_,)
        )
        done = publish(self.tables, request)
        if not done.published:
            raise RuntimeError(f"nothing was landed: {done.refused}")

    def append(self, window: int) -> None:
        """One more window, as another writer would append it: its rows are of no range of the ledger."""
        start = (self.days + window) * self.per_day
        files = self._written([self._rows(p.partition, start, start + self.per_day) for p in PARTITIONS])
        table = self.tables.load(TABLE)
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for file in files:
                append.append_data_file(file)

    def _landed(self, whole: OffsetRange) -> Iterator[DataFile]:
        for p in PARTITIONS:
            for at in range(0, whole.end, SLICE):
                yield from self._written([self._rows(p.partition, at, min(at + SLICE, whole.end))])

    def _compacted(self, whole: OffsetRange) -> Iterator[DataFile]:
        """All rows in files of a bucket, each with rows of every day."""
        yield from self._written(
            self._rows(p.partition, at, min(at + SLICE, whole.end))
            for at in range(0, whole.end, SLICE)
            for p in PARTITIONS
        )

    def _written(self, blocks: Iterator[pa.Table] | list[pa.Table]) -> list[DataFile]:
        table = self.tables.load(TABLE)
        target = target_of(TABLE, table, uuid4())
        schema, writer = Layout(target).arrow, FanoutWriter(target, table.io, uuid4())
        for block in blocks:
            writer.write(block.cast(schema))
        return writer.close()

    def _rows(self, partition: int, start: int, end: int) -> pa.Table:
        offsets = np.arange(start, end, dtype=np.int64)
        ids = offsets * len(PARTITIONS) + partition
        return pa.table(
            {
                "id": ids,
                "ts": pa.array(BEGIN + offsets * DAY_MICROS // self.per_day, pa.timestamp("us", tz="UTC")),
                "customer": pa.array([f"customer {i}" for i in (ids * 7919 % 10_000).tolist()]),
                "amount": (ids * 31 % 100_000) / 100,
                "kafka_topic": pa.repeat(pa.scalar("orders"), len(offsets)),
                "kafka_partition": pa.array(np.full(len(offsets), partition, np.int32)),
                "kafka_offset": offsets,
                "kafka_generation": pa.repeat(pa.scalar(READING), len(offsets)),
            }
        )

    def files(self, content: ManifestContent = ManifestContent.DATA) -> dict[str, DataFile]:
        table = self.tables.load(TABLE)
        head = table.current_snapshot()
        manifests = [m for m in head.manifests(table.io) if m.content == content] if head else []
        return {e.data_file.file_path: e.data_file for m in manifests for e in m.fetch_manifest_entry(table.io)}

    def check(self) -> None:
        """What is left are all other rows, each once; where there are delete files, by their number."""
        due = (self.days - 1) * self.per_day * len(PARTITIONS)
        listed = [path.removeprefix("file://") for path in self.files()]
        deleted = sum(f.record_count for f in self.files(ManifestContent.DELETES).values())
        with duckdb.connect() as database:
            found = database.execute(
                f"SELECT count(*), count(DISTINCT id), count(*) FILTER (kafka_offset >= {self.taken.start} "
                f"AND kafka_offset < {self.taken.end}) FROM read_parquet({listed})"
            ).fetchone()
        if found != (due + deleted, due + deleted, deleted):
            raise RuntimeError(f"{found} of {due} rows are left, {deleted} are deleted by position")


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.replace", description=__doc__)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of a day")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--engine", action="store_true", help="Spark with Iceberg's runtime too")
    options = parser.parse_args(arguments)
    counts = f"{'files out':>11}{'in':>6}{'MB read':>9}{'written':>9}"
    print(f"{'':34}{'wall s':>8}{'CPU s':>8}{'load':>6}{'peak MB':>9}{counts}", flush=True)
    for layout in options.layouts:
        with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, ExitStack() as ends:
            engine = ends.enter_context(Engine(Path(folder) / "engine")) if options.engine else None
            _contest(story_at(Path(folder), layout, options.days, options.rows // len(PARTITIONS)), engine)
    return 0


def story_at(place: Path, layout: str, days: int, per_day: int) -> Story:
    (place / "data").mkdir()
    catalog = {
        "name": f"bench_{uuid4().hex[:8]}",
        "type": "sql",
        "uri": f"sqlite:///{place}/catalog.db",
        "warehouse": f"file://{place}/data",
    }
    story = Story(tables=Tables(catalog), catalog=catalog, layout=layout, days=days, per_day=per_day)
    story.land()
    return story


def _contest(story: Story, engine: Engine | None) -> None:
    state = read_ledger(story.tables.load(TABLE).metadata)
    begin = state.head_id
    coverage = Coverage.of((p, story.taken) for p in PARTITIONS)

    def product() -> None:
        take_out(story.session, coverage, commit_id=uuid4())

    contestants: list[tuple[str, Callable[[], Callable[[], object]]]] = [("replace", lambda: product)]
    for mode in ("copy-on-write", "merge-on-read") if engine is not None else ():
        contestants.append((f"Spark, {mode}", partial(_deleting, engine, story, mode)))
    for name, prepare in contestants:
        before, work = story.files(), prepare()
        with measured() as cost:
            work()
        story.check()
        _told(f"{story.layout}: {name}", cost, before, {**story.files(), **story.files(ManifestContent.DELETES)})
        if begin is not None:
            story.tables.load(TABLE).manage_snapshots().rollback_to_snapshot(begin).commit()


def _deleting(engine: Engine, story: Story, mode: str) -> Callable[[], object]:
    """Spark's own way, warm by a look at the rows."""
    engine.sql(story.catalog, f"ALTER TABLE {ROWS} SET TBLPROPERTIES ('write.delete.mode' = '{mode}')")
    where = f"kafka_topic = 'orders' AND kafka_offset >= {story.taken.start} AND kafka_offset < {story.taken.end}"
    engine.sql(story.catalog, f"SELECT count(*) AS n FROM {ROWS} WHERE {where}")
    return lambda: engine.sql(story.catalog, f"DELETE FROM {ROWS} WHERE {where}")


def _told(name: str, cost: Cost, before: dict[str, DataFile], after: dict[str, DataFile]) -> None:
    out, came = before.keys() - after.keys(), after.keys() - before.keys()
    copied = sum(after[path].file_size_in_bytes for path in came) / 1e6
    read = sum(before[path].file_size_in_bytes for path in out) / 1e6 if came else 0.0
    print(
        f"{name:34}{cost.wall:>8.1f}{cost.cpu:>8.1f}{cost.load:>6.1f}{cost.peak_mb:>9.0f}{len(out):>11}{len(came):>6}"
        f"{read:>9.0f}{copied:>9.0f}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
