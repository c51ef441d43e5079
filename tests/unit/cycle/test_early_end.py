# SPDX-License-Identifier: Apache-2.0
"""A cycle that is asked to end: what its log says then, who goes on with it, and what a run makes of it."""

from __future__ import annotations

import threading

import pytest

from airflow_provider_lakecommit.core.log import EndRequested
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.early_end import EarlyEnd, end_cycle, end_job
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job, group_result
from tests.unit.cycle.run.test_loop import FakeEngine, runner

SECONDS = 30.0


def request(landing: FakeLanding, opened: Opened) -> None:
    end_cycle(landing.control, landing.session.landing, opened.ticket, "Ada wants it now")


def job_of(landing: FakeLanding, opened: Opened) -> WindowJob:
    job = group_job(landing.session.landing, landing.control, opened.groups[0], "lake")
    assert job is not None
    return job.begun()


def test_a_message_to_one_job_leaves_the_next_attempt_alone(landing: FakeLanding) -> None:
    opened = landing.open()
    first = job_of(landing, opened)
    end_job(landing.control, first, "the task was told to stop")
    (request_sent,) = [e for e in landing.session.read_state(()).entries if isinstance(e, EndRequested)]
    second = job_of(landing, opened)
    assert request_sent.job == first.job_id != second.job_id
    assert request_sent.offset >= first.made_at, "it is read by the job that is meant"
    assert second.plan.slices == first.plan.slices


def test_what_a_cycle_that_was_ended_leaves_is_planned_by_the_next_cycle_and_is_no_loss(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, lambda s: s is opened.slices[0])
    request(landing, opened)
    assert group_job(landing.session.landing, landing.control, opened.groups[0], "lake") is None
    message = group_result(landing.session.landing, landing.control, opened.groups[0])
    assert message.ended_early == "Ada wants it now"
    closed = landing.close("a", opened)
    assert (closed.rows, closed.missing, closed.left) == (10, (), 20)
    assert closed.note == "the cycle ended early (Ada wants it now); the next run continues"
    again = landing.open("b")
    assert sum(map(len, again.slices)) == 20
    landing.report(again)
    assert landing.close("b", again).rows == 20


def test_an_unclosed_cycle_holds_its_claim_no_longer_than_to_the_next_complete(landing: FakeLanding) -> None:
    opened = landing.open()
    request(landing, opened)
    assert not landing.open("b").slices, "its tasks may be about to report what they have"
    landing.close("b", landing.open("b"))
    assert sum(map(len, landing.open("c").slices)) == 30


def test_a_decision_for_a_cycle_that_is_over_changes_nothing(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened)
    landing.close("a", opened)
    request(landing, opened)
    state = landing.session.read_state(()).state.cycles[opened.ticket.commit_id]
    assert not state.ended_early
    assert [e.reason for e in landing.session.read_state(()).entries if isinstance(e, EndRequested)] == [
        "Ada wants it now"
    ]


def test_a_run_that_is_instructed_to_stop_publishes_what_its_tasks_report_within_the_grace(
    landing: FakeLanding,
) -> None:
    engine = FakeEngine(landing)
    working = runner(engine)

    def stop(job: WindowJob) -> list[SliceResult]:
        working.stop("told to stop by SIGTERM", SECONDS)
        until_requested(landing)
        return engine.do(job, most=2)

    engine.acts.append(stop)
    found = working.cycles()
    first = next(found)
    assert first.closed.rows == 20
    with pytest.raises(SparkJobError, match="LC6215"):
        next(found)
    assert engine.stopped == 0
    assert [o.closed.rows for o in runner(engine).cycles(1)] == [10]


def until_requested(landing: FakeLanding) -> None:
    waiting = threading.Event()
    for _ in range(int(SECONDS / 0.01)):
        if any(isinstance(e, EndRequested) for e in landing.session.read_state(()).entries):
            return
        waiting.wait(0.01)
    raise AssertionError("nobody asked the tasks to end")


def test_jobs_that_do_not_end_within_the_grace_are_given_up(landing: FakeLanding) -> None:
    ended = threading.Event()

    class Slow(FakeEngine):
        def stop(self) -> None:
            super().stop()
            ended.set()

    engine = Slow(landing)
    working = runner(engine)

    def hang(job: WindowJob) -> list[SliceResult]:
        engine.do(job, most=1)
        working.stop(grace=0.05)
        assert ended.wait(SECONDS)
        raise SparkJobError("LC9999", "it was told to stop")

    engine.acts.append(hang)
    with pytest.raises(SparkJobError, match="LC6214"):
        list(working.cycles())
    assert "TablePublished" not in landing.kinds()
    assert landing.printed("the next run publishes the reported slices")


def test_work_is_given_up_at_once_where_it_cannot_be_requested() -> None:
    given_up = threading.Event()

    def refuse(_: str) -> None:
        raise SparkJobError("LC9999", "the brokers are away")

    EarlyEnd(refuse, given_up.set).request("stop", SECONDS)
    assert given_up.wait(SECONDS)


def test_work_that_ended_is_not_given_up_afterwards() -> None:
    requested, given_up = threading.Event(), threading.Event()
    end = EarlyEnd(lambda _: requested.set(), given_up.set)
    end.request("stop", 0.2)
    assert requested.wait(SECONDS)
    end.close()
    assert not given_up.wait(0.5)
