# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.ledger`: what the ledger of many topic partitions costs a table over many commits.

Contract: every commit moves every partition by a random number of records and appends one file entry, through the same
compare-and-swap as any other. Printed are the size of the table's metadata file and the seconds of one commit, at some
numbers of snapshots.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS, Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint
from bench.entries import CONTROL, data_file, section, whole_slice

TABLE = "bench.wide"
TOPIC = "orders"
TOPIC_ID = "b3JkZXJzLXRvcGljLWlkLQ"
MOST_RECORDS = 20_000


def main(arguments: list[str]) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.ledger", description=__doc__)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--snapshots", type=int, nargs="+", default=[1, 50, 200, 500, 1000])
    options = parser.parse_args(arguments)
    print(f"{options.partitions} topic partitions, all of them moved by every commit")
    print(f"{'snapshots':>10}{'metadata.json MB':>18}{'commit s (median of last 10)':>30}")
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        seconds: list[float] = []
        for number, (took, size) in enumerate(_commits(Path(folder), options.partitions, max(options.snapshots)), 1):
            seconds.append(took)
            if number in options.snapshots:
                print(f"{number:>10}{size / 1e6:>18.2f}{statistics.median(seconds[-10:]):>30.3f}", flush=True)
    return 0


def _commits(folder: Path, partitions: int, commits: int) -> Iterator[tuple[float, int]]:
    """Seconds of each commit, and the bytes of the metadata file after it."""
    tables = Tables(
        {"name": "bench", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/data"}
    )
    (folder / "data").mkdir()
    table = tables.create(
        TABLE, Schema(NestedField(1, "id", LongType())), properties={KEEP_SNAPSHOTS: str(commits + 1)}
    )
    places = [SourcePartition(TOPIC, p, TOPIC_ID) for p in range(partitions)]
    own = section("wide", places)
    join_table(tables, TABLE, own, branch="main", table_uuid=table.metadata.table_uuid)
    ends = dict.fromkeys(places, 0)
    dice = random.Random(7)
    for number in range(commits):
        moved = {p: end + dice.randrange(MOST_RECORDS) for p, end in ends.items()}
        spans = tuple(Span(p, OffsetRange(ends[p], moved[p])) for p in places if moved[p] > ends[p])
        rows = sum(map(len, spans))
        files = (data_file(f"file:///bench/{uuid4()}.parquet", rows, bounds={1: b"\0" * 8}),)
        request = AppendRequest(
            table=TABLE,
            table_uuid=table.metadata.table_uuid,
            landing=own.landing,
            commit_id=uuid4(),
            slices=(whole_slice(own, spans, files),),
            control=CONTROL,
            control_end=LogPoint(topic_id=CONTROL.topic_id, partition=0, offset=number),
            record_bytes=260,
        )
        began = time.monotonic()
        outcome = publish(tables, request)
        took = time.monotonic() - began
        if outcome.snapshot_id is None:
            raise RuntimeError(f"commit {number} published nothing: {outcome.refused}")
        ends = moved
        yield took, Path(tables.load(TABLE).metadata_location.removeprefix("file://")).stat().st_size


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
