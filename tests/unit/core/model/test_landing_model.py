# SPDX-License-Identifier: Apache-2.0
"""The model test: any order of steps, crashes, races, zombies, rollbacks and losses of the log.

After every step each table holds every offset at most once and none behind a hole. Once nothing fails any more, one
round of plan, write and commit puts everything into every table but what is blocked, and one more after a user has
raised the budgets puts in the rest. Where budgets of what may be pending are tight it takes some rounds more, and no
state holds for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from airflow_provider_lakecommit.core.blocks import FAILURES_TO_BLOCK
from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened, Directives, SliceReported
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.admission import Terms
from airflow_provider_lakecommit.core.planning.missing import WindowLimits
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState, granted
from tests.support.effort import examples
from tests.support.story import DEAD, ORDERS
from tests.unit.core.model.actors import (
    CommitCheck,
    Job,
    PlanRead,
    append_next,
    check_for_commit,
    commit_id_of,
    fail_commit,
    finish_commit,
    read_for_hand,
    read_for_plan,
    report,
    send_plan,
)
from tests.unit.core.model.world import NEVER, TIMEOUT, Table, World

T = TypeVar("T")

ANY = st.integers(0, 50)
LIMITS = st.builds(
    WindowLimits, groups=st.integers(1, 3), slice_records=st.integers(1, 6), max_records=st.none() | st.integers(1, 12)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Choices of a commit task: announce a snapshot or crash before, leave a table without rows for later, void."""

    announce: bool
    lazy: bool
    void: bool


HOW = st.builds(How, announce=st.booleans(), lazy=st.booleans(), void=st.booleans())


class LandingMachine(RuleBasedStateMachine):
    world: World
    terms: ClassVar[Terms] = Terms(stalled_cycles=NEVER)
    rounds: ClassVar[int] = 1

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.reads: list[PlanRead] = []
        self.jobs: list[Job] = []
        self.checks: list[CommitCheck] = []
        self.over_budget = Coverage()
        self.failed: dict[int, Coverage] = {}

    @initialize(
        starts=st.lists(st.integers(0, 3), min_size=1, max_size=3),
        records=st.integers(0, 12),
        tables=st.sampled_from([(ORDERS,), (ORDERS, DEAD)]),
    )
    def begin(self, starts: list[int], records: int, tables: tuple[str, ...]) -> None:
        partitions = [SourcePartition("orders", n, "topic-1") for n in range(len(starts))]
        self.world = World.of(tables, dict(zip(partitions, starts, strict=True)))
        self.world.terms = self.terms
        for p in partitions:
            self.world.ends[p] += records

    # the source and the time

    @rule(which=ANY, records=st.integers(1, 9))
    def produce(self, which: int, records: int) -> None:
        p = self.pick(list(self.world.ends), which)
        self.world.ends[p] += records

    @rule(minutes=st.sampled_from([1, 20, 70]))
    def time_passes(self, minutes: int) -> None:
        self.world.tick(timedelta(minutes=minutes))

    # planners

    @rule(limits=LIMITS, release=st.booleans(), which=ANY, sends=st.sampled_from([True, True, False]))
    def a_planner_reads(self, limits: WindowLimits, release: bool, which: int, sends: bool) -> None:
        removed = [commit_id_of(self.pick(self.jobs, which).run)] if release and self.jobs else []
        self.reads.append(read_for_plan(self.world, self.new_run(), limits, removed))
        if sends:
            self.a_planner_sends(-1)

    @precondition(lambda self: self.jobs)
    @rule(limits=LIMITS, which=ANY)
    def a_plan_task_is_run_again(self, limits: WindowLimits, which: int) -> None:
        self.reads.append(read_for_plan(self.world, self.pick(self.jobs, which).run, limits))

    @precondition(lambda self: self.reads)
    @rule(which=ANY)
    def a_slow_planner_sends(self, which: int) -> None:
        self.a_planner_sends(which)

    def a_planner_sends(self, which: int) -> None:
        read = self.reads.pop(which % len(self.reads))
        job = self.send(read)
        if job is not None:
            cycles = self.world.landing_state((), read.read_from).cycles
            own = cycles[commit_id_of(job.run)]
            earlier = [c for c in cycles.values() if c.offset < own.offset and c.live(own.at)]
            assert not any(own.claim.overlaps(c.claim) for c in earlier)
            assert Coverage.of(item for s in job.slices for item in s.coverage.items()) == own.claim

    # writers, their replicas and zombies: any granted slice, at any time, any number of times

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, part=ANY, rejects=st.booleans(), files=st.integers(1, 2))
    def a_slice_is_written(self, which: int, part: int, rejects: bool, files: int) -> None:
        job = self.pick(self.jobs, which)
        self.a_retry_finds_the_same(job)
        if job.slices:
            made = {ORDERS: files, DEAD: int(rejects)}
            report(self.world, job, self.pick(job.slices, part), files=made)

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, bad=st.none() | st.integers(0, 2))
    def a_group_is_written(self, which: int, bad: int | None) -> None:
        job = self.pick(self.jobs, -1 - which)
        for n, s in enumerate(job.slices):
            if n == bad:
                self.over_budget = self.over_budget | s.coverage
                report(self.world, job, s, files={}, blocked="too many")
            else:
                report(self.world, job, s, files={ORDERS: 1})

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, part=ANY, times=st.integers(1, 3))
    def a_slice_fails(self, which: int, part: int, times: int) -> None:
        job = self.pick(self.jobs, which)
        for _ in range(times if job.slices else 0):
            failure = report(self.world, job, self.pick(job.slices, part), files={}, failed="boom")
            self.failed[job.run] = self.failed.get(job.run, Coverage()) | failure.coverage

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, part=ANY)
    def a_slice_is_over_budget(self, which: int, part: int) -> None:
        job = self.pick(self.jobs, which)
        if job.slices:
            block = report(self.world, job, self.pick(job.slices, part), files={}, blocked="too many")
            self.over_budget = self.over_budget | block.coverage

    # commit tasks: one looks, appends to so many tables, and then goes on, dies, or sleeps and goes on later

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, appends=st.integers(0, 2), then=st.sampled_from(["finish", "die", "sleep"]), how=HOW)
    def a_commit_task_runs(self, which: int, appends: int, then: str, how: How) -> None:
        check = check_for_commit(self.world, self.pick(self.jobs, -1 - which).run)
        self.go_on(check, appends, how)
        if then == "finish":
            self.finish(check, how)
        elif then == "sleep":
            self.checks.append(check)

    @precondition(lambda self: self.checks)
    @rule(which=ANY, appends=st.integers(0, 2), finish=st.booleans(), how=HOW)
    def a_commit_task_wakes_up(self, which: int, appends: int, finish: bool, how: How) -> None:
        check = self.pick(self.checks, which)
        self.go_on(check, appends, how)
        if finish:
            self.finish(check, how)

    @precondition(lambda self: self.jobs)
    @rule(which=ANY, limits=LIMITS, between=st.sampled_from(["commit", "rollback", "void", "cycle"]), how=HOW)
    def a_commit_task_is_overtaken(self, which: int, limits: WindowLimits, between: str, how: How) -> None:
        check = check_for_commit(self.world, self.pick(self.jobs, which).run)
        if between == "void":
            self.void([ready[0] for ready in check.ready.values() if ready])
        if between in ("void", "cycle"):
            self.complete_cycle(limits)
        else:
            self.go_on(check_for_commit(self.world, self.pick(self.jobs, -1 - which).run), 2, how)
        if between == "rollback":
            self.pick(self.tables(), which).roll_back(2)
        self.go_on(check, 2, how)

    @precondition(lambda self: any(self.fresh_view().accepted.values()))
    @rule(which=ANY)
    def a_slice_is_voided(self, which: int) -> None:
        self.void([self.pick([s for accepted in self.fresh_view().accepted.values() for s in accepted], which)])

    @rule(limits=LIMITS)
    def a_complete_cycle_runs(self, limits: WindowLimits) -> None:
        self.complete_cycle(limits)

    # what goes wrong outside, and a user

    @rule(which=ANY, what=st.sampled_from(["away", "back", "back", "rolled back", "log cut"]), much=st.integers(1, 20))
    def something_breaks_or_is_fixed(self, which: int, what: str, much: int) -> None:
        table = self.pick(self.tables(), which)
        if what == "rolled back":
            table.roll_back(much)
        elif what == "log cut":
            self.world.log.cut(self.world.log.end - much)
        else:
            table.away = what == "away"

    @precondition(lambda self: self.fresh_view().blocked)
    @rule(skip=st.booleans())
    def a_user_unblocks(self, skip: bool) -> None:
        self.unblock(self.fresh_view(), skip=skip)

    @rule()
    def for_a_while_nothing_fails(self) -> None:
        """One cycle, where all is admitted, is enough for every partition in which nothing is blocked."""
        for t in self.tables():
            t.away = False
        self.world.tick(TIMEOUT)
        self.cycles_until_done()
        blocked = self.fresh_view().blocked_coverage
        for t in self.tables():
            assert all(t.section.covered[p] == s for p, s in self.world.target.parts.items() if not blocked[p])

    # what must always hold

    @invariant()
    def every_offset_is_in_a_table_at_most_once_and_none_behind_a_hole(self) -> None:
        for t in self.tables():
            added = [s.coverage for snapshot in t.history for s in snapshot.added]
            assert sum(map(len, added)) == len(t.section.covered)
            assert Coverage.of(item for c in added for item in c.items()) == t.section.covered
            for p, s in t.section.covered.parts.items():
                assert s.ranges == (OffsetRange(self.world.starts[p], t.section.end(p)),)

    @invariant()
    def what_was_rolled_back_is_never_published_again(self) -> None:
        for t in self.tables():
            assert not {s.report.attempt for snapshot in t.history for s in snapshot.added} & t.voided

    @invariant()
    def what_is_accepted_is_disjoint(self) -> None:
        landing_state = self.fresh_view()
        for t in self.tables():
            accepted = landing_state.accepted[t.name]
            assert sum(len(a.coverage) for a in accepted) == len(landing_state.accepted_coverage(t.name))
            assert not landing_state.accepted_coverage(t.name).overlaps(t.section.covered)

    @invariant()
    def nothing_is_blocked_by_accident(self) -> None:
        layers = [Coverage() for _ in range(FAILURES_TO_BLOCK)]
        for c in self.failed.values():
            for k in range(FAILURES_TO_BLOCK - 1, 0, -1):
                layers[k] = layers[k] | (layers[k - 1] & c)
            layers[0] = layers[0] | c
        blocked = self.fresh_view().blocked_coverage
        assert not blocked - self.over_budget - layers[-1]
        for t in self.tables():
            blocked = blocked & t.section.covered
        assert not blocked

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.for_a_while_nothing_fails()
        self.unblock(self.world.landing_state(self.world.read_ledgers(repair=True)), skip=False)
        closed = self.cycles_until_done()
        for t in self.tables():
            assert t.section.covered == self.world.target
        assert closed is not None
        assert closed.valid_through == self.jobs[-1].plan.requested_at
        landing_state = self.fresh_view()
        assert (landing_state.blocked, landing_state.open_cycles()) == ((), [])
        assert not any(landing_state.accepted.values())

    # helpers

    def go_on(self, check: CommitCheck, appends: int, how: How) -> None:
        for _ in check.left[:appends]:
            append_next(self.world, check, announce=how.announce, lazy=how.lazy)

    def finish(self, check: CommitCheck, how: How) -> None:
        voided = [s.report.attempt for ready in check.ready.values() for s in ready[:1]] if how.void else []
        self.valid_through_is_true(finish_commit(self.world, check, voided))

    def void(self, slices: Sequence[AcceptedSlice]) -> None:
        for s in slices:
            fail_commit(self.world, s.commit_id, [s.report.attempt])

    @staticmethod
    def pick(items: Sequence[T], which: int) -> T:
        return items[which % len(items)]

    def new_run(self) -> int:
        self.runs += 1
        return self.runs

    def tables(self) -> list[Table]:
        return list(self.world.tables.values())

    def fresh_view(self) -> LandingState:
        return self.world.landing_state([t.ledger for t in self.tables()])

    def send(self, read: PlanRead) -> Job | None:
        job = send_plan(self.world, read)
        if job is not None:
            self.jobs.append(job)
        return job

    def cycles_until_done(self) -> CycleClosed | None:
        for _ in range(self.rounds):
            closed = self.complete_cycle(WindowLimits(groups=2, slice_records=3))
            left = self.world.target - self.fresh_view().blocked_coverage
            if closed is not None and all(not left - t.section.covered for t in self.tables()):
                break
        return closed

    def complete_cycle(self, limits: WindowLimits) -> CycleClosed | None:
        """A run in which nothing fails; what it can land depends on what failed before."""
        run = self.new_run()
        job = self.send(read_for_plan(self.world, run, limits))
        for s in job.slices if job else ():
            report(self.world, job, s, files={ORDERS: 1})
        check = check_for_commit(self.world, run)
        while check.left:
            append_next(self.world, check, announce=True, lazy=False)
        return finish_commit(self.world, check)

    def unblock(self, landing_state: LandingState, *, skip: bool) -> None:
        what = landing_state.blocked_coverage
        if skip:
            job = self.send(read_for_hand(self.world, self.new_run(), what, Directives()))
            for s in job.slices if job else ():
                report(self.world, job, s, files={})
        else:
            raised = (what, Budget(max_records=1000, max_ratio=1.0))
            self.send(read_for_hand(self.world, self.new_run(), Coverage(), Directives(raised=(raised,))))

    def a_retry_finds_the_same(self, job: Job) -> None:
        """As long as the log holds what decided the claim."""
        if self.world.log.begin <= job.since:
            state = self.world.landing_state((), job.read_from).cycles[commit_id_of(job.run)]
            assert granted(state.plan, state.claim) == job.slices

    def valid_through_is_true(self, closed: CycleClosed | None) -> None:
        if closed is None or closed.valid_through is None:
            return
        opened = [e for e in self.world.log.entries if isinstance(e, CycleOpened)]
        requested = [e.plan.ends for e in opened if e.plan.requested_at == closed.valid_through and e.plan.ends]
        assert any(all(self.passed(t, ends) for t in self.tables()) for ends in requested)

    def passed(self, table: Table, ends: Mapping[SourcePartition, int]) -> bool:
        """Is everything up to these ends in the table, or known to have no row for it?"""
        have = table.section.covered
        for e in self.world.log.entries:
            of = e.report.table(table.name) if isinstance(e, SliceReported) else None
            if of is not None and of.epoch == table.section.epoch and not of.files:
                have = have | e.report.coverage
        return all(have[p].covers(OffsetRange(self.world.starts[p], end)) for p, end in ends.items())


class TestLanding(LandingMachine.TestCase):  # type: ignore[misc, name-defined]
    settings: ClassVar[settings] = settings(
        max_examples=examples(150),
        stateful_step_count=50,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


class TightMachine(LandingMachine):
    """Little may be pending, and commits that fail stop the planning."""

    terms = Terms(budget=PendingBudget(open_cycles=2, slices=4, files=8), stalled_cycles=2, slow_down=True)
    rounds = 100

    @rule(slices=st.integers(1, 4), files=st.integers(1, 8))
    def a_user_changes_the_budgets(self, slices: int, files: int) -> None:
        budget = PendingBudget(open_cycles=2, slices=slices, files=files)
        self.world.terms = replace(self.world.terms, budget=budget)


@pytest.mark.heavy
class TestTightLanding(TightMachine.TestCase):  # type: ignore[misc, name-defined]
    settings: ClassVar[settings] = settings(TestLanding.settings, max_examples=examples(50))
