# SPDX-License-Identifier: Apache-2.0
"""Replicas of a job next to each other: what becomes of the job, whatever becomes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.launch import replicas
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError
from airflow_provider_lakecommit.spark.launch.replicas import best_of, run_replicas
from tests.fakes.session import FakeLanding
from tests.support.declared import changed_landing
from tests.support.groups import group_job

Act = Callable[[WindowJob], Sequence[SliceResult]]
S = SliceStatus


@pytest.fixture
def job(tmp_path: Path) -> WindowJob:
    landing = FakeLanding(tmp_path)
    found = group_job(landing.session.landing, landing.control, landing.open().groups[0], "lake")
    landing.session.close()
    landing.catalog.close()
    assert found is not None
    assert len(found.plan.slices) > 1
    return replace(found, replicas=2)


@pytest.fixture
def hangs() -> Iterator[Act]:
    """A replica that does not end before the test does."""
    over = threading.Event()

    def hang(_: WindowJob) -> Sequence[SliceResult]:
        over.wait(60)
        return []

    yield hang
    over.set()


def ends(*statuses: SliceStatus) -> Act:
    """All slices so, or one after the other."""
    return lambda job: [
        SliceResult(slice=str(s), status=statuses[n % len(statuses)], detail="", rows=7)
        for n, s in enumerate(job.plan.slices)
    ]


def dies(error: Exception) -> Act:
    def act(_: WindowJob) -> Sequence[SliceResult]:
        raise error

    return act


def run(job: WindowJob, *acts: Act) -> tuple[list[SliceStatus], list[str]]:
    lines: list[str] = []
    results = run_replicas(job, lambda each: acts[each.replica](each), lines.append)
    return [r.status for r in results], lines


def test_one_alone_is_run_as_it_is(job: WindowJob) -> None:
    alone, threads = replace(job, replicas=1), set[int]()

    def act(given: WindowJob) -> Sequence[SliceResult]:
        threads.add(threading.get_ident())
        assert given is alone
        return []

    assert run_replicas(alone, act, pytest.fail) == []
    assert threads == {threading.get_ident()}


@pytest.mark.heavy(but=("first0*", "first1*", "first5*"))
@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        ((S.DONE,), (S.REPORTED,), S.DONE),
        ((S.REPORTED,), (S.DONE,), S.DONE),
        ((S.AGAIN,), (S.REPORTED,), S.REPORTED),
        ((S.FAILED,), (S.DONE,), S.DONE),
        ((S.BLOCKED,), (S.AGAIN,), S.BLOCKED),
        ((S.AGAIN,), (S.AGAIN,), S.AGAIN),
        ((S.DONE, S.AGAIN), (S.AGAIN, S.DONE), S.DONE),
    ],
)
def test_each_slice_is_as_the_replica_reports_that_came_furthest(
    job: WindowJob, first: Sequence[SliceStatus], second: Sequence[SliceStatus], together: SliceStatus
) -> None:
    statuses, lines = run(job, ends(*first), ends(*second))
    assert (statuses, lines) == ([together] * len(job.plan.slices), [])


def test_what_two_have_done_counts_once(job: WindowJob) -> None:
    results = best_of([*ends(S.DONE)(job), *ends(S.DONE)(job)])
    assert sum(r.rows for r in results) == 7 * len(job.plan.slices)


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_dies_costs_nothing_and_is_reported(job: WindowJob, number: int) -> None:
    acts = [ends(S.DONE), ends(S.DONE)]
    acts[number] = dies(SparkJobError("LC9999", "its executors are gone"))
    statuses, lines = run(job, *acts)
    assert statuses == [S.DONE] * len(job.plan.slices)
    assert lines == [f"replica {number} of group 0 ended early: its executors are gone [LC9999]"]


def test_an_engine_that_knows_no_slices_has_done_all_when_it_ends_well(job: WindowJob) -> None:
    assert run(job, dies(SparkJobError("LC9999", "gone")), lambda _: [])[0] == []


def test_when_all_die_the_job_does_as_the_original_did(job: WindowJob) -> None:
    with pytest.raises(SparkJobError, match="LC9999") as raised:
        run(job, dies(SparkJobError("LC9999", "first", workers_died=True)), dies(SparkJobError("LC9999", "second")))
    assert raised.value.workers_died


def test_what_is_no_end_of_a_spark_job_is_raised(job: WindowJob) -> None:
    with pytest.raises(SpecError):
        run(job, ends(S.DONE), dies(SpecError("LC9999", "no such server")))


def test_a_process_that_waited_for_earlier_work_requests_what_is_left_unless_all_is_done(job: WindowJob) -> None:
    waited = dies(EarlierWorkError("LC9999", "it has ended"))
    with pytest.raises(EarlierWorkError):
        run(job, waited, ends(S.DONE, S.AGAIN))
    assert run(job, waited, ends(S.REPORTED))[0] == [S.REPORTED] * len(job.plan.slices)


@pytest.mark.parametrize("number", [0, 1])
def test_one_that_hangs_is_left_alone_when_all_is_reported(
    job: WindowJob, hangs: Act, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replicas, "GOODBYE_SECONDS", 0.05)
    acts = [ends(S.DONE), ends(S.DONE)]
    acts[number] = hangs
    statuses, lines = run(job, *acts)
    assert statuses == [S.DONE] * len(job.plan.slices)
    assert lines == [f"group 0: all slices are reported; abandoned replica {number}, which does not end"]


def test_a_job_knows_its_replica_on_the_other_side(job: WindowJob) -> None:
    second = replace(job, replica=1)
    there = WindowJob.from_json(second.to_json())
    assert (there.replica, there.replicas) == (1, 2)
    assert there.transactional_id(0) == second.transactional_id(0) != job.transactional_id(0)
    assert '"replica' not in replace(job, replicas=1).to_json(), "an executor of the release before knows none"


class Slow:
    """Says from the first look on that the last slice is slow, and at last that all is reported."""

    def __init__(self, job: WindowJob, *, is_slow: bool = True) -> None:
        rest = replace(job.plan, slices=job.plan.slices[-1:])
        self.job = replace(job, plan=rest, numbers=job.numbers[-1:]) if is_slow else None
        self.reported = False

    def found(self) -> WindowJob | None:
        return self.job

    def all_reported(self) -> bool:
        return self.reported


@pytest.fixture
def checks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(replicas, "GOODBYE_SECONDS", 0.05)


def test_two_that_hang_each_at_what_the_other_one_did_hold_nothing_up(
    job: WindowJob, hangs: Act, checks_often: None
) -> None:
    slow, lines = Slow(job, is_slow=False), list[str]()
    threading.Timer(0.1, lambda: setattr(slow, "reported", True)).start()
    assert run_replicas(job, hangs, lines.append, slow) == []
    assert lines == ["group 0: all slices are reported; abandoned replica 0, 1, which does not end"]


@pytest.mark.usefixtures("checks_often")
class TestSlowSlices:
    @pytest.fixture
    def job(self, job: WindowJob) -> WindowJob:
        return replace(job, landing=changed_landing(job.landing, speculation=2.0))

    def test_they_are_done_a_second_time_and_a_task_that_hangs_is_left_alone(self, job: WindowJob, hangs: Act) -> None:
        slow, lines, begun = Slow(job), list[str](), list[WindowJob]()

        def act(each: WindowJob) -> Sequence[SliceResult]:
            begun.append(each)
            if each.replica == 0:
                return hangs(each)
            slow.reported = True
            return ends(S.DONE)(each)

        # Of the others this process knows nothing: the log is asked.
        assert run_replicas(job, act, lines.append, slow) == []
        assert [(each.replica, len(each.plan.slices)) for each in begun] == [(0, len(job.plan.slices)), (1, 1)]
        assert lines == [
            "group 0: started 1 slow slices a second time",
            "group 0: all slices are reported; abandoned replica 0, which does not end",
        ]

    def test_an_original_that_overtakes_what_was_begun_again_ends_the_job(self, job: WindowJob, hangs: Act) -> None:
        again = threading.Event()

        def act(each: WindowJob) -> Sequence[SliceResult]:
            if each.replica:
                again.set()
                return hangs(each)
            assert again.wait(10)
            return ends(S.DONE)(each)

        results = run_replicas(job, act, lambda _: None, Slow(job))
        assert [r.status for r in results] == [S.DONE] * len(job.plan.slices)

    def test_where_nothing_is_slow_there_is_no_second_job(self, job: WindowJob) -> None:
        begun: list[int] = []

        def act(each: WindowJob) -> Sequence[SliceResult]:
            begun.append(each.replica)
            threading.Event().wait(0.1)
            return ends(S.DONE)(each)

        run_replicas(job, act, pytest.fail, Slow(job, is_slow=False))
        assert begun == [0]

    def test_an_original_that_dies_is_no_slow_one(self, job: WindowJob) -> None:
        with pytest.raises(SparkJobError):
            run_replicas(job, dies(SparkJobError("LC9999", "gone")), lambda _: None, Slow(job, is_slow=False))
