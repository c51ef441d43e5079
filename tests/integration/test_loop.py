# SPDX-License-Identifier: Apache-2.0
"""Cycle after cycle on engines that know nothing, die, wait for earlier work, or do not start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import CycleClosed, CycleOpened
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.cycle.plan.resume import cycles_of
from airflow_provider_lakecommit.cycle.run import pauses
from airflow_provider_lakecommit.cycle.run.loop import LandingRunner
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.exceptions import LakecommitError, SparkJobError, SpecError
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError
from airflow_provider_lakecommit.spark.task import run_task
from tests.fixtures.kafka import unique
from tests.support.declared import landing_of
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration

Act = Callable[[WindowJob, Secrets], list[SliceResult]]


def do(job: WindowJob, secrets: Secrets, most: int | None = None) -> list[SliceResult]:
    """The tasks of a job, one after the other."""
    return [run_task(job, secrets, i) for i in range(len(job.plan.slices))[:most]]


@dataclass(kw_only=True)
class Workers:
    """An engine in this process. Each job takes the next of its ``acts``; without one it is done and told."""

    acts: list[Act] = field(default_factory=list)
    start_error: Exception | None = None
    starts: int = 0
    jobs: list[WindowJob] = field(default_factory=list)
    ahead: int = 0

    def start(self) -> None:
        self.starts += 1
        if self.start_error is not None:
            raise self.start_error

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self.jobs.append(job)
        return (self.acts.pop(0) if self.acts else do)(job, secrets)

    def stop(self) -> None:
        """Its jobs end by themselves."""

    def close(self) -> None:
        """It holds nothing."""


@pytest.fixture
def world(bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any], tmp_path: Path) -> World:
    """Nine records, in slices of three."""
    topic, table = make_topic(1), unique("loop")
    landing = landing_of(
        name=table,
        topics=topic,
        table=f"shop.{table}",
        create=SCHEMA,
        slice_records=3,
        control_topic=f"{topic}-control",
    )
    produce(topic, records(0, 9), 0)
    return World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))


ALL = Counter(range(9))


def run(world: World, engine: Workers, name: str = "a", first: int = 0, **options: Any) -> Iterator[CycleOutcome]:
    with world.session() as session:
        run_identity = world.run_identity(name)
        yield from LandingRunner(session, engine, lambda n: replace(run_identity, number=n), **options).cycles(first)


def log_of(world: World) -> list[str]:
    with world.session() as session:
        found = (read_entry(r, world.landing.name, LIVE) for r in session.control.read_all())
        return [type(e).__name__ for e in found if isinstance(e, CycleOpened | CycleClosed)]


def printed(world: World, text: str) -> bool:
    return any(text in line for line in world.lines)


def test_what_an_engine_cannot_report_is_requested_of_the_log(world: World) -> None:
    def in_silence(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        do(job, secrets)
        return []

    [only] = run(world, Workers(acts=[in_silence]))
    assert only.written.slices == {"done": 3}
    assert only.caught_up
    world.check(ALL)


def test_a_job_that_dies_costs_what_it_had_in_hand_and_the_next_cycle_reads_that(world: World) -> None:
    def die(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        do(job, secrets, most=1)
        raise SparkJobError("LC9999", "java is gone")

    engine = Workers(acts=[die])
    first, second = run(world, engine)
    assert first.written.slices == {"done": 1}
    assert first.written.died == ("java is gone [LC9999]",)
    assert len(first.closed.missing) == 2
    assert second.caught_up
    assert [len(job.plan.slices) for job in engine.jobs] == [3, 2]
    assert printed(
        world, "1 slices (3 records) are reported and will not be read again; 6 offsets will be read again: "
    )
    world.check(ALL)


@pytest.mark.heavy
def test_a_control_log_that_forgets_each_plan_ends_the_run_by_name_and_never_in_success(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where its retention is shorter than a cycle."""
    monkeypatch.setattr(pauses, "PAUSES", (0.0,))
    admin = AdminClient(world.kafka)

    def do_and_forget(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        done = do(job, secrets)
        with world.session() as session:
            places = [TopicPartition(session.control.name, p, -1) for p in range(session.control.describe().partitions)]
        for answer in admin.delete_records(places).values():
            answer.result(30)
        return done

    with pytest.raises(
        SparkJobError, match=r"no longer holds the plan .*, its retention may be shorter than a cycle.*LC6217"
    ):
        list(run(world, Workers(acts=[do_and_forget] * 9)))
    world.check(Counter())
    *_, last = run(world, Workers(), name="b")
    assert last.caught_up
    world.check(ALL)


@pytest.mark.heavy
def test_after_earlier_work_was_waited_for_the_rest_is_done_in_the_same_cycle(world: World) -> None:
    def wait(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        do(job, secrets, most=2)
        raise EarlierWorkError("LC9999", "it has ended")

    engine = Workers(acts=[wait])
    [only] = run(world, engine)
    assert only.caught_up
    assert [job.numbers for job in engine.jobs] == [(0, 1, 2), (2,)]
    world.check(ALL)


def test_earlier_work_that_did_all_leaves_no_job(world: World) -> None:
    def wait(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        do(job, secrets)
        raise EarlierWorkError("LC9999", "it has ended")

    engine = Workers(acts=[wait])
    [only] = run(world, engine)
    assert only.caught_up
    assert len(engine.jobs) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize(
    "error", [SparkJobError("LC9999", "no java"), SpecError("LC9999", "no such server")], ids=["again", "for good"]
)
def test_an_engine_that_cannot_be_had_ends_the_run_with_its_cycle_closed(
    world: World, error: LakecommitError, early: bool
) -> None:
    with pytest.raises(type(error), match=error.message):
        list(run(world, Workers(start_error=error), early=early))
    assert log_of(world) == ["CycleOpened", "CycleClosed"]
    assert len(list(run(world, Workers(), name="b"))) == 1
    world.check(ALL)


def test_an_engine_that_costs_something_starts_only_for_work(world: World) -> None:
    list(run(world, Workers()))
    late, early = Workers(), Workers()
    [idle] = run(world, late, name="b")
    assert idle.final
    assert late.starts == 0
    list(run(world, early, name="c", early=True))
    assert early.starts == 1


@pytest.mark.heavy
def test_cycles_that_move_nothing_end_the_run_with_the_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        raise SparkJobError("LC9999", "java is gone")

    monkeypatch.setattr(pauses, "PAUSES", (0.0,))
    with pytest.raises(
        SparkJobError, match=r"4 cycles in a row made no progress; of the last one java is gone.*LC6217"
    ):
        list(run(world, Workers(acts=[die] * 4)))


def test_a_run_that_is_instructed_to_stop_leaves_its_cycle_to_the_next_attempt(world: World) -> None:
    landers: list[LandingRunner] = []

    def stop(job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        do(job, secrets, most=1)
        landers[0].stop()
        raise SparkJobError("LC9999", "it was told to stop")

    with world.session() as session:
        run_identity = world.run_identity("a")
        landers.append(LandingRunner(session, Workers(acts=[stop]), lambda n: replace(run_identity, number=n)))
        with pytest.raises(SparkJobError, match=r"landing .* was stopped.*LC6214"):
            list(landers[0].cycles())
        earlier = cycles_of(session, run_identity)
    assert printed(world, "the next run publishes the reported slices")
    assert log_of(world) == ["CycleOpened"]
    assert earlier is not None
    assert earlier.number == 0
    assert not earlier.finished(None)
    [only] = run(world, Workers(), first=earlier.number)
    assert only.written.slices == {"reported": 1, "done": 2}
    assert only.caught_up
    world.check(ALL)
