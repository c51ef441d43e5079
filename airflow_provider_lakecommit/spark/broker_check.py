# SPDX-License-Identifier: Apache-2.0
"""A short broker check before a job's next slice, after brokers did not answer for one of its slices.

Contract: a slice waits for brokers as long as each request may take; hundreds in sequence would wait for hours. After a
slice of a job was given up without an answer, the next one in the same process begins only if the brokers answer a
short request. Otherwise the slices of the next :data:`AWAY` seconds are returned without a request: the job ends, and
the run reports why or continues in its next cycle. A process without trouble sends no request.

Failure story: if brokers answer but give a slice nothing, they are checked before each slice: that costs one round
trip, and the slice waits as before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol
from uuid import UUID

from confluent_kafka import KafkaException

from airflow_provider_lakecommit.exceptions import ControlTopicError, SourceUnavailableError
from airflow_provider_lakecommit.spark.job import WindowJob

AWAY = 30.0
"""Seconds after an unanswered request without another one."""


class Brokers(Protocol):
    """A client that can send the check, such as the control topic."""

    def answers(self) -> bool: ...


_doubts: dict[UUID, float] = {}
"""The newest job of this process with a slice that was given up, and when the brokers are checked next."""


def note_given_up(job: WindowJob, error: Exception) -> None:
    """Record that a slice of the job was given up, if the brokers may be the cause."""
    doubted = isinstance(error, SourceUnavailableError | ControlTopicError | KafkaException)
    if doubted and job.job_id not in _doubts:
        _doubts.clear()
        _doubts[job.job_id] = 0.0


def check_brokers(job: WindowJob, brokers: Brokers, now: Callable[[], float] = time.monotonic) -> None:
    """Check doubtful brokers before a slice begins.

    :raises ControlTopicError: the brokers are doubtful and do not answer
    """
    if job.job_id not in _doubts:
        return
    if now() >= _doubts[job.job_id]:
        if brokers.answers():
            _doubts.clear()
            return
        _doubts[job.job_id] = now() + AWAY
    raise ControlTopicError(
        "LC5001",
        "this slice was not begun: the brokers did not answer for earlier slices and do not answer now; check "
        "that they are up; the next cycle reads it",
    )
