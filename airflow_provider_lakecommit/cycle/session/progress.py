# SPDX-License-Identifier: Apache-2.0
"""The progress of a window while its Spark jobs run: reported slices and records, rate and remaining time.

Contract: read from the control topic, to which each task reports its finished slice at once, so it is the same on every
engine, also with a remote driver or adopted work; decoded records of unfinished slices count where tasks are on this
machine. For display only: no part of a run waits for it.

Failure story: an unreadable log is reported with the last known progress, and read again at the next interval; the run
itself reports the cause.

By the same reports, :class:`SlowSlices` finds the remaining and the slow slices of a job that runs several times. The
start of a slice is not recorded. Slow slices hold up a job when nothing new of its cycle was reported for
longer than ``speculation`` times the median duration of the reported slices, and for :data:`LEAST_SECONDS` at least:
while others come in, a slow one delays nothing. The remaining slices are then the slow ones. Without a report there is
no median, and nothing is known.

The median is of durations by the tasks' own clocks, the wait is measured by this process's clock: no two clocks are
compared.

Failure story: an unreadable log gives no result, and is read again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from statistics import median

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Coverage, Slice, SliceReported
from airflow_provider_lakecommit.core.formatting import duration_text
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.spark import CycleReports, WindowJob, decoded_of, running_of

LOG_SECONDS = 10.0
"""Seconds between two log lines."""
GOODBYE_SECONDS = 2.0
"""Seconds that the end of a job waits for a read in progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The reported work after so many ``seconds``, of all work at the begin; ``start`` are the seconds until the first
    report: engines take a while to start. ``trouble`` is why nothing newer is known. ``running`` is how many tasks a
    remote Spark runs, which reports nothing of a slice before its end.
    """

    slices: int
    all_slices: int
    records: int
    all_records: int
    seconds: float
    start: float = 0.0
    trouble: str = ""
    running: int | None = None

    @property
    def rate(self) -> float:
        """Return records per second since the engines started."""
        return self.records / (self.seconds - self.start) if self.seconds > self.start else 0.0

    @property
    def left(self) -> float | None:
        """Return the remaining seconds at this rate; ``None`` while unknown."""
        return (self.all_records - self.records) * (self.seconds - self.start) / self.records if self.records else None

    def __str__(self) -> str:
        text = f"{self.slices} of {self.all_slices} slices, {self.records:,} of {self.all_records:,} records"
        if self.trouble:
            return f"{text} were reported; no newer progress is known after {self.seconds:.0f} s: {self.trouble}"
        running = "" if self.running is None else f"; Spark runs {self.running} tasks"
        if self.left is None:
            return f"{text} after {self.seconds:.0f} s{running}"
        return f"{text}, {self.rate:,.0f} records/s, about {duration_text(self.left)} left{running}"


@contextmanager
def report_progress(
    control: ControlPort, jobs: Sequence[WindowJob], report: Callable[[Progress], None], every: float = LOG_SECONDS
) -> Iterator[None]:
    """Report the progress of the jobs while the block runs.

    :param jobs: jobs of one window
    """
    if not jobs:
        yield
        return
    watch, over = _Watch(control, jobs, report), threading.Event()
    thread = threading.Thread(target=watch.follow, args=(over, every), name="lakecommit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(GOODBYE_SECONDS)


class _Watch:
    """The reports of some jobs, read from their plan on."""

    def __init__(self, control: ControlPort, jobs: Sequence[WindowJob], report: Callable[[Progress], None]) -> None:
        self._control, self._report, self._jobs = control, report, jobs
        self._landing, self._lane = jobs[0].plan.landing, jobs[0].plan.lane
        self._partition = jobs[0].control_partition
        self._open: list[Slice] = [s for job in jobs for s in job.plan.slices]
        self._slices, self._records = len(self._open), sum(map(len, self._open))
        self._reported = Coverage()
        self._began = time.monotonic()
        self._position = jobs[0].read_from
        self._start = 0.0

    def follow(self, over: threading.Event, every: float) -> None:
        while self._open and not over.wait(every):
            trouble = ""
            try:
                self._read()
            except LakecommitError as e:
                trouble = str(e)
            with suppress(LakecommitError):
                self._report(replace(self._progress(), trouble=trouble))

    def _read(self) -> None:
        log = self._control.read(self._partition, self._position)
        self._position = log.end
        reports = (
            e.report for e in read_entries(log.records, self._landing, self._lane) if isinstance(e, SliceReported)
        )
        self._reported |= Coverage.of(item for report in reports for item in report.coverage.items())
        self._open = [s for s in self._open if s.coverage - self._reported]

    def _progress(self) -> Progress:
        left = Coverage.of(item for s in self._open for item in s.coverage.items()) - self._reported
        records, seconds = self._records - len(left), time.monotonic() - self._began
        records += min(decoded_of(self._open), len(left))
        if not records:
            self._start = seconds
        return Progress(
            slices=self._slices - len(self._open),
            all_slices=self._slices,
            records=records,
            all_records=self._records,
            seconds=seconds,
            start=self._start,
            running=running_of(self._jobs),
        )


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
