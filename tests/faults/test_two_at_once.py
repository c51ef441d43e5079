# SPDX-License-Identifier: Apache-2.0
"""Two of everything that there should be one of: planners that do not see each other, copies of a task, deployments of
a landing's name, and clocks that are a century apart. Nobody's work vanishes, and nothing is there twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.cycle.plan.start import new_cycle
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.spark.job import SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from tests.support.declared import changed_landing
from tests.support.groups import group_job
from tests.support.steps import Step, check_verified, hung
from tests.support.waiting import until
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
EVERY = Counter(range(120))


@pytest.fixture
def world(make_world: Make, produce: Produce) -> World:
    made = make_world(partitions=1, dead_letter_table=None)
    produce(made.landing.topics, records(0, 120))
    return made


def job_of(world: World, opened: Opened) -> WindowJob:
    with world.session() as session:
        job = group_job(world.landing, session.control, opened.groups[0], "test")
    assert job is not None
    return job


class TestPlanners:
    def test_two_planners_that_miss_each_other_share_no_slot_and_fence_no_other(self, world: World) -> None:
        faster = replace(world, landing=changed_landing(world.landing, max_records=40))
        first: list[Opened] = []
        with hung(Step.UNREPORTED, lambda: first.append(faster.open("first", release=False))):
            second = world.open("second", release=False)
        assert (first[0].ticket.slot, second.ticket.slot) == (0, 1)
        # Each slice of the one is reported in the midst of the other's.
        between: list[str] = []
        with hung(Step.UNREPORTED, lambda: between.extend(r.status for r in faster.write(first[0]))):
            statuses = [r.status for r in world.write(second)]
        assert (between, statuses) == ([SliceStatus.DONE], [SliceStatus.DONE] * 2)
        faster.close("first", first[0])
        world.close("second", second)
        world.check(EVERY)
        check_verified(world)

    def test_a_retry_of_the_one_that_took_another_slot_takes_the_same(self, world: World) -> None:
        with hung(Step.UNREPORTED, lambda: world.open("first", release=False)):
            second = world.open("second", release=False)
        again = world.open("second", retry=True, release=False)
        assert (again.ticket.slot, again.ticket.commit_id) == (1, second.ticket.commit_id)

    @pytest.mark.heavy
    def test_landings_of_one_name_in_two_deployments_fence_no_other(
        self, world: World, make_topic: Callable[..., str]
    ) -> None:
        """They have different control topics, and so the same slot."""
        opened = world.open("a")
        other = changed_landing(world.landing, control_topic=make_topic(3), table="shop.other")
        theirs = replace(world, landing=other)
        theirs.run_identity = lambda run, attempt="1": replace(  # type: ignore[method-assign]
            world.run_identity(run, attempt), deployment="elsewhere"
        )
        with hung(Step.UNREPORTED, lambda: theirs.run("b")):
            statuses = [r.status for r in world.write(opened)]
        assert statuses == [SliceStatus.DONE] * 3
        world.close("a", opened)
        world.check(EVERY)
        theirs.check(EVERY)


class TestCopiesOfATask:
    """As Spark's speculation starts them: under the same transactional id; it ends the one when the other is done."""

    def done_during(self, world: World, meanwhile: Callable[[WindowJob], object]) -> tuple[Opened, SliceStatus]:
        """The first slice's task, with something done just before it reports."""
        opened = world.open("a")
        job = job_of(world, opened)
        with hung(Step.UNREPORTED, lambda: meanwhile(job)):
            result = run_task(job, world.secrets, 0)
        return opened, result.status

    def test_a_copy_that_takes_over_and_does_nothing_more_costs_nothing(self, world: World) -> None:
        def begin_and_die(job: WindowJob) -> None:
            with (
                ControlTopic(job.control_topic, world.kafka) as control,
                control.writer(job.transactional_id(0), job.control_partition) as writer,
            ):
                writer.open()

        opened, status = self.done_during(world, begin_and_die)
        assert status is SliceStatus.DONE
        world.write(opened)
        world.close("a", opened)
        world.check(EVERY)
        check_verified(world)

    def test_of_a_copy_that_is_faster_the_original_learns_that_it_is_done(self, world: World) -> None:
        def copy(job: WindowJob) -> None:
            assert run_task(job, world.secrets, 0).status is SliceStatus.DONE

        opened, status = self.done_during(world, copy)
        assert status is SliceStatus.REPORTED
        world.write(opened)
        world.close("a", opened)
        world.check(EVERY)
        check_verified(world)

    def test_a_task_whose_cycle_is_over_and_whose_slot_is_another_ones_reports_nothing(self, world: World) -> None:
        opened = world.open("a")
        job = job_of(world, opened)

        def another_run(_: WindowJob) -> None:
            # It takes the claims of the first one for those of a dead process.
            world.run("b")

        with hung(Step.UNREPORTED, lambda: another_run(job)):
            result = run_task(job, world.secrets, 0)
        assert result.status is SliceStatus.SUPERSEDED
        world.settle()
        world.check(EVERY)
        check_verified(world)


class TestClocks:
    @pytest.mark.heavy
    def test_a_start_from_the_year_2100_holds_its_claim_no_longer_than_any_other(
        self, make_world: Make, make_topic: Callable[..., str], produce: Produce
    ) -> None:
        any_time = {"message_timestamp_type": "CreateTime", "message_timestamp_after_max_ms": (1 << 63) - 1}
        stated = {"control_topic": make_topic(3, **any_time), "completion_timeout": timedelta(seconds=5)}
        world = make_world(partitions=1, dead_letter_table=None, **stated)
        produce(world.landing.topics, records(0, 40))
        world.run()
        produce(world.landing.topics, records(40, 80))
        self.start_in(world, datetime(2100, 1, 1, tzinfo=UTC))
        # Its time begins when another writer is seen to have come after it.
        assert world.open("first sight", release=False).slices == ()
        later: list[Opened] = []

        def granted() -> bool:
            later.append(world.open(f"later {len(later)}", release=False))
            return bool(later[-1].slices)

        until(granted, what="the end of the claim", pause=1.0)
        world.write(later[-1])
        world.close(f"later {len(later) - 1}", later[-1])
        world.check(EVERY)
        check_verified(world)

    def start_in(self, world: World, time: datetime) -> None:
        """What a planner with that clock sends, before it dies."""
        with world.session() as session:
            plan, folded = preview(session).plan, session.read_state(())
            cycle = new_cycle(session, world.run_identity("ahead"), folded.state)
            sender = session.sender("plan", cycle.commit_id)
            start = sender.opened(session.new_id(), time, cycle, plan, Directives())
        assert plan.slices
        producer = Producer({**world.kafka})
        producer.produce(
            world.landing.control_topic_name,
            start.value,
            start.key,
            folded.partition,
            timestamp=int(time.timestamp() * 1000),
            headers=list(start.headers),
        )
        assert producer.flush(30) == 0

    def test_a_control_topic_that_a_landing_makes_has_the_brokers_time(self, world: World) -> None:
        name = f"{world.landing.control_topic_name}-made"
        with ControlTopic(name, world.kafka) as control:
            control.ensure(partitions=1)
            producer = Producer({**world.kafka})
            producer.produce(name, b"value", partition=0, timestamp=1000)
            assert producer.flush(30) == 0
            (record,) = control.read(0).records
        assert abs(datetime.now(UTC) - record.timestamp) < timedelta(minutes=5)
