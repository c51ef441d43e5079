# SPDX-License-Identifier: Apache-2.0
"""Whether a job's further slices are worth beginning where brokers did not answer for one of them.

Contract: a slice waits for brokers for as long as each of its requests may take; hundreds that do so one after the
other would wait for hours for brokers that are gone. So once a slice of a job was given up for want of an answer, the
next one in the same process begins only if the brokers answer a short question. Where they do not, the slices of the
next :data:`AWAY` seconds are given back unasked: the job ends, and the run tells why, or goes on by its next cycle. A
process that had no trouble asks nothing.

Failure story: brokers that answer, and still give a slice nothing, are asked again before each slice: that costs a
round trip, and the slice waits as it would have.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from confluent_kafka import KafkaException

from airflow_provider_lakecommit.exceptions import ControlTopicError, SourceUnavailableError
from airflow_provider_lakecommit.spark.job import WindowJob

__all__ = ["AWAY", "check_brokers", "note_given_up"]

AWAY = 30.0
"""Seconds for which brokers that did not answer are not asked again."""


class Brokers(Protocol):
    """Who can be asked, as the control topic can."""

    def answers(self) -> bool: ...


@dataclass(slots=True)
class _Doubt:
    """Of the newest job of this process for which a slice was given up."""

    job: UUID
    ask_at: float = 0.0


_doubts: list[_Doubt] = []


def note_given_up(job: WindowJob, error: Exception) -> None:
    """Note that a slice of the job was given up, which may put the brokers in doubt."""
    doubted = isinstance(error, SourceUnavailableError | ControlTopicError | KafkaException)
    if doubted and not (_doubts and _doubts[0].job == job.job_id):
        _doubts[:] = [_Doubt(job=job.job_id)]


def check_brokers(job: WindowJob, brokers: Brokers, now: Callable[[], float] = time.monotonic) -> None:
    """Before a slice is begun.

    :raises ControlTopicError: the brokers are in doubt, and do not answer
    """
    if not _doubts or _doubts[0].job != job.job_id:
        return
    doubt = _doubts[0]
    if now() >= doubt.ask_at:
        if brokers.answers():
            _doubts.clear()
            return
        doubt.ask_at = now() + AWAY
    raise ControlTopicError(
        "LC5001",
        "this slice was not begun: the brokers gave no answer for the slices before it, and do not answer now; check "
        "that they are up; it is read by the next cycle",
    )
