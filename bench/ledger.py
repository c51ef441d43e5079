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
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.committer.append import AppendRequest, publish
from airflow_provider_lakecommit.committer.checks import StagedSlice
from airflow_provider_lakecommit.committer.marks import join_table
from airflow_provider_lakecommit.committer.summary import LogPoint
from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.hooks.table import KEEP_SNAPSHOTS, Tables

TABLE = "bench.wide"
TOPIC = "orders"
TOPIC_ID = "b3JkZXJzLXRvcGljLWlkLQ"
CONTROL = ControlPosition(
    cluster_id="bench",
    topic="control-lakecommit",
    topic_id="Y29udHJvbC10b3BpYy0tLQ",
    partition=0,
    read_from=0,
    low=None,
)
MOST_RECORDS = 20_000
FILE_BYTES = 1 << 20


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
    section = _section(places)
    join_table(tables, TABLE, section, branch="main", table_uuid=table.metadata.table_uuid)
    ends = dict.fromkeys(places, 0)
    dice = random.Random(7)
    for number in range(commits):
        moved = {p: end + dice.randrange(MOST_RECORDS) for p, end in ends.items()}
        request = AppendRequest(
            table=TABLE,
            table_uuid=table.metadata.table_uuid,
            landing=section.landing,
            commit_id=uuid4(),
            slices=(_slice(section, ends, moved),),
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


def _section(places: list[SourcePartition]) -> LedgerSection:
    return LedgerSection(
        landing="wide",
        lane=LIVE,
        cluster_id="bench",
        epoch=uuid4(),
        spec_version="0" * 16,
        starts=dict.fromkeys(places, 0),
        covered=Coverage(),
        control=CONTROL,
    )


def _slice(
    section: LedgerSection, ends: Mapping[SourcePartition, int], moved: Mapping[SourcePartition, int]
) -> StagedSlice:
    """One slice over all partitions that moved."""
    spans = tuple(Span(p, OffsetRange(ends[p], moved[p])) for p in ends if moved[p] > ends[p])
    rows = sum(len(s) for s in spans)
    return StagedSlice(
        slice_id=uuid4(),
        attempt=uuid4(),
        window_id=uuid4(),
        epoch=section.epoch,
        spans=tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in spans),
        files=(_file(rows),),
        rows=rows,
        schema_id=0,
        spec_id=0,
    )


def _file(rows: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///bench/{uuid4()}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=rows,
        file_size_in_bytes=FILE_BYTES,
        column_sizes={1: FILE_BYTES},
        value_counts={1: rows},
        null_value_counts={1: 0},
        nan_value_counts={},
        lower_bounds={},
        upper_bounds={},
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
