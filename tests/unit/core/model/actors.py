# SPDX-License-Identifier: Apache-2.0
"""What planners, writers and commit tasks do to a world, cut where each may pause, die or be overtaken.

A planner reads, then sends. A commit task looks, then appends table by table, then finishes. What was read is kept in a
value between the steps, so that a test can run any other step in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core.blocks import without
from airflow_provider_lakecommit.core.identity import cycle_id, slice_id, window_id
from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    Directives,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.core.model import (
    LIVE,
    Counts,
    Cycle,
    Plan,
    Slice,
    SliceReport,
    SpanReport,
    TableReport,
)
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.planning.decide import PlanInputs, decide_plan
from airflow_provider_lakecommit.core.planning.missing import WindowLimits, find_missing
from airflow_provider_lakecommit.core.planning.voiding import voidable_slices
from airflow_provider_lakecommit.core.settle import passed_ends, settle, valid_through
from airflow_provider_lakecommit.core.state import AcceptedSlice, granted
from tests.support.story import spans
from tests.unit.core.model.world import LANDING, SPEC, World


def commit_id_of(run: int) -> UUID:
    return cycle_id("d", LANDING, LIVE, "dag", str(run), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRead:
    """A planner between its look and its START."""

    run: int
    plan: Plan | None
    read_from: int
    directives: Directives = field(default_factory=Directives)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a run was granted, for its writers and all their replicas and zombies."""

    run: int
    plan: Plan
    read_from: int
    since: int
    slices: tuple[Slice, ...]


def read_for_plan(world: World, run: int, limits: WindowLimits, release: Sequence[UUID] = ()) -> PlanRead:
    """Look, and decide. A table that is away makes an empty plan; a run that has its cycle makes none."""
    if any(t.away for t in world.tables.values()):
        return PlanRead(
            run=run, plan=_plan(world, (), window_id(LANDING, LIVE, SPEC, {}, ()), requested=False), read_from=0
        )
    ledgers = world.read_ledgers(repair=True)
    read_from = min(t.section.control.read_from for t in ledgers)
    landing_state = world.landing_state(ledgers)
    if commit_id_of(run) in landing_state.cycles:
        return PlanRead(run=run, plan=None, read_from=read_from)
    voided = tuple(voidable_slices(landing_state, world.watermarks))
    landing_state = without(landing_state, voided)
    missing = find_missing(landing_state, world.watermarks, landing_state.claims(world.now, release))
    given = PlanInputs(
        landing=LANDING,
        lane=LIVE,
        spec_version=SPEC,
        source=world.watermarks,
        requested_at=world.now,
        now=world.now,
        targets=tuple(t.target() for t in world.tables.values()),
        limits=limits,
        terms=world.terms,
        released=release,
    )
    plan, _ = decide_plan(landing_state, missing, given)
    directives = Directives(released=tuple(release), voided=voided)
    return PlanRead(run=run, plan=plan, read_from=read_from, directives=directives)


def read_for_hand(world: World, run: int, coverage: Coverage, directives: Directives) -> PlanRead:
    """``reset blocked``: a cycle of its own. Its plan is the range to skip, or empty when a budget is raised."""
    window = window_id(LANDING, LIVE, SPEC, {t.name: t.section.epoch for t in world.tables.values()}, ())
    cut_one = [spans([(p, r.start, r.end)]) for p, r in coverage.items()]
    names = tuple(world.tables)
    slices = tuple(Slice(slice_id=slice_id(window, c, names), group=0, spans=c, tables=names) for c in cut_one)
    read_from = min(t.section.control.read_from for t in world.tables.values())
    return PlanRead(run=run, plan=_plan(world, slices, window), read_from=read_from, directives=directives)


def _plan(world: World, slices: tuple[Slice, ...], window: UUID, *, requested: bool = True) -> Plan:
    return Plan(
        landing=LANDING,
        lane=LIVE,
        spec_version=SPEC,
        window_id=window,
        slices=slices,
        targets=tuple(t.target() for t in world.tables.values()) if slices else (),
        ends=dict(world.ends) if requested else {},
        requested_at=world.now,
    )


def send_plan(world: World, read: PlanRead) -> Job | None:
    """START, unless the run has one; then read back what the log grants, without any ledger, as writers do."""
    commit_id = commit_id_of(read.run)
    if read.plan is not None:
        cycle = Cycle(commit_id=commit_id, dag="dag", run=str(read.run), number=0, slot=0)
        world.log.append(CycleOpened, world.tick(), commit_id, cycle=cycle, plan=read.plan, directives=read.directives)
    state = world.landing_state((), read.read_from).cycles.get(commit_id)
    if state is None or state.complete:
        return None
    return Job(
        run=read.run,
        plan=state.plan,
        read_from=read.read_from,
        since=state.since,
        slices=granted(state.plan, state.claim),
    )


def report(
    world: World,
    job: Job,
    of: Slice,
    *,
    files: Mapping[str, int],
    blocked: str | None = None,
    failed: str | None = None,
) -> SliceReport:
    """One attempt's files and its report, in one transaction."""
    whole, commit_id = blocked is None and failed is None, commit_id_of(job.run)
    targets = {t.table: t for t in job.plan.targets}
    slice_report = SliceReport(
        slice_id=of.slice_id,
        attempt=next(world.attempts),
        window_id=job.plan.window_id,
        spec_version=SPEC,
        spans=tuple(SpanReport(span=s, counts=Counts(landed=len(s))) for s in of.spans),
        tables=tuple(
            TableReport(
                table=t,
                uuid=targets[t].uuid,
                epoch=targets[t].epoch,
                schema_id=0,
                spec_id=0,
                events=files.get(t, 0),
                files=files.get(t, 0),
                rows=len(of) if files.get(t) else 0,
            )
            for t in (of.tables if whole else ())
        ),
        blocked=blocked,
        failed=failed,
    )
    at = world.tick()
    for table in slice_report.tables:
        for _ in range(table.events):
            world.log.append(SliceFiles, at, commit_id, attempt=slice_report.attempt, table=table.table, value=b"")
    world.log.append(SliceReported, at, commit_id, report=slice_report)
    return slice_report


@dataclass(slots=True, kw_only=True)
class CommitCheck:
    """A commit task between its look and its appends: it settles from what it saw, however old that is by then."""

    run: int
    ready: dict[str, tuple[AcceptedSlice, ...]]
    low: dict[str, int | None]
    end: int
    failed: set[str]
    left: list[str]


def check_for_commit(world: World, run: int) -> CommitCheck:
    ledgers = world.read_ledgers(repair=False)
    landing_state = world.landing_state(ledgers)
    ready = {t.table: settle(landing_state.accepted[t.table], t.section).ready for t in ledgers}
    settled = {t: {(t, s.report.attempt) for s in slices} for t, slices in ready.items()}
    return CommitCheck(
        run=run,
        ready=ready,
        low={t: landing_state.low(without=commit_id_of(run), landed=landed) for t, landed in settled.items()},
        end=own.since if (own := landing_state.cycles.get(commit_id_of(run))) else world.log.end,
        failed={t.name for t in world.tables.values() if t.away},
        left=[t.table for t in ledgers],
    )


def append_next(world: World, check: CommitCheck, *, announce: bool, lazy: bool) -> None:
    """The next table's snapshot, then its COMMIT_TO_TABLE; ``lazy`` leaves a table without rows for later."""
    table = world.tables[check.left.pop(0)]
    if table.away:
        check.failed.add(table.name)
        return
    if table.rolled_back:
        table.renew_epoch(world.log.end)
    ready = check.ready[table.name]
    if not ready or (lazy and not any(s.file_count(table.name) for s in ready)):
        return
    low = check.low[table.name]
    added = table.append(ready, check.end if low is None else min(low, check.end), low)
    if announce and added:
        world.log.append(
            TablePublished,
            world.tick(),
            commit_id_of(check.run),
            table=table.name,
            snapshot_id=len(table.history),
            token=UUID(int=len(table.history)),
            coverage=Coverage.of(item for s in added for item in s.coverage.items()),
            directives=Directives(),
        )


def finish_commit(world: World, check: CommitCheck, voided: Sequence[UUID] = ()) -> CycleClosed | None:
    """COMPLETE with its valid-through when no table failed, else the evidence that one did."""
    if check.failed or check.left or any(t.away for t in world.tables.values()):
        fail_commit(world, commit_id_of(check.run), voided, tables=sorted(check.failed))
        return None
    ledgers = world.read_ledgers(repair=False)
    landing_state = world.landing_state(ledgers)
    reached = [passed_ends(t, landing_state.accepted[t.table], world.ends) for t in ledgers]
    through = valid_through(landing_state.cycles.values(), {p: min(r[p] for r in reached) for p in world.ends})
    directives = Directives(voided=tuple(voided))
    world.log.append(CycleClosed, world.tick(), commit_id_of(check.run), valid_through=through, directives=directives)
    last = world.log.entries[-1]
    return last if isinstance(last, CycleClosed) else None


def fail_commit(world: World, commit_id: UUID, voided: Sequence[UUID] = (), tables: Sequence[str] = ()) -> None:
    """The evidence of a failed attempt, which may also void slices whose files are missing."""
    at, directives = world.tick(), {"directives": Directives(voided=tuple(voided)), "tables": tuple(tables)}
    world.log.append(CommitFailed, at, commit_id, reason="catalog away", task_attempt=str(at), **directives)
