# SPDX-License-Identifier: Apache-2.0
"""The remaining and the slow slices of a job that runs several times, by the reports.

Contract: the start of a slice is not recorded. Slow slices hold up a job when nothing new of its cycle was reported for
longer than ``speculation`` times the median duration of the reported slices, and for :data:`LEAST_SECONDS` at least:
while others come in, a slow one delays nothing. The remaining slices are then the slow ones. Without a report there is
no median, and nothing is known.

The median is of durations by the tasks' own clocks, the wait is measured by this process's clock: no two clocks are
compared.

Failure story: an unreadable log gives no result, and is read again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from statistics import median

from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.spark import CycleReports, WindowJob

LEAST_SECONDS = 10.0
"""Seconds without a report below which nothing is slow: engines take a while to begin tasks."""


def slow_slices_of(job: WindowJob, control: ControlPort) -> SlowSlices | None:
    """Return the watch of a job whose slices run, or may run, several times."""
    return None if job.replicas == 1 else SlowSlices(job, control, job.landing.window.speculation)


class SlowSlices:
    """Watches one job from outside while it runs.

    :param most: medians after which remaining slices are slow; ``None``: never
    :param now: a clock in seconds
    """

    def __init__(
        self, job: WindowJob, control: ControlPort, most: float | None, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._job, self._most, self._now = job, most, now
        self._reports = CycleReports(job, control)
        self._seconds: list[float] = []
        self._quiet_since = now()
        self._left = job

    def all_reported(self) -> bool:
        """Return True if nothing is left of the job at this moment."""
        self._check()
        return not self._left.plan.slices

    def found(self) -> WindowJob | None:
        """Return the job's slow slices as a job of their own, if any."""
        self._check()
        if self._most is None or not self._seconds or not self._left.plan.slices:
            return None
        patience = max(LEAST_SECONDS, self._most * median(self._seconds))
        return self._left if self._now() - self._quiet_since > patience else None

    def _check(self) -> None:
        with suppress(LakecommitError):
            if not (new := self._reports.read()):
                return
            self._quiet_since = self._now()
            costs = [r.cost for r in new if r.cost is not None]
            self._seconds += [c.read_seconds + c.decode_seconds + c.write_seconds for c in costs]
            if (cycle := self._reports.cycle) is not None:
                pairs = zip(self._job.numbers, self._job.plan.slices, strict=True)
                left = [(index, rest) for index, s in pairs if (rest := cycle.left_of(s)) is not None]
                plan = replace(self._job.plan, slices=tuple(rest for _, rest in left))
                self._left = replace(self._job, plan=plan, numbers=tuple(index for index, _ in left))
