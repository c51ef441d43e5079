# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.turns`: commits to many tables at once, while the catalog hangs on some of them.

Contract: every table gets one commit by the same compare-and-swap as any other, in a real catalog (SQLite), all handed
in at once, round after round on the same tables. A request for a table that hangs is held back for some seconds before
it is sent. Told of the *other* tables: how long after they were handed in they were done (median, 99 of 100, last);
the most threads there were; and when the last of those that hang was done. The last contestant is a pool of as many
threads that does not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.core.model import Counts, LedgerSection, Span, SpanReport
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, publish
from airflow_provider_lakecommit.iceberg.ledger.blocking_pool import THREADS, BlockingPool
from airflow_provider_lakecommit.iceberg.ledger.executor import Committer
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from bench.entries import section

SCHEMA = Schema(NestedField(1, "id", LongType()))
SOURCE = SourcePartition("orders", 0, "b3JkZXJzLXRvcGljLWlkLQ")
HEADINGS = f"{'':32}{'median s':>10}{'99 % s':>8}{'last s':>8}{'threads':>9}{'hung s':>8}"


class HangingTables(Tables):
    """Holds back requests for some tables."""

    hanging: Collection[str] = ()
    seconds = 0.0

    def commit(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> TableMetadata:
        if ".".join(table.name()) in self.hanging:
            time.sleep(self.seconds)
        return super().commit(table, requirements, updates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and the ledger section that it was given."""

    name: str
    metadata: TableMetadata
    section: LedgerSection


def main(arguments: list[str]) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.turns", description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60, help="for which a request hangs")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        tables = HangingTables(
            {"name": "b", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/data"}
        )
        targets = [_target(tables, f"bench.t{n}") for n in range(options.tables)]
        tables.seconds = options.seconds
        print(f"{options.tables} tables, requests that hang do so for {options.seconds:g} s")
        print(HEADINGS)
        grows, fixed = BlockingPool, partial(BlockingPool, most=THREADS)
        scenarios: list[tuple[str, int, Callable[..., BlockingPool]]] = [
            ("none hangs", 0, grows),
            ("1 hangs", 1, grows),
            ("20 hang", 20, grows),
            ("none hangs, again", 0, grows),
            ("20 hang, first in line", -20, grows),
            (f"20 hang, no more than {THREADS} threads", 20, fixed),
        ]
        for turn, (name, stuck, pool) in enumerate(scenarios):
            gc.collect()
            tables.hanging = _chosen(targets, stuck)
            print(f"{name:32}{asyncio.run(_round(tables, targets, turn, pool))}", flush=True)
    return 0


async def _round(tables: HangingTables, targets: list[Target], turn: int, pool: Callable[..., BlockingPool]) -> str:
    """One commit to each table; the figures as text."""
    done: dict[str, float] = {}
    threads = 0

    async def commit(committer: Committer, target: Target) -> None:
        nonlocal threads
        request = _request(target, turn)
        outcome = await committer.run_exclusive(target.name, partial(publish, tables, request), about=request)
        if outcome.snapshot_id is None:
            raise RuntimeError(f"{target.name}: nothing was published: {outcome.refused}")
        done[target.name] = time.monotonic() - began
        threads = max(threads, sum(t.name.startswith("lakecommit-catalog") for t in threading.enumerate()))

    began = time.monotonic()
    async with Committer(pool=pool(log=lambda _: None)) as committer, asyncio.TaskGroup() as group:
        for target in targets:
            group.create_task(commit(committer, target))
    waited = sorted(seconds for name, seconds in done.items() if name not in tables.hanging)
    hung = max((seconds for name, seconds in done.items() if name in tables.hanging), default=0.0)
    tail = waited[int(len(waited) * 0.99)]
    return f"{statistics.median(waited):>10.1f}{tail:>8.1f}{waited[-1]:>8.1f}{threads:>9}{hung:>8.1f}"


def _chosen(targets: list[Target], stuck: int) -> set[str]:
    """So many tables spread over the line, or, counted negative, at its head."""
    every = len(targets) // stuck if stuck > 0 else 1
    return {t.name for t in targets[every // 2 :: every][: abs(stuck)]}


def _target(tables: Tables, name: str) -> Target:
    metadata = tables.create(name, SCHEMA).metadata
    own = section("many", [SOURCE])
    join_table(tables, name, own, branch="main", table_uuid=metadata.table_uuid)
    return Target(name=name, metadata=metadata, section=own)


def _request(target: Target, turn: int) -> AppendRequest:
    """A slice without files: the request is as large, and no manifest is written beside the list."""
    slice_ = StagedSlice(
        slice_id=uuid4(),
        attempt=uuid4(),
        window_id=uuid4(),
        epoch=target.section.epoch,
        spans=(SpanReport(span=Span(SOURCE, OffsetRange(turn, turn + 1)), counts=Counts(filtered=1)),),
        files=(),
        rows=0,
        schema_id=0,
        spec_id=0,
    )
    return AppendRequest(
        table=target.name,
        table_uuid=target.metadata.table_uuid,
        landing=target.section.landing,
        commit_id=uuid4(),
        slices=(slice_,),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
