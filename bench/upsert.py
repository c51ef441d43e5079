# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.upsert`: one window of changes into a table that is kept equal to its source.

Contract: a table of ``--rows`` accounts in 16 buckets of their keys, which are uniform random numbers, so that no file
can be left out by its bounds. A window of ``--changes`` changes, half of them of keys that the table has, is written by
the product's writer and then published: looked up and committed, which alone is measured, next to a publish of as many
rows that are appended. With ``--recent`` the keys grow with time, as those of an order do, and changes are of recent
ones. DuckDB counts rows and keys before a figure counts.

CPU is of this process. The peak is that of the measured step, above what the process had before.
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
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.committer.append import AppendRequest, PublishOutcome, publish
from airflow_provider_lakecommit.committer.ledger_updates import join_table
from airflow_provider_lakecommit.committer.upsert_rule import UpsertRule
from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.session.targets import target_of
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_schema
from airflow_provider_lakecommit.iceberg.parquet.write import FanoutWriter
from bench.entries import section, whole_slice

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


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.upsert", description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000, help="50000000 takes some 10 minutes and 4 GB of disk")
    parser.add_argument("--changes", type=int, default=250_000)
    parser.add_argument("--windows", type=int, default=2)
    parser.add_argument("--recent", action="store_true", help="keys that grow, and changes of recent ones")
    options = parser.parse_args(arguments)
    print(f"{'':10}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}{'rows':>12}{'superseded':>12}{'files':>7}{'deletes':>9}")
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        bench = Bench(Path(folder), options.rows, options.changes, recent=options.recent)
        for n in range(options.windows):
            bench.step(f"upsert {n + 1}", upsert=True)
        bench.step("append", upsert=False)
    return 0


class Bench:
    """The table and the source."""

    def __init__(self, place: Path, rows: int, changes: int, *, recent: bool) -> None:
        (place / "data").mkdir()
        uri, warehouse = f"sqlite:///{place}/catalog.db", f"file://{place}/data"
        self._tables = Tables({"name": "bench", "type": "sql", "uri": uri, "warehouse": warehouse})
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
        act = self._publish(iter([numbers]), upsert=upsert)
        before, wall, cpu = _memory(reset=True), time.monotonic(), time.process_time()
        act()
        took = time.monotonic() - wall, time.process_time() - cpu, _memory() - before
        rows, keys = self._counted()
        if rows != keys or rows != self._known:
            raise SystemExit(f"{rows} rows of {keys} keys, {self._known} expected")
        found = self._tables.load(TABLE).current_snapshot().summary.additional_properties  # type: ignore[union-attr]
        gone, files, deletes = (
            found.get(k, "0") for k in ("lakecommit.superseded", "total-data-files", "total-delete-files")
        )
        print(
            f"{name:10}{took[0]:>8.2f}{took[1]:>8.2f}{took[2]:>9}{rows:>12}{gone:>12}{files:>7}{deletes:>9}", flush=True
        )

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

    def _counted(self) -> tuple[int, int]:
        with duckdb.connect() as database:
            for name in ("avro", "iceberg"):
                import_extension(name, con=database)
                database.load_extension(name)
            place = self._tables.load(TABLE).metadata_location
            sql = f"SELECT count(*), count(DISTINCT id) FROM iceberg_scan('{place}')"
            rows, keys = database.execute(sql).fetchone() or (0, 0)
            return rows, keys


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
