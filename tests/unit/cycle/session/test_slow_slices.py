# SPDX-License-Identifier: Apache-2.0
"""When slices count as slow: by what is reported, and by one clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.model import SliceCost
from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.cycle.session.progress import LEAST_SECONDS, SlowSlices, slow_slices_of
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.spark.job import WindowJob
from tests.fakes.session import P1, FakeLanding
from tests.support.groups import group_job

TOOK = SliceCost(read_seconds=6.0, decode_seconds=3.0, write_seconds=1.0, bytes=1)


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[FakeLanding]:
    made = FakeLanding(tmp_path, {"speculation": 3.0}, cost=TOOK)
    yield made
    made.session.close()
    made.catalog.close()


@pytest.fixture
def opened(landing: FakeLanding) -> Opened:
    return landing.open()


@pytest.fixture
def job(landing: FakeLanding, opened: Opened) -> WindowJob:
    found = group_job(landing.session.landing, landing.control, opened.groups[0], "lake")
    assert found is not None
    assert found.replicas == 2, "its tasks look whether they are needed"
    return found


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slow(landing: FakeLanding, job: WindowJob, clock: Clock) -> SlowSlices:
    return SlowSlices(job, landing.control, 3.0, clock)


def test_what_is_left_is_slow_after_so_many_medians_without_a_report(
    landing: FakeLanding, opened: Opened, job: WindowJob, slow: SlowSlices, clock: Clock
) -> None:
    landing.report(opened, lambda s: s.spans[0].partition == P1)
    assert slow.found() is None
    clock.now += 30.0
    assert slow.found() is None
    clock.now += 0.1
    found = slow.found()
    assert found is not None
    assert [s for s in found.plan.slices if s.spans[0].partition == P1] == []
    assert set(found.plan.slices) < set(job.plan.slices)
    # By their places they have the transactional ids that they have in the whole job.
    assert [job.numbers[job.plan.slices.index(s)] for s in found.plan.slices] == list(found.numbers)
    assert not slow.all_reported()


def test_as_long_as_others_come_in_nothing_is_slow(
    landing: FakeLanding, opened: Opened, slow: SlowSlices, clock: Clock
) -> None:
    first, *_, last = opened.slices
    landing.report(opened, lambda s: s == first)
    assert slow.found() is None
    clock.now += 29.0
    landing.report(opened, lambda s: s == last)
    assert slow.found() is None
    clock.now += 29.0
    assert slow.found() is None
    clock.now += 2.0
    assert slow.found() is not None


def test_without_a_report_nothing_is_known(slow: SlowSlices, clock: Clock) -> None:
    clock.now += 10_000.0
    assert slow.found() is None


def test_short_slices_are_given_a_least_time(
    landing: FakeLanding, opened: Opened, slow: SlowSlices, clock: Clock
) -> None:
    landing.cost = SliceCost(read_seconds=0.01, decode_seconds=0.01, write_seconds=0.01, bytes=1)
    landing.report(opened, lambda s: s == opened.slices[0])
    assert slow.found() is None
    clock.now += LEAST_SECONDS
    assert slow.found() is None
    clock.now += 0.1
    assert slow.found() is not None


def test_when_all_is_reported_nothing_is_left(
    landing: FakeLanding, opened: Opened, slow: SlowSlices, clock: Clock
) -> None:
    landing.report(opened)
    clock.now += 10_000.0
    assert slow.found() is None
    assert slow.all_reported()


def test_a_log_that_is_away_reports_nothing(
    landing: FakeLanding, opened: Opened, slow: SlowSlices, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise ControlTopicError("LC9999", "the brokers are away")

    with monkeypatch.context() as patch:
        patch.setattr(landing.control, "read", away)
        clock.now += 10_000.0
        assert slow.found() is None
    landing.report(opened, lambda s: s == opened.slices[0])
    assert slow.found() is None, "it was seen just now"


def test_it_is_requested(landing: FakeLanding, job: WindowJob) -> None:
    assert slow_slices_of(job, landing.control) is not None
    assert slow_slices_of(replace(job, replicas=1), landing.control) is None


def test_of_replicas_it_reports_what_is_reported_and_nothing_is_slow(
    landing: FakeLanding, opened: Opened, job: WindowJob, clock: Clock
) -> None:
    both = SlowSlices(job, landing.control, None, clock)
    landing.report(opened, lambda s: s == opened.slices[0])
    assert not both.all_reported()
    clock.now += 10_000.0
    assert both.found() is None
    landing.report(opened, lambda s: s != opened.slices[0])
    assert both.all_reported()
