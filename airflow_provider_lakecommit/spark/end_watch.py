# SPDX-License-Identifier: Apache-2.0
"""Watch the control topic for a request to end a job's tasks after the current record.

Contract: :class:`EndWatch` is called often and reads rarely. Requests to other jobs, even of the same group, are
ignored. A process that has worked at a job for less than :data:`FIRST_CHECK` does not read: short windows end before
that and pay nothing. After a request was read, later tasks of that job in the same process know it without a read.

Failure story: unavailable brokers do not end a task; the next read tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import EndRequested
from airflow_provider_lakecommit.exceptions import LakecommitError

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import WindowJob

FIRST_CHECK = 1.5
"""Seconds of work at a job before the first read, and between the reads of successive tasks."""
CHECK_INTERVAL = 0.5
"""Seconds between two reads of one task with an open connection."""
AWAY = 30.0
"""Seconds after a read that the brokers did not answer."""


@dataclass(slots=True)
class _Known:
    """The state of the newest job of this process."""

    job: UUID
    check_at: float
    reason: str = ""


_known: list[_Known] = []


class EndWatch:
    """Called between two chunks of records: returns whether this process must end here.

    :param control: control topic of the task
    """

    def __init__(self, job: WindowJob, control: LogReader, now: Callable[[], float] = time.monotonic) -> None:
        self._job, self._control, self._now = job, control, now
        self._read_from, self._checked = job.made_at, False
        self._known = self._of_process()

    @property
    def reason(self) -> str:
        """Return the user and reason of the request; empty if there is none."""
        return self._known.reason

    def __call__(self) -> bool:
        if not self._known.reason and self._now() >= self._known.check_at:
            self._checked, self._known.check_at = True, self._now() + AWAY
            with suppress(LakecommitError):
                self._known.reason = self._read_reason()
                self._known.check_at = self._now() + CHECK_INTERVAL
        return bool(self._known.reason)

    def rest(self) -> None:
        """Forget the connection of a finished task; the next task opens its own."""
        if self._checked:
            self._known.check_at = max(self._known.check_at, self._now() + FIRST_CHECK)

    def _of_process(self) -> _Known:
        if not _known or _known[0].job != self._job.job_id:
            _known[:] = [_Known(job=self._job.job_id, check_at=self._now() + FIRST_CHECK)]
        return _known[0]

    def _read_reason(self) -> str:
        log = self._control.read(self._job.control_partition, self._read_from)
        self._read_from = max(self._read_from, log.end)
        entries = read_entries(log.records, self._job.plan.landing, self._job.plan.lane)
        meant = (e for e in entries if isinstance(e, EndRequested) and e.commit_id == self._job.commit_id)
        return next((e.reason for e in meant if e.job in (None, self._job.job_id)), "")
