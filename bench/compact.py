# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.compact`: a table of many small files with deleted rows compacted, by the product and by Spark.

Contract: windows of orders in a table of 16 buckets, so that each window brings 16 files, and a position delete file
for nearly every one of them. Each contestant begins with the same snapshot; the branch is rolled back between them. The
rows that are left are counted by DuckDB before a figure counts. With ``--engine`` Spark 4.1 with Iceberg's runtime,
warm, rewrites the same files.

CPU is of the whole process tree. Wall seconds count on a quiet machine only: the load is next to them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import duckdb
import numpy as np
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.overwrite import OverwritingFiles, Rewrite
from airflow_provider_lakecommit.iceberg.parquet.deletes import write_deletes
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from bench.measure import Cost, measured
from bench.replace import ROWS, TABLE, Story, story_at
from dev.servers.engine import Engine

DEAD_SHARE = 20
"""One row of so many is deleted."""
KEPT_WHOLE = 16
"""Files without a delete file."""
REWRITE = (
    f"CALL lake.system.rewrite_data_files(table => '{TABLE}', options => map('target-file-size-bytes', '134217728', "
    "'min-input-files', '5', 'delete-file-threshold', '1', 'remove-dangling-deletes', 'true'))"
)


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.compact", description=__doc__)
    parser.add_argument("--windows", type=int, default=125)
    parser.add_argument("--rows", type=int, default=40_000, help="of a window")
    parser.add_argument("--engine", action="store_true", help="Spark with Iceberg's runtime too")
    options = parser.parse_args(arguments)
    print(f"{'':16}{'wall s':>8}{'CPU s':>8}{'load':>6}{'peak MB':>9}{'files':>16}{'delete files':>16}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, ExitStack() as ends:
        engine = ends.enter_context(Engine(Path(folder) / "engine")) if options.engine else None
        story = story_at(Path(folder), "compacted", 1, options.rows // 4)
        for window in range(options.windows):
            story.append(window)
        _delete_some(story)
        _contest(story, engine)
    return 0


def _contest(story: Story, engine: Engine | None) -> None:
    begin = read_ledger(story.tables.load(TABLE).metadata).head_id
    properties = "'write.target-file-size-bytes' = '134217728'"

    def product() -> None:
        (done,) = compact(story.session, write=True)
        if done.error:
            raise RuntimeError(done.error)

    contestants: list[tuple[str, Callable[[], object]]] = [("maintain", product)]
    if engine is not None:
        engine.sql(story.catalog, f"ALTER TABLE {ROWS} SET TBLPROPERTIES ({properties})")
        engine.sql(story.catalog, f"SELECT count(*) AS n FROM {ROWS}")
        contestants.append(("Spark", lambda: engine.sql(story.catalog, REWRITE)))
    for name, work in contestants:
        before = _counts(story)
        with measured() as cost:
            work()
        after = _counts(story)
        if after[2] != before[2]:
            raise RuntimeError(f"{name}: {before[2]} rows before, {after[2]} after")
        _print(name, cost, before, after)
        if begin is not None:
            story.tables.load(TABLE).manage_snapshots().rollback_to_snapshot(begin).commit()


def _delete_some(story: Story) -> None:
    """As another engine does: a delete file for each data file."""
    table, deletes = story.tables.load(TABLE), []
    for number, file in enumerate(story.files().values()):
        if number >= KEPT_WHOLE:
            output = table.io.new_output(f"{table.location()}/data/{number}-deletes.parquet")
            deletes.append(write_deletes(output, file, np.arange(0, file.record_count, DEAD_SHARE)))
    with table.transaction() as change:
        OverwritingFiles(change, Rewrite(removed=frozenset(), deletes=tuple(deletes)), branch="main").commit()


def _counts(story: Story) -> tuple[int, int, int]:
    """Data files, delete files and live rows."""
    table: Table = story.tables.load(TABLE)
    data = [p.removeprefix("file://") for p in story.files()]
    deletes = [p.removeprefix("file://") for p in story.files(ManifestContent.DELETES)]
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT count(*) FROM read_parquet({data})").fetchone()
        live = set(data)
        dead = database.execute(f"SELECT file_path FROM read_parquet({deletes})").fetchall() if deletes else []
    summary = table.metadata.snapshot_by_name("main")
    if rows is None or summary is None:
        raise RuntimeError("the table is empty")
    return len(data), len(deletes), rows[0] - sum(p.removeprefix("file://") in live for (p,) in dead)


def _print(name: str, cost: Cost, before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    files, deletes = (f"{a} → {b}" for a, b in list(zip(before, after, strict=True))[:2])
    print(
        f"{name:16}{cost.wall:>8.1f}{cost.cpu:>8.1f}{cost.load:>6.1f}{cost.peak_mb:>9.0f}{files:>16}{deletes:>16}",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
