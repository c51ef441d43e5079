# SPDX-License-Identifier: Apache-2.0
"""The reports of a job's cycle, read incrementally from the control topic.

Contract: each read continues after the previous one. The fold decides which reports count: ``cycle`` is the cycle
folded from its START, right before the job's first own message. It is set once something was reported, and only if its
plan is the job's.

Failure story: an unreadable log fails this read; the next one reads it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import CycleState, Entry, SliceReport, SliceReported
from airflow_provider_lakecommit.core.fold import fold

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import WindowJob


class CycleReports:
    """Reads the reports of one job's cycle."""

    def __init__(self, job: WindowJob, control: LogReader) -> None:
        self._job, self._control = job, control
        self._read_from = max(0, job.made_at - 1)
        self._entries: list[Entry] = []
        self.cycle: CycleState | None = None

    def read(self) -> list[SliceReport]:
        """Return the new reports, also those that do not count.

        :raises ControlTopicError: the log cannot be read
        """
        job = self._job
        log = self._control.read(job.control_partition, self._read_from)
        self._read_from = max(self._read_from, log.end)
        new = read_entries(log.records, job.plan.landing, job.plan.lane)
        self._entries += new
        reports = [e.report for e in new if isinstance(e, SliceReported) and e.commit_id == job.commit_id]
        if reports:
            cycle = fold(self._entries, (), job.landing.window.completion_timeout).cycles.get(job.commit_id)
            self.cycle = cycle if cycle is not None and cycle.plan.window_id == job.plan.window_id else None
        return reports
