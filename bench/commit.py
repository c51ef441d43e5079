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

from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from bench.entries import data_file, section, whole_slice

COLUMNS = range(1, 21)
BUCKETS = 16
SCHEMA = Schema(*(NestedField(n, f"column_{n}", LongType()) for n in COLUMNS))
SPEC = PartitionSpec(PartitionField(1, 1000, BucketTransform(BUCKETS), "bucket"))
SOURCE = SourcePartition("orders", 0, "b3JkZXJzLXRvcGljLWlkLQ")


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
    own = section("wide", [SOURCE])
    join_table(tables, name, own, branch="main", table_uuid=table.metadata.table_uuid)
    slice_ = whole_slice(own, [Span(SOURCE, OffsetRange(0, len(files)))], files)
    request = AppendRequest(
        table=name, table_uuid=table.metadata.table_uuid, landing=own.landing, commit_id=uuid4(), slices=(slice_,)
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
    return data_file(
        f"file:///bench/wide/data/bucket={number % BUCKETS}/{uuid4()}-{number:05d}.parquet",
        1,
        partition=Record(number % BUCKETS),
        bounds=dict.fromkeys(COLUMNS, number.to_bytes(8, "little")),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
