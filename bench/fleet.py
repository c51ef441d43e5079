# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.fleet`: a fleet of writers through an outage of the catalog, by our protocol and by the connector's.

Contract: nothing is written but the events and the table. All events are encoded as on the wire, headers and keys
included, and counted; compression of the topic would make all of them smaller. In each cycle of the outage every
partition of the source gets new records. A writer's share of a window is one slice with one file.

* *connector*: with commits that are tried again, as releases up to 1.11 do by themselves and 1.12 by
  ``max-consecutive-failures``. Every cycle is one START_COMMIT, and per writer a DATA_WRITTEN and a DATA_COMPLETE.
  Draining is decoding the files that were announced, and one append of all of them.
* *landing, catalog away*: the catalog goes while a window is being written.
* *landing, no commits*: it can still be read, so windows are planned until the landing counts as stalled.
  What is planned is decided by the code that does it in a plan: fold, admission, planning. Draining is reading the log,
  folding, settling, and appending in chunks by the same compare-and-swap as any other commit.

Both drains end in a real catalog (SQLite) through pyiceberg, so neither is held to a slower library.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.control.events import Event, decode, encode
from airflow_provider_lakecommit.control.payloads import (
    DataComplete,
    DataWritten,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from airflow_provider_lakecommit.control.plan_json import MAX_SLICES
from airflow_provider_lakecommit.control.records import Outgoing, Sender, read_entry, table_reference
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.identity import window_id
from airflow_provider_lakecommit.core.log import Directives, Entry
from airflow_provider_lakecommit.core.model import LIVE, Counts, Cycle, Plan, SliceReport, SpanReport
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.admission import (
    Admit,
    Refuse,
    Terms,
    admit,
    catalog_away,
    only_holes,
    pressure_of,
)
from airflow_provider_lakecommit.core.planning.missing import Watermark, WindowLimits, choose, find_missing
from airflow_provider_lakecommit.core.planning.slicing import cut, window_of
from airflow_provider_lakecommit.core.settle import chunks, settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState, TableLedger
from airflow_provider_lakecommit.cycle.session.tables import target_of
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.data_files import to_pyiceberg, to_wire
from airflow_provider_lakecommit.iceberg.ledger.append import AppendRequest, publish
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import join_table
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.landing import Landing, Window
from airflow_provider_lakecommit.spark.report import report_records
from bench.entries import data_file, section
from tests.support.jobs import slice_job

RECORDS = 1000
"""Records that each partition gets per cycle, and that a slice holds."""
COLUMNS = range(1, 11)
SCHEMA = Schema(*(NestedField(n, f"column_{n}", LongType()) for n in COLUMNS))
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
MEGABYTE = 1e6
HEADINGS = (
    f"{'':28}{'events':>9}{'MB':>9}{'last cycle kB':>15}{'files':>8}{'read s':>8}{'commit s':>10}{'snapshots':>11}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What one fleet came to. ``last`` is the bytes that the last cycle of the outage added."""

    events: int
    size: int
    last: int
    files: int
    read: float
    commit: float
    snapshots: int

    def line(self, name: str) -> str:
        return (
            f"{name:28}{self.events:>9}{self.size / MEGABYTE:>9.1f}{self.last / 1000:>15.1f}{self.files:>8}"
            f"{self.read:>8.1f}{self.commit:>10.1f}{self.snapshots:>11}"
        )


def main(arguments: list[str]) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m bench.fleet", description=__doc__)
    parser.add_argument("--writers", type=int, default=3000)
    parser.add_argument("--cycles", type=int, default=30, help="of outage")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder:
        tables = Tables(
            {"name": "b", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/data"}
        )
        print(f"{options.writers} writers, {options.cycles} cycles of outage")
        print(HEADINGS)
        for name, away in (("landing, catalog away", True), ("landing, no commits", False)):
            fleet = Fleet(tables=tables, writers=options.writers, name="away" if away else "refusing")
            print(fleet.run(options.cycles, away=away).line(name), flush=True)
        print(_connector(tables, options.writers, options.cycles).line("connector"), flush=True)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One on the control topic."""

    offset: int
    timestamp: datetime
    value: bytes
    headers: Sequence[tuple[str, bytes]]


@dataclass(kw_only=True)
class Fleet:
    """A landing's writers and its control topic."""

    tables: Tables
    writers: int
    name: str
    records: list[Record] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    size: int = 0
    ends: int = 0

    def __post_init__(self) -> None:
        self.landing = Landing(
            name=self.name, topics="orders", table=f"bench.{self.name}", window=Window(slice_records=RECORDS)
        )
        self.places = [SourcePartition("orders", n, "b3JkZXJzLXRvcGljLWlkLQ") for n in range(self.writers)]
        self.table: Table = self.tables.create(self.landing.table, SCHEMA)
        own = section(self.name, self.places)
        join_table(self.tables, self.landing.table, own, branch="main", table_uuid=self.table.metadata.table_uuid)
        self.ledger = TableLedger(table=self.landing.table, uuid=self.table.metadata.table_uuid, section=own)
        self.target = target_of(self.landing.table, self.table, own.epoch)

    def run(self, cycles: int, *, away: bool) -> Found:
        """The outage, and the drain after it."""
        last = 0
        for n in range(cycles):
            before = self.size
            self._cycle(n, CatalogError("LC9999", "the catalog is away") if away and n else None)
            last = self.size - before
        events, size = len(self.records), self.size
        return self._drained(Found(events=events, size=size, last=last, files=0, read=0, commit=0, snapshots=0))

    # -- the outage ---------------------------------------------------------------------------------------------------

    def _cycle(self, number: int, away: CatalogError | None) -> None:
        self.ends += RECORDS
        commit_id = uuid4()
        plan = self._plan(catalog_away(away)) if away else self._planned()
        cycle = Cycle(commit_id=commit_id, dag="fleet", run=f"run-{number}", number=0, slot=0)
        self._log(self._sender("plan", commit_id).opened(uuid4(), self._now, cycle, plan, Directives()))
        for place, work in enumerate(plan.slices):
            report = SliceReport(
                slice_id=work.slice_id,
                attempt=uuid4(),
                window_id=plan.window_id,
                spec_version=plan.spec_version,
                spans=tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in work.spans),
                tables=(),
                bytes=100 * len(work),
            )
            job = slice_job(self.landing, plan, commit_id)
            files = {self.landing.table: [_file(number, place, len(work))]}
            told = report_records(job, work, report, files, at=self._now)
            for one in told:
                self._log(one)
        reason = "CatalogError: catalog b failed while committing (ConnectionError: connection refused)"
        failed = self._sender("commit", commit_id).commit_failed(
            uuid4(), self._now, reason, "1", Directives(), [self.landing.table]
        )
        self._log(failed)

    def _planned(self) -> Plan:
        """As a plan decides it."""
        marks = {p: Watermark(start=0, stable=self.ends, high=self.ends) for p in self.places}
        landing_state = self._view()
        missing = find_missing(landing_state, marks, landing_state.claims(self._now))
        holes = only_holes(missing, landing_state)
        terms = Terms(budget=self.landing.pending_budget, stalled_cycles=self.landing.backpressure.stalled_cycles)
        decision = admit(pressure_of(landing_state, self._now, record_bytes=100, holes=len(holes)), terms)
        if isinstance(decision, Refuse):
            return self._plan(decision)
        limits = WindowLimits(slice_records=RECORDS, record_bytes=100, max_records=decision.records)
        chosen = choose(missing, limits)
        version = self.landing.spec_version
        window = window_of(chosen, landing_state, landing=self.name, lane=LIVE, spec_version=version)
        slices = cut(chosen, landing_state, limits, window)
        return Plan(
            landing=self.name,
            lane=LIVE,
            spec_version=version,
            window_id=window,
            slices=slices[: _most(decision)],
            targets=(self.target,),
            ends=dict.fromkeys(self.places, self.ends),
            requested_at=self._now,
        )

    def _plan(self, refused: Refuse) -> Plan:
        """An empty one."""
        version = self.landing.spec_version
        return Plan(
            landing=self.name,
            lane=LIVE,
            spec_version=version,
            window_id=window_id(self.name, LIVE, version, {}, ()),
            slices=(),
            targets=(),
            ends={},
            requested_at=self._now,
            reason=str(refused),
            refused=refused.state,
        )

    # -- the drain ----------------------------------------------------------------------------------------------------

    def _drained(self, found: Found) -> Found:
        began, files, snapshots = time.monotonic(), 0, 0
        self.entries = []  # of a process of its own
        landing_state = self._view()
        read = time.monotonic() - began
        while ready := chunks(
            settle(landing_state.accepted[self.landing.table], self.ledger.section),
            self.landing.table,
            self.landing.backpressure.commit_files,
        ):
            staged = tuple(self._staged(a) for a in ready[0])
            request = AppendRequest(
                table=self.landing.table,
                table_uuid=self.ledger.uuid,
                landing=self.name,
                commit_id=uuid4(),
                slices=staged,
            )
            outcome = publish(self.tables, request)
            own = outcome.state.section(self.name, LIVE)
            if outcome.snapshot_id is None or own is None:
                raise RuntimeError(f"nothing was published: {outcome.refused}")
            snapshots, files = snapshots + 1, files + sum(len(s.files) for s in staged)
            self.ledger = TableLedger(table=self.landing.table, uuid=self.ledger.uuid, section=own)
            again = time.monotonic()
            landing_state = self._view()
            read += time.monotonic() - again
        commit = time.monotonic() - began - read
        return Found(
            events=found.events,
            size=found.size,
            last=found.last,
            files=files,
            read=read,
            commit=commit,
            snapshots=snapshots,
        )

    def _staged(self, accepted: AcceptedSlice) -> StagedSlice:
        files = [f for value in accepted.files[self.landing.table] for f in _files_of(value, self.table)]
        return StagedSlice.of(accepted.report, self.landing.table, files)

    # -- the control topic --------------------------------------------------------------------------------------------

    @property
    def _now(self) -> datetime:
        return BEGIN + timedelta(milliseconds=len(self.records))

    def _sender(self, role: str, commit_id: UUID) -> Sender:
        return Sender(landing=self.name, lane=LIVE, role=role, commit_id=commit_id)

    def _log(self, one: Outgoing) -> None:
        self.size += len(one.value) + len(one.key) + sum(len(k) + len(v) for k, v in one.headers)
        self.records.append(Record(offset=len(self.records), timestamp=self._now, value=one.value, headers=one.headers))

    def _read(self, since: int) -> list[Entry]:
        found = (read_entry(r, self.name, LIVE) for r in self.records[since:])
        return [e for e in found if e is not None]

    def _view(self) -> LandingState:
        """Read what is new, and fold all."""
        self.entries += self._read(len(self.entries))
        return fold(self.entries, [self.ledger], self.landing.window.completion_timeout)


def _most(decision: Admit) -> int:
    return min(n for n in (MAX_SLICES, decision.slices) if n is not None)


def _file(cycle: int, place: int, rows: int) -> DataFile:
    """With what a writer knows of ten columns."""
    bounds = dict.fromkeys(COLUMNS, place.to_bytes(8, "little"))
    return data_file(f"s3://lake/bench/orders/data/{cycle:05d}-{place:05d}-{uuid4()}.parquet", rows, bounds=bounds)


def _files_of(value: bytes, table: Table) -> list[DataFile]:
    payload = decode(value).payload
    if not isinstance(payload, DataWritten):
        raise TypeError(f"no file list: {payload}")
    return to_pyiceberg(
        payload.data_files or (), payload.partition_fields, spec=table.metadata.spec(), schema=table.metadata.schema()
    )


def _connector(tables: Tables, writers: int, cycles: int) -> Found:
    """What its workers and its coordinator say, and what the coordinator has to commit in the end."""
    table = tables.create("bench.connector", SCHEMA)
    events, size, last, read = 0, 0, 0, 0.0
    files: list[DataFile] = []
    for cycle in range(cycles):
        before = size
        for payload in _said_by_connector(table, cycle, writers):
            value = encode(Event(id=uuid4(), timestamp=BEGIN, group_id="connect-orders", payload=payload))
            events, size = events + 1, size + len(value) + len(str(uuid4()))
            if isinstance(payload, DataWritten):
                began = time.monotonic()
                files += _files_of(value, table)
                read += time.monotonic() - began
        last = size - before
    began = time.monotonic()
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)
    commit = time.monotonic() - began
    return Found(events=events, size=size, last=last, files=len(files), read=read, commit=commit, snapshots=1)


def _said_by_connector(table: Table, cycle: int, writers: int) -> Iterator[Payload]:
    commit_id, of = uuid4(), table_reference("b", "bench.connector", table.metadata.table_uuid)
    yield StartCommit(commit_id=commit_id)
    for place in range(writers):
        wire = to_wire([_file(cycle, place, RECORDS)], spec=table.metadata.spec(), schema=table.metadata.schema())
        yield DataWritten(commit_id=commit_id, table=of, data_files=wire, delete_files=None)
        done = TopicPartitionOffset(topic="orders", partition=place, offset=RECORDS * (cycle + 1), timestamp=BEGIN)
        yield DataComplete(commit_id=commit_id, assignments=(done,))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
