# SPDX-License-Identifier: Apache-2.0
"""After how much waiting the slices of a job are given back to the next cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from airflow_provider_lakecommit.exceptions import (
    ControlTopicError,
    LakecommitError,
    RecordsError,
    SourceUnavailableError,
    StorageError,
)
from airflow_provider_lakecommit.spark import watches
from airflow_provider_lakecommit.spark.job import WindowJob
from airflow_provider_lakecommit.spark.watches import AWAY, check_brokers, note_given_up


@dataclass
class Brokers:
    """Brokers that count the questions."""

    up: bool = False
    requests: int = 0

    def answers(self) -> bool:
        self.requests += 1
        return self.up


@dataclass
class Clock:
    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def new_process() -> Iterator[None]:
    watches._doubts.clear()
    yield
    watches._doubts.clear()


def begins(job: WindowJob, brokers: Brokers, clock: Clock) -> bool:
    try:
        check_brokers(job, brokers, clock)
    except ControlTopicError:
        return False
    return True


def test_without_trouble_no_broker_is_requested(job: WindowJob) -> None:
    brokers, clock = Brokers(), Clock()
    assert all(begins(job, brokers, clock) for _ in range(10))
    note_given_up(job, RecordsError("LC9999", "bad"))
    note_given_up(job, StorageError("LC9999", "the storage is away"))
    assert begins(job, brokers, clock)
    assert brokers.requests == 0


@pytest.mark.parametrize("error", [SourceUnavailableError("LC9999", "away"), ControlTopicError("LC9999", "away")])
def test_brokers_that_are_missing_are_requested_once_for_hundreds_of_slices(
    job: WindowJob, error: LakecommitError
) -> None:
    brokers, clock = Brokers(), Clock()
    note_given_up(job, error)
    for _ in range(500):
        assert not begins(job, brokers, clock)
        note_given_up(job, ControlTopicError("LC9999", "this slice was not begun"))
    assert brokers.requests == 1
    clock.now += AWAY
    assert not begins(job, brokers, clock)
    assert brokers.requests == 2


def test_brokers_that_come_back_are_worked_with_again(job: WindowJob) -> None:
    brokers, clock = Brokers(), Clock()
    note_given_up(job, ControlTopicError("LC9999", "away"))
    assert not begins(job, brokers, clock)
    brokers.up, clock.now = True, clock.now + AWAY
    assert all(begins(job, brokers, clock) for _ in range(10))
    assert brokers.requests == 2


def test_the_next_job_has_no_doubt(job: WindowJob) -> None:
    brokers, clock = Brokers(), Clock()
    note_given_up(job, ControlTopicError("LC9999", "away"))
    assert not begins(job, brokers, clock)
    assert begins(job.begun(), brokers, clock)
