# SPDX-License-Identifier: Apache-2.0
"""One landing without brokers: a real session over the control log and source in memory, and a catalog of this test's
own. Slices are reported without being read; their data files are entries only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.core.identity import attempt_id
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import Counts, ReadPosition, Slice, SliceCost, SliceReport, SpanReport
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.spark.report import report_records
from tests.fakes.catalog import FaultyCatalog
from tests.fakes.kafka import Clock, FakeControl, FakeSource
from tests.fakes.lake import data_file
from tests.support.declared import landing_of
from tests.support.jobs import slice_job

DATA, DEAD = "shop.rows", "shop.dead"
P0, P1 = (SourcePartition("orders", n, "topic-1") for n in range(2))
CREATE = {"schema": [{"name": "id", "type": "long", "required": True}]}


@dataclass
class FakeLanding:
    """A landing of one topic with two partitions, driven step by step in this process."""

    path: Path
    fields: Mapping[str, Any] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    leader_epoch: int | None = None
    """Under which the records of a slice were read, by its report."""
    cost: SliceCost | None = None
    """Of each slice, by its report."""

    def __post_init__(self) -> None:
        self.clock = Clock()
        self.control = FakeControl(clock=self.clock)
        self.source = FakeSource({P0: 20, P1: 10}, clock=self.clock)
        self.catalog = FaultyCatalog(
            "fake", uri=f"sqlite:///{self.path / 'fake.db'}", warehouse=f"file://{self.path / 'warehouse'}"
        )
        (self.path / "warehouse").mkdir(exist_ok=True)
        self.session = self.connect(**self.fields)

    def connect(self, **fields: Any) -> LandingSession:
        """A session of its own, as another process has it; with other ``fields`` of the landing."""
        stated = {"name": "rows", "topics": "orders", "table": DATA, "create": CREATE, "slice_records": 10}
        return LandingSession(
            landing=landing_of(**{**stated, **self.fields, **fields}),
            kafka={},
            tables=Tables(
                {"type": "sql", "warehouse": f"file://{self.path / 'warehouse'}"},
                "fake",
                connect=lambda *_, **__: self.catalog,
            ),
            control=self.control,
            source=self.source,
            now=self.clock,
            log=self.lines.append,
        )

    def run_identity(self, run: str = "a", number: int = 0) -> RunIdentity:
        return RunIdentity(deployment="test", dag_id="dag", run_id=run, number=number)

    def open(self, run: str = "a", **options: Any) -> Opened:
        return open_cycle(self.session, self.run_identity(run), **options)

    def close(self, run: str = "a", opened: Opened | None = None, **options: Any) -> Closed:
        return close_cycle(self.session, self.run_identity(run), opened.ticket if opened else None, **options)

    def cycle(self, run: str = "a") -> Closed:
        """Opened, all reported, closed."""
        opened = self.open(run)
        self.report(opened)
        return self.close(run, opened)

    def report(
        self,
        opened: Opened,
        only: Callable[[Slice], bool] = lambda _: True,
        *,
        files: bool = True,
        landed: bool | None = None,
        rejected: int = 0,
        partly: bool = False,
        **problem: str,
    ) -> list[UUID]:
        """As the tasks of the opened slices do: a row per offset in one file; with ``blocked`` or ``failed``, none.
        Without files all is filtered, unless it is said to have ``landed``.

        :param rejected: records of each span
        :param partly: a span was read no further than to its last rejected record
        """
        rows = files if landed is None else landed
        return [self._report(opened, s, files, rows, rejected, problem, partly) for s in opened.slices if only(s)]

    def _report(
        self,
        opened: Opened,
        work: Slice,
        files: bool,
        landed: bool,
        rejected: int,
        problem: Mapping[str, str],
        partly: bool,
    ) -> UUID:
        attempt = attempt_id(work.slice_id, uuid4())

        def counts(records: int) -> Counts:
            if partly:
                return Counts(rejected=rejected)
            return Counts(landed=records - rejected, rejected=rejected) if landed else Counts(filtered=records)

        def position(end: int) -> ReadPosition | None:
            return None if self.leader_epoch is None else ReadPosition(offset=end, leader_epoch=self.leader_epoch)

        spans = tuple(SpanReport(span=s, counts=counts(len(s)), position=position(s.range.end)) for s in work.spans)
        report = SliceReport(
            slice_id=work.slice_id,
            attempt=attempt,
            window_id=opened.plan.window_id,
            spec_version=opened.plan.spec_version,
            spans=spans,
            tables=(),
            bytes=0 if problem else 10 * len(work),
            blocked=problem.get("blocked"),
            failed=problem.get("failed"),
            cost=self.cost,
        )
        place = {t.table: t.location for t in opened.plan.targets}[DATA]
        written = [data_file(f"{place}/data/{attempt}-00000.parquet", len(work))] if files and not problem else []
        job = slice_job(self.session.landing, opened.plan, opened.ticket.commit_id)
        records = report_records(job, work, report, {DATA: written} if written else {}, at=self.clock())
        self.send(opened.ticket.partition, records)
        return attempt

    def send(self, partition: int, records: Iterable[Outgoing]) -> None:
        with self.control.writer(f"test-{uuid4()}", partition) as writer:
            writer.send(list(records))

    def complete(self, opened: Opened) -> None:
        """COMMIT_COMPLETE of a cycle, by whom ever."""
        sender = self.session.sender("commit", opened.ticket.commit_id)
        self.send(opened.ticket.partition, [sender.closed(uuid4(), self.clock(), None, Directives())])

    def kinds(self) -> list[str]:
        """The landing's log, by the kinds of its entries."""
        return [type(e).__name__ for e in self.session.read_state(()).entries]

    def snapshots(self, table: str = DATA) -> list[dict[str, str]]:
        found = self.session.tables.find(table)
        return [dict(s.summary.additional_properties) for s in found.metadata.snapshots if s.summary] if found else []

    def printed(self, text: str) -> bool:
        return any(text in line for line in self.lines)
