# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.upsert`: one window of changes into a table that is kept equal to its source.

Contract: a table of ``--rows`` accounts in 16 buckets of their keys, which are uniform random numbers, so that no file
can be left out by its bounds. A window of ``--changes`` changes, half of them of keys that the table has, is written by
the product's writer and then published: looked up and committed, which alone is measured, next to a publish of as many
rows that are appended. With ``--recent`` the keys grow with time, as those of an order do, and changes are of recent
ones. DuckDB counts rows and keys before a figure counts, and then scans one column: what deleted rows cost a reader.
In the end the table is compacted as `lakecommit maintain` does, and scanned again.

With ``--engine`` Spark with Iceberg's runtime, warm, merges the changes of the last window into the table as it was
before that window, by MERGE with position deletes. It reads them from a table of changes, which no figure includes.

CPU is of the whole process tree. The peak is that of the measured step, above what this process had before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from duckdb_extensions import import_extension
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.landing import Columns, Landing, Upsert
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from bench.entries import section, whole_slice
from bench.measure import measured
from dev.servers.engine import Engine

TABLE = "bench.accounts"
BLOCK = 250_000
SOURCE = SourcePartition("accounts", 0, "b3JkZXJzLXRvcGljLWlkLQ")
NAMES = ("id", "customer", "amount", "status", "note", "version")
SCHEMA = Schema(
    *(
        NestedField(n, name, StringType() if name in ("status", "note") else LongType())
        for n, name in enumerate(NAMES, 1)
    ),
    NestedField(7, "kafka_topic", StringType()),
    NestedField(8, "kafka_partition", IntegerType()),
    NestedField(9, "kafka_generation", LongType()),
    NestedField(10, "kafka_offset", LongType()),
)
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(16), "id_bucket"))
CHANGES = "bench.changes"
MERGE = (
    f"MERGE INTO lake.{TABLE} t USING lake.{CHANGES} s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
)


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.upsert", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="50000000 takes some 10 minutes and 4 GB of disk")
    parser.add_argument("--changes", type=int, default=250_000)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--recent", action="store_true", help="keys that grow, and changes of recent ones")
    parser.add_argument("--engine", action="store_true", help="Spark's MERGE of the last window too")
    options = parser.parse_args(arguments)
    heads = ("wall s", "CPU s", "peak MB", "rows", "superseded", "files", "deletes", "scan s", "load")
    print(f"{'':10}" + "".join(f"{head:>11}" for head in heads))
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        bench = Bench(Path(folder), options.rows, options.changes, recent=options.recent)
        bench.report("clean", lambda: None)
        for n in range(options.windows):
            bench.step(f"upsert {n + 1}", upsert=True)
        if options.engine:
            with Engine(Path(folder) / "engine") as engine:
                bench.merge(engine)
        bench.report("maintain", bench.maintain)
        bench.step("append", upsert=False)
    return 0


class Bench:
    """The table and the source."""

    def __init__(self, place: Path, rows: int, changes: int, *, recent: bool) -> None:
        (place / "data").mkdir()
        uri, warehouse = f"sqlite:///{place}/catalog.db", f"file://{place}/data"
        self._catalog = {"name": "bench", "type": "sql", "uri": uri, "warehouse": warehouse}
        self._tables = Tables(self._catalog)
        table = self._tables.create(TABLE, SCHEMA, SPEC)
        self._own = replace(section("accounts", [SOURCE]), generation=1)
        join_table(self._tables, TABLE, self._own, table_uuid=table.metadata.table_uuid)
        self._known, self._changes, self._recent, self._at, self._version = rows, changes, recent, 0, 0
        self._choose = np.random.default_rng(1)
        numbers = (np.arange(at, min(at + BLOCK, rows)) for at in range(0, rows, BLOCK))
        self._publish(numbers, upsert=False)()

    def step(self, name: str, *, upsert: bool) -> None:
        """Publish one window, and print what it took."""
        self._version += 1
        half = self._changes // 2
        first = self._known - 4 * self._changes if self._recent else 0
        old = self._choose.choice(np.arange(max(0, first), self._known), half, replace=False)
        new = np.arange(self._known, self._known + self._changes - half)
        numbers = new if not upsert else self._choose.permutation(np.concatenate([old, new]))
        self._known += len(new)
        self._window = numbers
        self.report(name, self._publish(iter([numbers]), upsert=upsert))

    def report(self, name: str, act: Callable[[], object]) -> None:
        """Measure a step; count rows and keys, scan the table, and print."""
        before = _memory(reset=True)
        with measured() as cost:
            act()
        peak = _memory() - before
        rows, keys, scan = self._scanned()
        if rows != keys or rows != self._known:
            raise SystemExit(f"{name}: {rows} rows of {keys} keys, {self._known} expected")
        found = self._tables.load(TABLE).current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        counts = [found.get(k, "0") for k in ("lakecommit.superseded", "total-data-files", "total-delete-files")]
        values = [f"{cost.wall:.2f}", f"{cost.cpu:.2f}", peak, rows, *counts, f"{scan:.2f}", f"{cost.load:.1f}"]
        print(f"{name:10}" + "".join(f"{value:>11}" for value in values), flush=True)

    def maintain(self) -> None:
        """Compact the table as `lakecommit maintain` does."""
        upsert, columns = Upsert(key=("id",), deletes="ignore"), Columns(metadata=True)
        landing = Landing(name="accounts", topics="accounts", table=TABLE, upsert=upsert, columns=columns)
        session = LandingSession.connect(landing, {"bootstrap.servers": "none:1"}, self._catalog, log=print)
        for done in compact(replace(session, tables=self._tables, lent=True), write=True):
            if done.error:
                raise RuntimeError(done.error)

    def merge(self, engine: Engine) -> None:
        """Merge the last window's changes by Spark into the table as it was before that window, twice: the first time
        warms it up. Then the table is as the product left it.
        """
        table = self._tables.load(TABLE)
        head = table.metadata.current_snapshot_id
        before = table.current_snapshot().parent_snapshot_id  # type: ignore[union-attr]
        changes = self._tables.create(CHANGES, SCHEMA, UNPARTITIONED_PARTITION_SPEC)
        changes.append(self._rows(self._window).cast(changes.schema().as_arrow()))
        modes = ", ".join(f"'write.{of}.mode' = 'merge-on-read'" for of in ("merge", "update", "delete"))
        engine.sql(self._catalog, f"ALTER TABLE lake.{TABLE} SET TBLPROPERTIES ({modes})")
        for name in ("MERGE 1", "MERGE 2"):
            self._head(before)
            self.report(name, lambda: engine.sql(self._catalog, MERGE))
        self._head(head)

    def _head(self, snapshot: int | None) -> None:
        with self._tables.load(TABLE).manage_snapshots() as change:
            change.set_current_snapshot(snapshot)

    def _publish(self, numbers: Iterator[np.ndarray], *, upsert: bool) -> Callable[[], PublishOutcome]:
        """Write rows, and return what publishes them."""
        table = self._tables.load(TABLE)
        writer = FanoutWriter(target_of(TABLE, table, self._own.epoch), table.io, uuid4())
        begin = self._at
        for block in numbers:
            writer.write(self._rows(block))
            self._at += len(block)
        spans = [Span(SOURCE, OffsetRange(begin, self._at))]
        one = replace(whole_slice(self._own, spans, tuple(writer.close())), generation=1, columns=(7, 8, 9, 10))
        request = AppendRequest(
            table=TABLE,
            table_uuid=table.metadata.table_uuid,
            landing="accounts",
            commit_id=uuid4(),
            slices=(one,),
            upsert=UpsertRule(key=("id",)) if upsert else None,
        )
        return lambda: publish(self._tables, request)

    def _rows(self, numbers: np.ndarray) -> pa.Table:
        many, seed = len(numbers), _mixed(numbers * 31 + self._version)
        columns = {
            "id": numbers if self._recent else _mixed(numbers),
            "customer": numbers * 7919 % 100_000,
            "amount": seed % 1_000_000,
            "status": pa.array(["new", "paid", "sent"]).take(pa.array(numbers % 3)),
            "note": pc.binary_join_element_wise("note", pc.cast(pa.array(seed), pa.string()), " "),
            "version": np.full(many, self._version),
            "kafka_topic": pa.repeat(pa.scalar("accounts"), many),
            "kafka_partition": pa.repeat(pa.scalar(0, pa.int32()), many),
            "kafka_generation": np.ones(many, np.int64),
            "kafka_offset": np.arange(self._at, self._at + many),
        }
        return pa.table(columns).cast(arrow_schema(SCHEMA))

    def _scanned(self) -> tuple[int, int, float]:
        """Return how many rows and keys there are, and the seconds of the fastest of three scans."""
        with duckdb.connect() as database:
            for name in ("avro", "iceberg"):
                import_extension(name, con=database)
                database.load_extension(name)
            rows = f"iceberg_scan('{self._tables.load(TABLE).metadata_location}')"
            counted, keys = database.execute(f"SELECT count(*), count(DISTINCT id) FROM {rows}").fetchone() or (0, 0)
            took = []
            for _ in range(3):
                began = time.monotonic()
                database.execute(f"SELECT sum(amount) FROM {rows}").fetchall()
                took.append(time.monotonic() - began)
            return counted, keys, min(took)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    """Return a number that looks random, different for different ones and not negative."""
    x = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(29)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(32)
    return (x >> np.uint64(1)).astype(np.int64)


def _memory(*, reset: bool = False) -> int:
    """Return the megabytes that this process has, or had at most since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    wanted = "VmRSS:" if reset else "VmHWM:"
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if x.startswith(wanted))
    return int(line.split()[1]) // 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
