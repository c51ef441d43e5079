# SPDX-License-Identifier: Apache-2.0
"""The write step: what of a group is still to be done, by the control log alone."""

from __future__ import annotations

import pytest

from airflow_provider_lakecommit.cycle.results import GroupTicket
from airflow_provider_lakecommit.cycle.write import group_job, group_result, run_group
from airflow_provider_lakecommit.engines.base import EarlierWorkError
from airflow_provider_lakecommit.exceptions import CatalogError, ControlTopicError, SparkJobError
from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
from tests.fakes.session import P0, FakeLanding


def job_of(landing: FakeLanding, ticket: GroupTicket) -> WindowJob | None:
    return group_job(landing.session.landing, landing.control, ticket, "fake")


def test_what_is_reported_is_never_part_of_a_job_again_though_the_catalog_is_away(landing: FakeLanding) -> None:
    opened = landing.open()
    (ticket,) = opened.groups
    landing.catalog.away = True
    landing.report(opened, lambda s: s.spans[0].partition == P0)
    job = job_of(landing, ticket)
    assert job is not None
    assert (job.places, [str(s) for s in job.plan.slices]) == ((1,), ["orders[1][0, 10)"])
    result = group_result(landing.session.landing, landing.control, ticket)
    assert str(result) == (
        "2 slices (20 records) are reported and will not be read again; 10 offsets will be: orders[1][0, 10)"
    )


def test_a_cycle_that_is_closed_or_given_up_has_no_job(landing: FakeLanding) -> None:
    closed = landing.open("a")
    landing.close("a", closed)
    assert job_of(landing, closed.groups[0]) is None
    given_up = landing.open("b")
    landing.open("c", release=lambda cycle: cycle.run == "b")
    assert job_of(landing, given_up.groups[0]) is None


def test_a_blocked_slice_is_named_and_is_not_to_be_read_again(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.report(opened, blocked="too many")
    result = group_result(landing.session.landing, landing.control, opened.groups[0])
    assert (result.done, result.left, len(result.blocked)) == (0, (), 3)


def test_a_plan_that_the_log_has_forgotten_is_an_error_that_says_what_to_do(landing: FakeLanding) -> None:
    opened = landing.open()
    landing.control.cut(opened.ticket.partition, 1)
    with pytest.raises(ControlTopicError, match="its retention is too short or it was made anew; run the plan task"):
        job_of(landing, opened.groups[0])


class TestRunGroup:
    @pytest.fixture
    def job(self, landing: FakeLanding) -> WindowJob:
        job = job_of(landing, landing.open().groups[0])
        assert job is not None
        return job

    def test_nothing_to_do_is_not_run(self) -> None:
        assert run_group(None, lambda _: pytest.fail("run"), lambda: None, print) == (None, ())

    def test_a_job_that_died_is_an_outcome_and_other_errors_are_not(self, job: WindowJob) -> None:
        def fail_with(error: Exception) -> list[SliceResult]:
            raise error

        died = SparkJobError("java is gone")
        assert run_group(job, lambda _: fail_with(died), lambda: None, print) == (job, died)
        with pytest.raises(CatalogError):
            run_group(job, lambda _: fail_with(CatalogError("no keys")), lambda: None, print)

    def test_earlier_work_that_left_nothing_needs_no_other_job(self, job: WindowJob) -> None:
        said: list[str] = []

        def wait(_: WindowJob) -> list[SliceResult]:
            raise EarlierWorkError("it has ended")

        assert run_group(job, wait, lambda: None, said.append) == (None, ())
        assert said == ["it has ended"]
