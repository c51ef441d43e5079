# SPDX-License-Identifier: Apache-2.0
"""A control log told in a few words, for tests of the core: who planned what, who reported what, what was closed.

``story.opens("a", [(P0, 0, 10)])`` is a run ``a`` whose plan has one slice of ten offsets. Offsets of the log count
from 0, an entry a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from hypothesis import settings

from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.identity import cycle_id, slice_id, window_id
from airflow_provider_lakecommit.core.log import (
    AttemptsVoided,
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    Entry,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.core.model import (
    LIVE,
    Budget,
    ControlPosition,
    Counts,
    Cycle,
    LedgerSection,
    Plan,
    Slice,
    SliceReport,
    Span,
    SpanReport,
    TableReport,
    TableTarget,
)
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.state import LandingState, TableLedger

ORDERS, DEAD = "shop.orders", "shop.orders_dead"
P0, P1, P2 = (SourcePartition("orders", n, "topic-1") for n in range(3))
EPOCH, VOID_EPOCH = UUID(int=1), UUID(int=2)
ANY_WINDOW = UUID(int=7)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIMEOUT = timedelta(hours=1)
STEADY = settings(derandomize=True, deadline=None)
CONTROL = ControlPosition(cluster_id="c", topic="control", topic_id="k", partition=0, read_from=0, low=None)

Ranges = Sequence[tuple[SourcePartition, int, int]]


def spans(ranges: Ranges) -> tuple[Span, ...]:
    return tuple(sorted(Span(p, OffsetRange(a, b)) for p, a, b in ranges))


def coverage(ranges: Ranges) -> Coverage:
    return Coverage.of((p, OffsetRange(a, b)) for p, a, b in ranges)


def table_uuid(table: str) -> UUID:
    return UUID(int=100 + len(table))


def ledger(
    table: str = ORDERS,
    covered: Ranges = (),
    *,
    epoch: UUID = EPOCH,
    starts: Mapping[SourcePartition, int] | None = None,
    others: Ranges = (),
) -> TableLedger:
    """What a table has; every partition starts at 0 unless stated otherwise."""
    section = LedgerSection(
        landing="orders",
        lane=LIVE,
        cluster_id="c",
        epoch=epoch,
        spec_version="s1",
        starts=starts or {P0: 0, P1: 0, P2: 0},
        covered=coverage(covered),
        control=CONTROL,
    )
    return TableLedger(table=table, uuid=table_uuid(table), section=section, others=coverage(others))


def target(table: str) -> TableTarget:
    return TableTarget(
        table=table,
        uuid=table_uuid(table),
        location=f"file:///{table}",
        schema="{}",
        schema_id=0,
        spec="{}",
        spec_id=0,
        properties={},
        format_version=2,
        epoch=EPOCH,
    )


def plan(
    slices: Iterable[Ranges],
    *,
    tables: Sequence[str] = (ORDERS,),
    ends: Mapping[SourcePartition, int] | None = None,
    requested_at: datetime = NOON,
    budget: Budget | None = None,
    **more: Any,
) -> Plan:
    """A plan of these slices, one group for all; ``more`` are fields of the plan."""
    cut = [spans(s) for s in slices]
    window = window_id("orders", LIVE, "s1", dict.fromkeys(tables, EPOCH), [s for c in cut for s in c])
    return Plan(
        landing="orders",
        lane=LIVE,
        spec_version="s1",
        window_id=window,
        slices=tuple(
            Slice(slice_id=slice_id(window, c, tables), group=0, spans=c, tables=tuple(tables), budget=budget)
            for c in cut
        ),
        targets=tuple(map(target, tables)),
        ends=ends or {},
        requested_at=requested_at,
        **more,
    )


def report_of(
    of: Slice,
    *,
    attempt: UUID,
    window: UUID = ANY_WINDOW,
    epoch: UUID = EPOCH,
    files: Mapping[str, int] | None = None,
    blocked: str | None = None,
    failed: str | None = None,
    rules: str = "",
    rejects: Mapping[str, int] | None = None,
    reject_reason: str = "",
) -> SliceReport:
    """A report as a writer makes it: everything landed, one file per table unless ``files`` says otherwise."""
    whole = blocked is None and failed is None
    many = dict.fromkeys(of.tables, 1) if files is None else files
    return SliceReport(
        slice_id=of.slice_id,
        attempt=attempt,
        window_id=window,
        spec_version="s1",
        spans=tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in of.spans),
        tables=tuple(
            TableReport(
                table=t,
                uuid=table_uuid(t),
                epoch=epoch,
                schema_id=0,
                spec_id=0,
                events=1 if many.get(t) else 0,
                files=many.get(t, 0),
                rows=len(of) if many.get(t) else 0,
            )
            for t in (of.tables if whole else ())
        ),
        blocked=blocked,
        failed=failed,
        rules=rules,
        rejects=rejects or {},
        reject_reason=reject_reason,
    )


class Story:
    """A control log in the making. Names of runs replace their commit ids, names of attempts for theirs."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.plans: dict[str, Plan] = {}
        self._attempts = count(1)
        self._late = timedelta(0)
        self.reported_at: datetime | None = None
        """What a sender's wrong clock says of the entries that follow, while it is set."""

    @property
    def offset(self) -> int:
        return len(self.entries)

    @property
    def now(self) -> datetime:
        return NOON + timedelta(seconds=self.offset) + self._late

    def passes(self, time: timedelta) -> None:
        self._late += time

    def id(self, run: str) -> UUID:
        return cycle_id("d", "orders", LIVE, "dag", run, 0)

    def opens(
        self,
        run: str,
        slices: Iterable[Ranges] = (),
        *,
        log: Directives | None = None,
        slot: int = 0,
        **of_plan: object,
    ) -> None:
        self.plans[run] = plan(slices, **of_plan)  # type: ignore[arg-type]
        cycle = Cycle(commit_id=self.id(run), dag="dag", run=run, number=0, slot=slot)
        self._log(CycleOpened, run, cycle=cycle, plan=self.plans[run], directives=log or Directives())

    def reports(self, run: str, ranges: Ranges, *, drop_files: bool = False, **of_report: object) -> UUID:
        """A report on a slice of the run's plan, or on one that was cut smaller; returns its attempt."""
        attempt = UUID(int=(1 << 64) + next(self._attempts))
        window = self.plans[run].window_id
        report = report_of(self.slice(run, ranges), attempt=attempt, window=window, **of_report)  # type: ignore[arg-type]
        for t in report.tables:
            for n in range(0 if drop_files else t.events):
                self._log(SliceFiles, run, attempt=attempt, table=t.table, value=f"{t.table} {n}".encode())
        self._log(SliceReported, run, report=report)
        return attempt

    def slice(self, run: str, ranges: Ranges) -> Slice:
        covered, of = spans(ranges), self.plans[run]
        found = next((s for s in of.slices if s.spans == covered), None)
        if found is not None:
            return found
        like = of.slices[0]
        return replace(like, spans=covered, slice_id=slice_id(of.window_id, covered, like.tables))

    def fails_to_commit(
        self, run: str, attempt: str = "1", log: Directives | None = None, tables: Sequence[str] = ()
    ) -> None:
        values = {"tables": tuple(tables), "directives": log or Directives()}
        self._log(CommitFailed, run, reason="catalog away", task_attempt=attempt, **values)

    def publishes(self, run: str, table: str = ORDERS, *, token: int = 1, log: Directives | None = None) -> None:
        self._log(
            TablePublished,
            run,
            table=table,
            snapshot_id=1,
            token=UUID(int=token),
            coverage=Coverage(),
            directives=log or Directives(),
        )

    def voids(self, *attempts: UUID) -> None:
        """A sweep's word on attempts whose files it removes."""
        self._log(AttemptsVoided, "sweep", attempts=attempts)

    def closes(self, run: str, log: Directives | None = None) -> None:
        self._log(CycleClosed, run, valid_through=None, directives=log or Directives())

    def landing_state(self, *ledgers: TableLedger, since: int = 0) -> LandingState:
        return fold([e for e in self.entries if e.offset >= since], ledgers or (ledger(),), TIMEOUT)

    def _log(self, kind: type[Entry], run: str, **values: object) -> None:
        self.entries.append(kind(offset=self.offset, at=self.reported_at or self.now, commit_id=self.id(run), **values))  # type: ignore[arg-type]
