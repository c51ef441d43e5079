# SPDX-License-Identifier: Apache-2.0
"""What is reported of the cycle of a job, as the control log tells it from look to look.

Contract: a look reads what came since the last one. What a report counts for is the fold's to say: ``cycle`` is the
cycle as it folds from its START, which stands right before the place from which the job hears what is said to it; it is
there once something was reported, and only if its plan is the job's.

Failure story: a log that cannot be read is an error of the look; the next one reads it all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import CycleState, Entry, SliceReport, SliceReported
from airflow_provider_lakecommit.core.fold import fold

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import LogReader
    from airflow_provider_lakecommit.spark.job import WindowJob

__all__ = ["CycleReports"]


class CycleReports:
    """Of one job's cycle."""

    def __init__(self, job: WindowJob, control: LogReader) -> None:
        self._job, self._control = job, control
        self._read_from = max(0, job.made_at - 1)
        self._entries: list[Entry] = []
        self.cycle: CycleState | None = None

    def look(self) -> list[SliceReport]:
        """The reports that are new, those that do not count among them.

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
