# SPDX-License-Identifier: Apache-2.0
"""The write step: what of a group has still to be done, and what of it is safe. Tables are not asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.control.control_log import ControlLog, read_decided
from airflow_provider_lakecommit.control.plan_json import plan_digest
from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import Cycle, Slice, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange
from airflow_provider_lakecommit.cycle.jobs.write import JobOutcome
from airflow_provider_lakecommit.cycle.results import CycleTicket, GroupTicket, Opened
from airflow_provider_lakecommit.exceptions import ControlTopicError, SparkJobError
from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError
from tests.fakes.kafka import FakeControl
from tests.fakes.session import P0, FakeLanding
from tests.support.groups import group_job, group_result, group_write
from tests.unit.hooks.test_spark import job as some_job

DONE = (SliceResult(slice="orders[0][0, 5)", status="done", detail=""),)


def first(work: Slice) -> bool:
    return str(work) == "orders[0][0, 10)"


def ticket_of(opened: Opened) -> GroupTicket:
    (ticket,) = opened.groups
    return ticket


def job_of(landing: FakeLanding, ticket: GroupTicket) -> WindowJob | None:
    return group_job(landing.session.landing, landing.control, ticket, "lake")


def test_the_job_of_a_group_is_its_complete_share_at_first(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.catalog.away = True
    job = job_of(landing, ticket_of(opened))
    assert job is not None
    assert job.plan.slices == opened.slices
    assert job.numbers == (0, 1, 2)
    assert (job.commit_id, job.slot, job.control_partition) == (
        opened.ticket.commit_id,
        opened.ticket.slot,
        opened.ticket.partition,
    )
    assert (job.catalog, job.control_topic, job.group) == ("lake", "control", 0)


def test_a_retry_does_what_is_left_and_each_slice_keeps_its_position(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, first)
    job = job_of(landing, ticket_of(opened))
    assert job is not None
    assert job.plan.slices == opened.slices[1:]
    # Transactional ids hold the place: with another one, a zombie would not be shut out.
    assert job.numbers == (1, 2)
    landing.report(opened, lambda s: not first(s))
    assert job_of(landing, ticket_of(opened)) is None


def test_of_several_groups_each_has_its_own_slices(landing: FakeLanding) -> None:
    session = landing.connect(groups=2)
    landing.session = session
    opened = landing.open()
    jobs = [job_of(landing, ticket) for ticket in opened.groups]
    shares = [{str(s) for s in job.plan.slices} for job in jobs if job is not None]
    assert shares == [{"orders[0][0, 10)", "orders[0][10, 20)"}, {"orders[1][0, 10)"}]


def test_a_cycle_that_is_over_has_no_job(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.complete(opened)
    assert job_of(landing, ticket_of(opened)) is None


def test_a_cycle_that_was_given_up_has_no_job(landing: FakeLanding) -> None:
    given_up = landing.open("b")
    landing.open("c", release=lambda cycle: cycle.run == "b")
    assert job_of(landing, ticket_of(given_up)) is None


def test_a_slice_that_failed_is_part_of_the_next_job(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, first, failed="no memory")
    job = job_of(landing, ticket_of(opened))
    assert job is not None
    assert job.plan.slices == opened.slices


def test_of_two_plans_that_raced_the_later_one_does_what_the_earlier_did_not_claim(landing: FakeLanding) -> None:
    opened = landing.open()
    window, commit_id = opened.plan, uuid4()
    whole = replace(window.slices[0], spans=(Span(P0, OffsetRange(15, 25)),))
    cycle = Cycle(commit_id=commit_id, dag="dag", run="b", number=0, slot=1)
    sender = landing.session.sender("plan", commit_id)
    plan = replace(window, slices=(*window.slices, whole))
    later = replace(opened.ticket, commit_id=commit_id, slot=1, plan=plan_digest(plan))
    landing.send(later.partition, [sender.opened(uuid4(), landing.clock(), cycle, plan, Directives())])
    job = job_of(landing, replace(ticket_of(opened), cycle=later))
    assert job is not None
    assert [str(s) for s in job.plan.slices] == ["orders[0][20, 25)"]
    assert job.plan.slices[0].slice_id != whole.slice_id


def test_a_plan_that_is_not_in_the_log_any_more_is_an_error_that_reports_why_and_what_to_do(
    landing: FakeLanding,
) -> None:
    ticket = ticket_of(landing.open())
    partition = ticket.cycle.partition
    landing.control.cut(partition, len(landing.control.logs[partition]))
    for read in (
        lambda: job_of(landing, ticket),
        lambda: group_result(landing.session.landing, landing.control, ticket),
    ):
        with pytest.raises(ControlTopicError, match="LC6236"):
            read()


def test_what_is_reported_is_safe_and_the_rest_will_be_read_again(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, first)
    landing.catalog.away = True
    result = group_result(landing.session.landing, landing.control, ticket_of(opened))
    assert (result.done, result.saved_records) == (1, 10)
    assert result.left == opened.slices[1:]
    assert result.blocked == ()


def test_a_blocked_slice_is_named_and_is_not_read_again(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, first, blocked="5 rejected records, 0 allowed")
    result = group_result(landing.session.landing, landing.control, ticket_of(opened))
    assert result.left == opened.slices[1:]
    assert result.blocked == ("orders[0] [0, 10): 5 rejected records, 0 allowed",)
    assert (result.done, result.saved_records) == (0, 0)


@dataclass
class Engine:
    """Ends its jobs one after the other as it is given."""

    ends: list[Exception | Sequence[SliceResult]]
    ran: list[WindowJob] = field(default_factory=list)

    def run(self, job: WindowJob) -> Sequence[SliceResult]:
        self.ran.append(job)
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end


def none_left() -> WindowJob | None:
    raise AssertionError("asked what is left")


def run_group(
    job: WindowJob | None,
    run: Callable[[WindowJob], Sequence[SliceResult]],
    left: Callable[[], WindowJob | None],
    log: Callable[[str], None],
) -> tuple[WindowJob | None, JobOutcome]:
    cycle = CycleTicket(landing="orders", lane="live", commit_id=UUID(int=1), slot=0, partition=0, read_from=0)
    ticket = GroupTicket(cycle=cycle, group=0, slices=1, records=1)
    return group_write(some_job().landing, FakeControl(), ticket, log=log).run(job, run, left)


def test_a_group_without_a_job_runs_nothing() -> None:
    engine = Engine([])
    assert run_group(None, engine.run, none_left, print) == (None, ())
    assert engine.ran == []


def test_a_job_that_dies_is_no_error_and_is_not_run_again() -> None:
    died, engine = SparkJobError("LC9999", "java is gone"), Engine([])
    engine.ends = [died]
    assert run_group(some_job(), engine.run, none_left, print) == (some_job(), died)
    assert len(engine.ran) == 1


def test_after_processes_died_what_is_left_is_run_apart_a_few_times() -> None:
    died, lines = SparkJobError("LC9999", "Python worker exited unexpectedly", workers_died=True), list[str]()
    engine = Engine([died, DONE])
    left = replace(some_job(), slot=1)
    assert run_group(some_job(), engine.run, lambda: left, lines.append) == (left, DONE)
    assert [(job.slot, job.deaths) for job in engine.ran] == [(0, 0), (1, 1)]
    assert "; retrying the remaining slices, each in its own process" in lines[0]
    engine = Engine([died] * 5)
    assert run_group(some_job(), engine.run, some_job, print) == (some_job(), died)
    assert [job.deaths for job in engine.ran] == [0, 1, 2]
    engine = Engine([died])
    assert run_group(some_job(), engine.run, lambda: None, print) == (some_job(), died)


def test_other_errors_of_an_engine_are_raised() -> None:
    with pytest.raises(ValueError, match="a defect"):
        run_group(some_job(), Engine([ValueError("a defect")]).run, none_left, print)


def test_after_an_earlier_attempt_s_job_what_is_left_is_run_as_often_as_it_takes() -> None:
    rest = [replace(some_job(), slot=n) for n in (1, 2)]
    engine, lines = (
        Engine([EarlierWorkError("LC9999", "waited"), EarlierWorkError("LC9999", "waited again"), DONE]),
        list[str](),
    )
    left = iter(rest)
    assert run_group(some_job(), engine.run, lambda: next(left), lines.append) == (rest[1], DONE)
    assert engine.ran == [some_job(), *rest]
    assert lines == ["waited [LC9999]", "waited again [LC9999]"]


def test_an_earlier_attempt_may_have_left_nothing() -> None:
    engine = Engine([EarlierWorkError("LC9999", "waited")])
    assert run_group(some_job(), engine.run, lambda: None, print) == (None, ())


@dataclass
class Delayed(FakeControl):
    """A log in which transactions that were decided, or never are, hold up the readers at first."""

    stable: int = 0
    ever: bool = True
    waited_for: list[int] = field(default_factory=list)

    def read(self, partition: int, start: int | None = None, *, until: int | None = None) -> ControlLog:
        if until is not None:
            self.waited_for.append(until)
            if not self.ever:
                raise ControlTopicError("LC9999", "a transaction stays open")
            return super().read(partition, start, until=until)
        log = super().read(partition, start)
        records = tuple(r for r in log.records if r.offset < self.stable)
        return replace(log, records=records, end=self.stable)


@pytest.mark.parametrize("ever", [True, False])
def test_a_log_is_read_to_all_that_was_sent_before_or_as_far_as_it_can_be(ever: bool) -> None:
    control = Delayed(stable=2, ever=ever)
    records = [Outgoing(key=b"k", value=bytes([n]), headers=[]) for n in range(3)]
    for record in records:
        with control.writer("t", 0) as writer:
            writer.send([record])
    log = read_decided(control, 0, 0)
    assert [r.offset for r in log.records] == ([0, 2, 4] if ever else [0])
    assert log.end == (6 if ever else 2)
    assert control.waited_for == [5]


def test_a_log_that_nothing_holds_up_is_read_once() -> None:
    control = Delayed(stable=0)
    assert read_decided(control, 0, 0).records == ()
    assert control.waited_for == []


class TestTicketsThatNameNoPlan:
    """Older ones, and those of plans that were found while no table could be read."""

    @staticmethod
    def of(opened: Opened) -> GroupTicket:
        ticket = ticket_of(opened)
        return replace(ticket, cycle=replace(ticket.cycle, plan=""))

    def test_the_plan_is_kept_against_the_tables(self, landing: FakeLanding) -> None:
        session, ticket = landing.session, self.of(landing.open())
        job = group_job(session.landing, landing.control, ticket, "lake", session.tables.load)
        assert job is not None

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"location": "file:///elsewhere"}, "location"),
            ({"uuid": uuid4()}, "id"),
            ({"schema": "{}"}, "schema"),
            ({"schema_id": 7}, "schema"),
            ({"spec": "{}"}, "spec"),
            ({"sort_order": "{}"}, "sort order"),
            ({"properties": {"write.py-location-provider.impl": "a.B"}}, "file location"),
            ({"properties": {"write.data.path": "file:///elsewhere"}}, "file location"),
        ],
    )
    def test_one_that_they_contradict_is_not_followed(
        self, landing: FakeLanding, change: dict[str, object], what: str
    ) -> None:
        opened, commit_id = landing.open(), uuid4()
        plan = replace(opened.plan, targets=tuple(replace(t, **change) for t in opened.plan.targets))  # type: ignore[arg-type]
        sender = landing.session.sender("plan", commit_id)
        cycle = Cycle(commit_id=commit_id, dag="dag", run="b", number=0, slot=1)
        landing.send(opened.ticket.partition, [sender.opened(uuid4(), landing.clock(), cycle, plan, Directives())])
        ticket = self.of(replace(opened, ticket=replace(opened.ticket, commit_id=commit_id)))
        with pytest.raises(ControlTopicError, match="LC6235"):
            group_job(landing.session.landing, landing.control, ticket, "lake", landing.session.tables.load)
