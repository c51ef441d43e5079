# SPDX-License-Identifier: Apache-2.0
"""The jobs of a write task are asked to end all together, and none begins after that."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_lakecommit.control.records import read_entries
from airflow_provider_lakecommit.core.log import EndRequested
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.exceptions import BlockedRangeError, ControlTopicError, LakecommitError, SparkJobError
from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs, left_undone
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from tests.fakes.session import FakeLanding
from tests.support.groups import group_job, group_result
from tests.support.waiting import until


@dataclass
class Started:
    """An engine whose jobs run until they are asked to end, or it is stopped."""

    landing: FakeLanding
    running: int = 0
    stopped: threading.Event = field(default_factory=threading.Event)
    ahead: int = 0

    def start(self) -> None: ...

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self.running += 1
        until(lambda: self.stopped.is_set() or str(job.job_id) in self.ending(), what="its end")
        self.running -= 1
        if self.stopped.is_set():
            raise SparkJobError("LC9999", "it was stopped")
        return []

    def ending(self) -> list[str]:
        """The jobs that were asked to end."""
        if self.landing.control.away:
            return []
        session = self.landing.session
        log = self.landing.control.read(session.control.partition_for(session.landing.group_id))
        return [str(e.job) for e in read_entries(log.records, "rows", LIVE) if isinstance(e, EndRequested)]

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None: ...


@pytest.fixture
def started(tmp_path: Path) -> Started:
    return Started(FakeLanding(tmp_path, {"groups": 2}))


def jobs_of(landing: FakeLanding) -> Sequence[WindowJob]:
    opened = landing.open()
    found = [group_job(landing.session.landing, landing.control, t, "fake") for t in opened.groups]
    return [job for job in found if job is not None]


@pytest.mark.parametrize("killed", [True, False])
def test_a_kill_or_a_deadline_requests_every_job_and_no_further_one_begins(started: Started, killed: bool) -> None:
    jobs = WriteJobs(started, started.landing.session.tables, {}, logging.getLogger())
    first, second = jobs_of(started.landing)
    with ThreadPoolExecutor() as pool, jobs.until_deadline(None if killed else timedelta(seconds=1)):
        running = [pool.submit(jobs.run, job, started.landing.control) for job in (first, second)]
        until(lambda: started.running == 2 or not killed, what="both run")
        if killed:
            jobs.end_for_kill()
        assert [each.result() for each in running] == [[], []]
        assert len(set(started.ending())) == 2
        assert not started.stopped.is_set()
        with pytest.raises(SparkJobError, match="LC8354"):
            jobs.run(first, started.landing.control)


def test_a_kill_between_two_jobs_stops_the_engine(started: Started) -> None:
    jobs = WriteJobs(started, started.landing.session.tables, {}, logging.getLogger())
    jobs.end_for_kill()
    until(started.stopped.is_set, what="the engine is stopped")
    assert started.ending() == []


def test_jobs_that_cannot_be_requested_are_stopped(started: Started) -> None:
    jobs = WriteJobs(started, started.landing.session.tables, {}, logging.getLogger())
    job, _ = jobs_of(started.landing)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(jobs.run, job, started.landing.control)
        until(lambda: started.running == 1, what="it runs")
        started.landing.control.away = ControlTopicError("LC9999", "the brokers are away")
        jobs.end_for_kill()
        with pytest.raises(SparkJobError, match="LC9999"):
            running.result()


def test_what_is_left_of_a_group_is_for_another_attempt_and_what_is_blocked_is_not(tmp_path: Path) -> None:
    landing = FakeLanding(tmp_path, {"groups": 1})
    opened = landing.open()
    (ticket,) = opened.groups

    def undone(died: SparkJobError | None = None) -> LakecommitError | None:
        return left_undone(group_result(landing.session.landing, landing.control, ticket), "group 0", died)

    left = undone(SparkJobError("LC9999", "it died"))
    assert isinstance(left, SparkJobError)
    assert str(left).startswith("it died [LC9999]; group 0: 0 slices")
    first, *others = opened.slices
    landing.report(opened, lambda s: s in others)
    landing.report(opened, lambda s: s == first, blocked="too many rejects")
    assert isinstance(undone(), BlockedRangeError)
    landing.report(opened, lambda s: s == first)
    assert undone() is None
