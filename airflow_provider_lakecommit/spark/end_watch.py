# SPDX-License-Identifier: Apache-2.0
"""Whether the tasks of a job were asked to end behind the record in hand: asked in the control log, where everybody who
may write there can say it, on any engine.

Contract: :class:`EndWatch` is asked often and looks rarely. What is said to another job is not meant, be it of the same
group. A process that has worked at a job for less than :data:`FIRST_LOOK` does not look: short windows are over before
that, and pay nothing. Once the word was seen, each later task of that job in the same process knows it without a look.

Failure story: brokers that do not answer are no reason to end; the next look asks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import EndAsked
from airflow_provider_lakecommit.exceptions import LakecommitError

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import WindowJob

__all__ = ["FIRST_LOOK", "EndWatch"]

FIRST_LOOK = 1.5
"""Seconds of work at a job before the first look, and between the looks of tasks that come and go."""
LOOK_AGAIN = 0.5
"""Seconds between two looks of one task, whose connection is there."""
AWAY = 30.0
"""Seconds after a look that the brokers did not answer."""


@dataclass(slots=True)
class _Known:
    """What a process knows of the newest job that it worked at."""

    job: UUID
    look_at: float
    asked: str = ""


_known: list[_Known] = []


class EndWatch:
    """Called between two chunks of records: whether this process must end here.

    :param control: of the task
    """

    def __init__(self, job: WindowJob, control: LogReader, now: Callable[[], float] = time.monotonic) -> None:
        self._job, self._control, self._now = job, control, now
        self._read_from, self._looked = job.made_at, False
        self._known = self._of_process()

    @property
    def asked(self) -> str:
        """By whom and why, as they say; empty: by nobody."""
        return self._known.asked

    def __call__(self) -> bool:
        if not self._known.asked and self._now() >= self._known.look_at:
            self._looked, self._known.look_at = True, self._now() + AWAY
            with suppress(LakecommitError):
                self._known.asked = self._look()
                self._known.look_at = self._now() + LOOK_AGAIN
        return bool(self._known.asked)

    def rest(self) -> None:
        """The task is over, and its connection with it: the next task's would be another one."""
        if self._looked:
            self._known.look_at = max(self._known.look_at, self._now() + FIRST_LOOK)

    def _of_process(self) -> _Known:
        if not _known or _known[0].job != self._job.job_id:
            _known[:] = [_Known(job=self._job.job_id, look_at=self._now() + FIRST_LOOK)]
        return _known[0]

    def _look(self) -> str:
        log = self._control.read(self._job.control_partition, self._read_from)
        self._read_from = max(self._read_from, log.end)
        entries = read_entries(log.records, self._job.plan.landing, self._job.plan.lane)
        meant = (e for e in entries if isinstance(e, EndAsked) and e.commit_id == self._job.commit_id)
        return next((e.reason for e in meant if e.job in (None, self._job.job_id)), "")
