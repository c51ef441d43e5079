# SPDX-License-Identifier: Apache-2.0
"""What a transform costs by each engine: CPU-seconds of SQL on decoded batches, see docs/project/adr/0058.

``python -m bench.transform [records]`` prints one line per engine and query. Spark's is a DataFrame between two
``mapInArrow``, which is where the rows would leave Python and come back; DataFusion is measured only if it is there.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import duckdb
import pyarrow as pa

BLOCK = 10_000
QUERIES = {
    "rename": "select id, upper(status) as status, concat(status, note) as text, amount * 2 as twice from record",
    "filter": "select id, status, amount, ts from record where status = 'paid' and amount > 50",
    "explode": "select id, {explode}(items) as item from record",
}


def blocks(records: int) -> Iterator[pa.Table]:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    for first in range(0, records, BLOCK):
        ids = range(first, first + BLOCK)
        yield pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "ts": pa.array([begin + timedelta(seconds=i) for i in ids], pa.timestamp("us", "UTC")),
                "amount": pa.array([Decimal(i % 10_000) / 100 for i in ids], pa.decimal128(12, 2)),
                "status": pa.array([("new", "paid", "sent")[i % 3] for i in ids]),
                "note": pa.array([f"note of record {i}" for i in ids]),
                "items": pa.array([[{"sku": f"s{i}", "n": 1}, {"sku": "t", "n": i % 7}] for i in ids]),
            }
        )


def by_duckdb(made: list[pa.Table], query: str) -> int:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    rows = 0
    for block in made:
        connection.register("record", block)
        rows += connection.execute(query.format(explode="unnest")).to_arrow_table().num_rows
        connection.unregister("record")
    return rows


def by_datafusion(made: list[pa.Table], query: str) -> int:
    from datafusion import SessionConfig, SessionContext

    context = SessionContext(SessionConfig().with_target_partitions(1))
    rows = 0
    for block in made:
        context.register_record_batches("record", [block.to_batches()])
        rows += context.sql(query.format(explode="unnest")).to_arrow_table().num_rows
        context.deregister_table("record")
    return rows


def by_spark(made: list[pa.Table], query: str) -> int:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    items = "array<struct<sku: string, n: long>>"
    schema = f"id long, ts timestamp, amount decimal(12,2), status string, note string, items {items}"
    place = Path(tempfile.mkdtemp()) / "records.arrow"
    with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, made[0].schema) as out:
        for block in made:
            out.write_table(block)

    def decoded(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(str(place)) as source, pa.ipc.open_file(source) as reader:
            yield from map(reader.get_batch, range(reader.num_record_batches))

    def written(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"rows": [sum(b.num_rows for b in batches)]})

    spark.range(0, 1, 1, 1).mapInArrow(decoded, schema).createOrReplaceTempView("record")
    frame = spark.sql(query.format(explode="explode"))
    return int(frame.mapInArrow(written, "rows long").collect()[0][0])


def cpu() -> float:
    """Of this process and of those that have ended below it, with the JVM as far as it is known."""
    import psutil

    own = resource.getrusage(resource.RUSAGE_SELF)
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    below = (p.cpu_times() for p in psutil.Process().children(recursive=True))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + sum(t.user + t.system for t in below)


def main(records: int) -> None:
    made = list(blocks(records))
    engines: dict[str, Callable[[list[pa.Table], str], int]] = {"duckdb": by_duckdb, "spark": by_spark}
    if find_spec("datafusion") is not None:
        engines["datafusion"] = by_datafusion
    for name, engine in engines.items():
        for what, query in QUERIES.items():
            # Of a JVM the second time is told: the first one pays its start.
            engine(made, query)
            before = cpu()
            rows = engine(made, query)
            spent = cpu() - before
            print(f"{name:10} {what:16} {rows:9} rows {spent:6.2f} CPU-s {records / spent / 1000:8.0f} krec/CPU-s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 500_000)
