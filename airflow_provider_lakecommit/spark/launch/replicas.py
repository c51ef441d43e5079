# SPDX-License-Identifier: Apache-2.0
"""The replicas of a job, run side by side by one process: the same slices, several times, each as a job of its own; or
a second time those that turn out to be slow.

Contract: :func:`run_replicas` returns as soon as all slices are reported, by one replica or by all together; its
results have each slice once, by whoever came furthest with it. Tasks that are not needed any more see that in the
control log, and end by themselves within two seconds. One job alone is run as it is, in the caller's thread.

Failure story: a replica that dies is told and costs nothing while another one lives. Only when none of them has done
all, what became of them is what became of the job. One that does not end (its machine hangs) is left alone after
:data:`GOODBYE_SECONDS`, also where each of them hangs at what another one has done; it ends with its engine.
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

__all__ = ["GOODBYE_SECONDS", "best_of", "run_replicas"]

GOODBYE_SECONDS = 5.0
"""For which replicas that are not needed any more are waited for."""
LOOK_SECONDS = 1.0
"""Between two looks at what is reported, and what is slow."""
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
"""Results; none of an engine that knows nothing of its slices. Or what ended it."""


class SlowPort(Protocol):
    """Who knows which slices of the job are slow, and which are reported."""

    def found(self) -> WindowJob | None: ...
    def all_reported(self) -> bool: ...


def run_replicas(
    job: WindowJob, run: Run, log: Callable[[str], None], slow: SlowPort | None = None
) -> Sequence[SliceResult]:
    """Run a job as often at once as it says.

    :param run: runs one of them to its end; called in several threads
    :param slow: knows what is reported, and what is slow; with `window.speculation` the original begins alone
    :raises SparkJobError: all ended early
    """
    if job.replicas == 1:
        return run(job)
    race = _Race(job, run, log)
    for _ in range(job.replicas if job.landing.window.speculation is None else 1):
        race.begin(job)
    while race.running:
        done = race.is_whole or (slow is not None and slow.all_reported())
        if race.wait(GOODBYE_SECONDS if done else None if slow is None else LOOK_SECONDS):
            continue
        if done:
            log(f"group {job.group}: all is reported; replica {race.running} does not end, and is left alone")
            # What those have done is not known here: an empty answer has the log asked.
            return race.results() if race.is_whole else []
        if slow is not None and race.begun < job.replicas and (rest := slow.found()) is not None:
            log(f"group {job.group}: {len(rest.plan.slices)} slow slices are done a second time")
            race.begin(rest)
    return race.together()


class _Race:
    """The replicas of one job, and how they ended."""

    def __init__(self, job: WindowJob, run: Run, log: Callable[[str], None]) -> None:
        self._job, self._run, self._log = job, run, log
        self._ended: SimpleQueue[tuple[int, _End]] = SimpleQueue()
        self.begun = 0
        self.ends: dict[int, _End] = {}

    def begin(self, job: WindowJob) -> None:
        """One more, in a thread. No process waits for it at its end, should it never return."""
        number, self.begun = self.begun, self.begun + 1
        name = f"group-{job.group}-replica-{number}"
        threading.Thread(target=self._one, args=(replace(job, replica=number),), name=name, daemon=True).start()

    def _one(self, job: WindowJob) -> None:
        try:
            self._ended.put((job.replica, self._run(job)))
        except BaseException as e:
            self._ended.put((job.replica, e))

    def wait(self, seconds: float | None) -> bool:
        """Wait for the end of one; return True if one ended."""
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
        """The numbers of those that do."""
        return ", ".join(str(number) for number in range(self.begun) if number not in self.ends)

    @property
    def is_whole(self) -> bool:
        """Return True if nothing is left to do. An engine that knows nothing of slices ends well only so, if it had
        them all.
        """
        if any(not isinstance(end, BaseException) and not end for end in self.ends.values()):
            return True
        done = {r.slice for r in self.results() if r.status.is_reported}
        return done.issuperset(map(str, self._job.plan.slices))

    def results(self) -> list[SliceResult]:
        """Each slice once."""
        return best_of(r for end in self.ends.values() if not isinstance(end, BaseException) for r in end)

    def together(self) -> Sequence[SliceResult]:
        """What became of the job.

        :raises BaseException: what ended a replica and is no end of a Spark job; else what ended all of them
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
    """Each slice once, as the replica tells that came furthest with it."""
    found: dict[str, SliceResult] = {}
    for r in results:
        known = found.get(r.slice)
        if known is None or _BEST_FIRST.index(r.status) < _BEST_FIRST.index(known.status):
            found[r.slice] = r
    return list(found.values())
