# SPDX-License-Identifier: Apache-2.0
"""Run the replicas of a job concurrently in one process: the same slices several times, each as its own job; or only
slow slices a second time.

Contract: :func:`run_replicas` returns as soon as all slices are reported, by one replica or by all together. Its
results have each slice once, from the replica that got furthest. Unneeded tasks read that in the control topic and end
by themselves within two seconds. A single job runs in the caller's thread.

Failure story: a dead replica is logged and costs nothing while another one lives. If no replica has done all slices,
their outcome is the job's. A replica that does not end (its machine hangs) is abandoned after :data:`GOODBYE_SECONDS`,
also if all of them hang after another one did the work; it ends with its engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Protocol

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob
from airflow_provider_lakecommit.spark.launch.base import EarlierWorkError

GOODBYE_SECONDS = 5.0
"""How long to wait for unneeded replicas."""
POLL_SECONDS = 1.0
"""Seconds between two reads of reported and slow slices."""
_BEST_FIRST = (
    SliceStatus.DONE,
    SliceStatus.REPORTED,
    SliceStatus.SUPERSEDED,
    SliceStatus.BLOCKED,
    SliceStatus.FAILED,
    SliceStatus.AGAIN,
)

Run = Callable[[WindowJob], Sequence[SliceResult]]
_End = Sequence[SliceResult] | BaseException
"""Results, empty if the engine knows none of its slices; or the error that ended it."""


class SlowPort(Protocol):
    """Source of the job's slow and reported slices."""

    def found(self) -> WindowJob | None: ...
    def all_reported(self) -> bool: ...


def run_replicas(
    job: WindowJob, run: Run, log: Callable[[str], None], slow: SlowPort | None = None
) -> Sequence[SliceResult]:
    """Run a job with its number of replicas.

    :param run: runs one of them to its end; called in several threads
    :param slow: source of reported and slow slices; with `window.speculation` only the original runs at first
    :raises SparkJobError: all ended early
    """
    if job.replicas == 1:
        return run(job)
    race = _Race(job, run, log)
    for _ in range(job.replicas if job.landing.window.speculation is None else 1):
        race.begin(job)
    while race.running:
        done = race.is_whole or (slow is not None and slow.all_reported())
        if race.wait(GOODBYE_SECONDS if done else None if slow is None else POLL_SECONDS):
            continue
        if done:
            log(f"group {job.group}: all slices are reported; abandoned replica {race.running}, which does not end")
            # Their work is unknown here: with an empty answer the caller reads the log.
            return race.results() if race.is_whole else []
        if slow is not None and race.begun < job.replicas and (rest := slow.found()) is not None:
            log(f"group {job.group}: started {len(rest.plan.slices)} slow slices a second time")
            race.begin(rest)
    return race.together()


class _Race:
    def __init__(self, job: WindowJob, run: Run, log: Callable[[str], None]) -> None:
        self._job, self._run, self._log = job, run, log
        self._ended: SimpleQueue[tuple[int, _End]] = SimpleQueue()
        self.begun = 0
        self.ends: dict[int, _End] = {}

    def begin(self, job: WindowJob) -> None:
        """Start one more replica in a thread that does not block the exit of the process."""
        number, self.begun = self.begun, self.begun + 1
        name = f"group-{job.group}-replica-{number}"
        threading.Thread(target=self._one, args=(replace(job, replica=number),), name=name, daemon=True).start()

    def _one(self, job: WindowJob) -> None:
        try:
            self._ended.put((job.replica, self._run(job)))
        except BaseException as e:
            self._ended.put((job.replica, e))

    def wait(self, seconds: float | None) -> bool:
        """Wait for one to end; return True if one ended."""
        try:
            number, end = self._ended.get(timeout=seconds)
        except Empty:
            return False
        self.ends[number] = end
        if isinstance(end, SparkJobError):
            self._log(f"replica {number} of group {self._job.group} ended early: {end}")
        return True

    @property
    def running(self) -> str:
        """Return the numbers of the running replicas."""
        return ", ".join(str(number) for number in range(self.begun) if number not in self.ends)

    @property
    def is_whole(self) -> bool:
        """Return True if nothing is left to do. An engine without results of its slices ends well only if it had all of
        them.
        """
        if any(not isinstance(end, BaseException) and not end for end in self.ends.values()):
            return True
        done = {r.slice for r in self.results() if r.status.is_reported}
        return done.issuperset(map(str, self._job.plan.slices))

    def results(self) -> list[SliceResult]:
        """Return each slice once."""
        return best_of(r for end in self.ends.values() if not isinstance(end, BaseException) for r in end)

    def together(self) -> Sequence[SliceResult]:
        """Return the job's results.

        :raises BaseException: the error of a replica that is not the end of a Spark job; else the error of all of them
        """
        errors = [end for _, end in sorted(self.ends.items()) if isinstance(end, BaseException)]
        for error in errors:
            if not isinstance(error, SparkJobError):
                raise error
        for error in () if self.is_whole else errors:
            if isinstance(error, EarlierWorkError) or len(errors) == len(self.ends):
                raise error
        return self.results()


def best_of(results: Iterable[SliceResult]) -> list[SliceResult]:
    """Return each slice once, from the replica that got furthest with it."""
    found: dict[str, SliceResult] = {}
    for r in results:
        known = found.get(r.slice)
        if known is None or _BEST_FIRST.index(r.status) < _BEST_FIRST.index(known.status):
            found[r.slice] = r
    return list(found.values())
