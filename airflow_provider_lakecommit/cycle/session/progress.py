# SPDX-License-Identifier: Apache-2.0
"""How far a window is while its Spark jobs run: slices and records that are reported, of all; how fast, how long still.

Contract: told from the control log, to which each task reports its slice the moment it is finished, so that it is the
same on every engine, also where a driver is elsewhere and where work of an earlier attempt was adopted. For people:
nothing is decided by it, and no part of a run waits for it.

Failure story: a log that cannot be read now is told as that, with what was known before, and looked at again at the
next interval; the run itself says what is wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Coverage, Slice, SliceReported
from airflow_provider_lakecommit.core.shown import duration_text
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.spark import WindowJob

__all__ = ["LOG_SECONDS", "Progress", "progress_told"]

LOG_SECONDS = 10.0
"""Between two lines of a log."""
GOODBYE_SECONDS = 2.0
"""For which the end of a job waits for a look that is under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What is reported after so many ``seconds``, of what was to be done when it began; after ``start`` of them there
    was still nothing: engines take a while to start. ``trouble`` is why nothing newer is known.
    """

    slices: int
    all_slices: int
    records: int
    all_records: int
    seconds: float
    start: float = 0.0
    trouble: str = ""

    @property
    def rate(self) -> float:
        """Records per second, since engines have started."""
        return self.records / (self.seconds - self.start) if self.seconds > self.start else 0.0

    @property
    def left(self) -> float | None:
        """Seconds still to go at this rate; ``None`` while nothing is known of it."""
        return (self.all_records - self.records) * (self.seconds - self.start) / self.records if self.records else None

    def __str__(self) -> str:
        text = f"{self.slices} of {self.all_slices} slices, {self.records:,} of {self.all_records:,} records"
        if self.trouble:
            return f"{text} were reported; no newer progress is known after {self.seconds:.0f} s: {self.trouble}"
        if self.left is None:
            return f"{text} after {self.seconds:.0f} s"
        return f"{text}, {self.rate:,.0f} records/s, about {duration_text(self.left)} left"


@contextmanager
def progress_told(
    control: ControlPort,
    jobs: Sequence[WindowJob],
    tell: Callable[[Progress], None],
    every: float = LOG_SECONDS,
) -> Iterator[None]:
    """While the block runs, tell how far its jobs are.

    :param jobs: of one window
    """
    if not jobs:
        yield
        return
    watch, over = _Watch(control, jobs, tell), threading.Event()
    thread = threading.Thread(target=watch.follow, args=(over, every), name="lakecommit-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(GOODBYE_SECONDS)


class _Watch:
    """The reports of some jobs, read on from where their plan stands."""

    def __init__(self, control: ControlPort, jobs: Sequence[WindowJob], tell: Callable[[Progress], None]) -> None:
        self._control, self._tell = control, tell
        self._landing, self._lane = jobs[0].plan.landing, jobs[0].plan.lane
        self._partition = jobs[0].control_partition
        self._open: list[Slice] = [s for job in jobs for s in job.plan.slices]
        self._slices, self._records = len(self._open), sum(map(len, self._open))
        self._reported = Coverage()
        self._began = time.monotonic()
        self._place = jobs[0].read_from
        self._start = 0.0

    def follow(self, over: threading.Event, every: float) -> None:
        while self._open and not over.wait(every):
            trouble = ""
            try:
                self._look()
            except LakecommitError as e:
                trouble = str(e)
            with suppress(LakecommitError):
                self._tell(replace(self._progress(), trouble=trouble))

    def _look(self) -> None:
        log = self._control.read(self._partition, self._place)
        self._place = log.end
        reports = (
            e.report for e in read_entries(log.records, self._landing, self._lane) if isinstance(e, SliceReported)
        )
        self._reported |= Coverage.of(item for report in reports for item in report.coverage.items())
        self._open = [s for s in self._open if s.coverage - self._reported]

    def _progress(self) -> Progress:
        left = Coverage.of(item for s in self._open for item in s.coverage.items()) - self._reported
        records, seconds = self._records - len(left), time.monotonic() - self._began
        if not records:
            self._start = seconds
        return Progress(
            slices=self._slices - len(self._open),
            all_slices=self._slices,
            records=records,
            all_records=self._records,
            seconds=seconds,
            start=self._start,
        )
