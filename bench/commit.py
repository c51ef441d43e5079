# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.commit`: one commit of many files with statistics, as a run after an outage makes it.

Contract: file entries of twenty columns with counts and bounds, in a table partitioned by a bucket, appended by the
same compare-and-swap as any other. The files themselves are not there; a commit does not read them. Beside it, in the
same run, pyiceberg's own fast append of the same entries.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.committer.append import AppendRequest, publish
from airflow_provider_lakecommit.committer.checks import StagedSlice
from airflow_provider_lakecommit.committer.marks import join_table
from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.hooks.table import Tables

COLUMNS = range(1, 21)
BUCKETS = 16
SCHEMA = Schema(*(NestedField(n, f"column_{n}", LongType()) for n in COLUMNS))
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(BUCKETS), "bucket"))
SOURCE = SourcePartition("orders", 0, "b3JkZXJzLXRvcGljLWlkLQ")
CONTROL = ControlPosition(
    cluster_id="bench",
    topic="control-lakecommit",
    topic_id="Y29udHJvbC10b3BpYy0tLQ",
    partition=0,
    read_from=0,
    low=None,
)


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.commit", description=__doc__)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 100, 1000, 10_000])
    options = parser.parse_args(arguments)
    print(f"{'files':>8}{'publish s':>12}{'CPU s':>8}{'fast append s':>16}{'CPU s':>8}")
    for count in options.files:
        ours, plain = _measured(_publish, count), _measured(_fast_append, count)
        print(f"{count:>8}{ours[0]:>12.2f}{ours[1]:>8.2f}{plain[0]:>16.2f}{plain[1]:>8.2f}", flush=True)
    return 0


def _measured(commit: Callable[[Tables, str, tuple[DataFile, ...]], None], count: int) -> tuple[float, float]:
    """Wall and CPU seconds of one commit into a table of its own."""
    files = tuple(_file(n) for n in range(count))
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        place = Path(folder)
        (place / "data").mkdir()
        tables = Tables(
            {
                "name": "bench",
                "type": "sql",
                "uri": f"sqlite:///{place}/catalog.db",
                "warehouse": f"file://{place}/data",
            }
        )
        tables.create("bench.warm", SCHEMA, SPEC)
        commit(tables, "bench.warm", files[:1])
        tables.create("bench.wide", SCHEMA, SPEC)
        wall, cpu = time.monotonic(), time.process_time()
        commit(tables, "bench.wide", files)
        return time.monotonic() - wall, time.process_time() - cpu


def _publish(tables: Tables, name: str, files: tuple[DataFile, ...]) -> None:
    table = tables.load(name)
    section = LedgerSection(
        landing="wide",
        lane=LIVE,
        cluster_id="bench",
        epoch=uuid4(),
        spec_version="0" * 16,
        starts={SOURCE: 0},
        covered=Coverage(),
        control=CONTROL,
    )
    join_table(tables, name, section, branch="main", table_uuid=table.metadata.table_uuid)
    span = Span(SOURCE, OffsetRange(0, len(files)))
    slice_ = StagedSlice(
        slice_id=uuid4(),
        attempt=uuid4(),
        window_id=uuid4(),
        epoch=section.epoch,
        spans=(SpanReport(span=span, counts=Counts(landed=len(files))),),
        files=files,
        rows=len(files),
        schema_id=0,
        spec_id=0,
    )
    request = AppendRequest(
        table=name, table_uuid=table.metadata.table_uuid, landing="wide", commit_id=uuid4(), slices=(slice_,)
    )
    if publish(tables, request).snapshot_id is None:
        raise RuntimeError("nothing was published")


def _fast_append(tables: Tables, name: str, files: tuple[DataFile, ...]) -> None:
    table = tables.load(name)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def _file(number: int) -> DataFile:
    """One row, with what a writer knows of twenty columns."""
    counts, bounds = dict.fromkeys(COLUMNS, 1), dict.fromkeys(COLUMNS, number.to_bytes(8, "little"))
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file:///bench/wide/data/bucket={number % BUCKETS}/{uuid4()}-{number:05d}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(number % BUCKETS),
        record_count=1,
        file_size_in_bytes=4096,
        column_sizes=dict.fromkeys(COLUMNS, 60),
        value_counts=counts,
        null_value_counts=dict.fromkeys(COLUMNS, 0),
        nan_value_counts={},
        lower_bounds=bounds,
        upper_bounds=bounds,
        key_metadata=None,
        split_offsets=[4],
        equality_ids=None,
        sort_order_id=None,
    )
    file.spec_id = 0
    return file


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
