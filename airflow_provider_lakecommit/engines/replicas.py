# SPDX-License-Identifier: Apache-2.0
"""The replicas of a job, run side by side by one process: the same slices, several times, each as a job of its own.

Contract: :func:`run_replicas` returns as soon as one replica has all slices behind it, or all replicas together have;
its results have each slice once, by whoever came furthest with it. Tasks of the others see in the control log that they
are not needed, and end by themselves within two seconds. One job alone is run as it is, in the caller's thread.

Failure story: a replica that dies is told and costs nothing while another one lives. Only when none of them has done
all, what became of them is what became of the job. A replica that does not end (its machine hangs) is left alone after
:data:`GOODBYE_SECONDS`; it ends with its engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from queue import Empty, SimpleQueue

from airflow_provider_lakecommit.engines.base import EarlierWorkError
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.job import SliceResult, SliceStatus, WindowJob

__all__ = ["GOODBYE_SECONDS", "best_of", "run_replicas"]

GOODBYE_SECONDS = 5.0
"""For which replicas that are not needed any more are waited for."""
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


def run_replicas(job: WindowJob, run: Run, log: Callable[[str], None]) -> Sequence[SliceResult]:
    """Run a job as often at once as it says.

    :param run: runs one of them to its end; called in several threads
    :raises SparkJobError: all ended early
    """
    if job.replicas == 1:
        return run(job)
    ended: SimpleQueue[tuple[int, _End]] = SimpleQueue()

    def one(number: int) -> None:
        try:
            ended.put((number, run(replace(job, replica=number))))
        except BaseException as e:
            ended.put((number, e))

    for number in range(job.replicas):
        # No process waits for them at its end, should one never return.
        name = f"group-{job.group}-replica-{number}"
        threading.Thread(target=one, args=(number,), name=name, daemon=True).start()
    ends: dict[int, _End] = {}
    while len(ends) < job.replicas:
        try:
            number, end = ended.get(timeout=GOODBYE_SECONDS if _whole(job, ends.values()) else None)
        except Empty:
            late = ", ".join(str(n) for n in range(job.replicas) if n not in ends)
            log(f"group {job.group}: all is reported; replica {late} does not end, and is left alone")
            break
        ends[number] = end
        if isinstance(end, SparkJobError):
            log(f"replica {number} of group {job.group} ended early: {end}")
    return _together(job, [ends[number] for number in sorted(ends)])


def best_of(results: Iterable[SliceResult]) -> list[SliceResult]:
    """Each slice once, as the replica tells that came furthest with it."""
    found: dict[str, SliceResult] = {}
    for r in results:
        known = found.get(r.slice)
        if known is None or _BEST_FIRST.index(r.status) < _BEST_FIRST.index(known.status):
            found[r.slice] = r
    return list(found.values())


def _results(ends: Iterable[_End]) -> list[SliceResult]:
    return best_of(r for end in ends if not isinstance(end, BaseException) for r in end)


def _whole(job: WindowJob, ends: Iterable[_End]) -> bool:
    """Is there nothing left for a replica that still runs? An engine that knows nothing of slices ends well only so."""
    seen = list(ends)
    if any(not isinstance(end, BaseException) and not end for end in seen):
        return True
    done = {r.slice for r in _results(seen) if r.status.is_reported}
    return done.issuperset(map(str, job.plan.slices))


def _together(job: WindowJob, ends: Sequence[_End]) -> Sequence[SliceResult]:
    """What became of the job.

    :raises BaseException: what ended a replica and is no end of a Spark job; else what ended all of them
    """
    errors = [end for end in ends if isinstance(end, BaseException)]
    for error in errors:
        if not isinstance(error, SparkJobError):
            raise error
    results = _results(ends)
    if _whole(job, ends):
        return results
    for error in errors:
        if isinstance(error, EarlierWorkError) or len(errors) == len(ends):
            raise error
    return results
