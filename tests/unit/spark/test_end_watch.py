# SPDX-License-Identifier: Apache-2.0
"""When a task looks whether it is asked to end, and whose word it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.control.records import Sender
from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.spark import watches
from airflow_provider_lakecommit.spark.job import WindowJob
from airflow_provider_lakecommit.spark.watches import AWAY, CHECK_INTERVAL, FIRST_CHECK, EndWatch


@dataclass
class Record:
    offset: int
    value: bytes
    headers: Any
    timestamp: datetime = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Log:
    """A control topic that counts its looks."""

    records: list[Record] = field(default_factory=list)
    checks: int = 0
    away: bool = False

    @property
    def end(self) -> int:
        return len(self.records)

    def read(self, _partition: int, start: int | None = None, **_: Any) -> Any:
        self.checks += 1
        if self.away:
            raise ControlTopicError("LC9999", "the brokers are away")
        found = [r for r in self.records if r.offset >= (start or 0)]
        return type("Read", (), {"records": found, "end": self.end})()

    def send(self, commit_id: UUID, landing: str = "rows", **how: Any) -> None:
        message = {"job": None, "reason": "told to stop"} | how
        sent = Sender(landing=landing, lane="live", role="end", commit_id=commit_id).end_request(
            uuid4(), datetime(2026, 1, 1, tzinfo=UTC), **message
        )
        self.records.append(Record(self.end, sent.value, sent.headers))


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    watches._newest.clear()
    yield
    watches._newest.clear()


@pytest.fixture
def job(job: WindowJob) -> WindowJob:
    # Its own log begins below.
    return replace(job, made_at=0)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_short_work_pays_for_no_check(job: WindowJob) -> None:
    log, clock = Log(), Clock()
    log.send(job.commit_id)
    watch = EndWatch(job, log, clock)
    for _ in range(10):
        assert not watch()
    clock.now += FIRST_CHECK - 0.01
    assert not watch()
    assert log.checks == 0
    clock.now += 0.02
    assert watch()
    assert watch.reason == "told to stop"
    assert log.checks == 1


@pytest.mark.parametrize(
    "message",
    [{"commit_id": uuid4()}, {"landing": "others"}, {"job": uuid4()}],
    ids=["another cycle", "another landing", "another job"],
)
def test_a_message_for_others_is_not_ours(job: WindowJob, message: dict[str, Any]) -> None:
    log, clock = Log(), Clock()
    commit_id = message.get("commit_id", job.commit_id)
    log.send(commit_id, **{k: v for k, v in message.items() if k != "commit_id"})
    watch = EndWatch(job, log, clock)
    clock.now += FIRST_CHECK
    assert not watch()
    assert log.checks == 1


def test_a_message_for_the_job_is_ours(job: WindowJob) -> None:
    log, clock = Log(), Clock()
    log.send(job.commit_id, job=job.job_id)
    watch = EndWatch(job, log, clock)
    clock.now += FIRST_CHECK
    assert watch()


def test_a_message_from_before_the_job_was_made_was_for_tasks_before_it(job: WindowJob) -> None:
    log, clock = Log(), Clock()
    log.send(job.commit_id)
    watch = EndWatch(replace(job, made_at=1), log, clock)
    clock.now += FIRST_CHECK
    assert not watch()
    log.send(job.commit_id)
    clock.now += CHECK_INTERVAL
    assert watch()


def test_later_tasks_of_the_process_know_it_without_a_check(job: WindowJob) -> None:
    log, clock = Log(), Clock()
    log.send(job.commit_id)
    first = EndWatch(job, log, clock)
    clock.now += FIRST_CHECK
    assert first()
    first.rest()
    assert EndWatch(job, log, clock)()
    assert log.checks == 1
    assert not EndWatch(replace(job, job_id=uuid4()), log, clock)(), "another job begins anew"


def test_many_short_tasks_check_now_and_then(job: WindowJob) -> None:
    log, clock = Log(), Clock()
    for _ in range(100):
        watch = EndWatch(job, log, clock)
        watch()
        clock.now += 0.1
        watch.rest()
    assert 5 <= log.checks <= 100 * 0.1 / FIRST_CHECK


def test_brokers_that_are_away_end_nothing_and_are_not_requested_all_the_time(job: WindowJob) -> None:
    log, clock = Log(away=True), Clock()
    log.send(job.commit_id)
    watch = EndWatch(job, log, clock)
    clock.now += FIRST_CHECK
    assert not watch()
    assert not watch()
    assert log.checks == 1
    log.away, clock.now = False, clock.now + AWAY
    assert watch()
