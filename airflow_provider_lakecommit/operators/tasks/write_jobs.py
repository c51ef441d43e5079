# SPDX-License-Identifier: Apache-2.0
"""The Spark jobs of a write task: started with their secrets, and stopped early all together.

Contract: every job is registered before it starts, so a kill at any time finds it. A request to end stops the tasks of
each job at the current record, and they report what they have read; no further job starts after it. Only jobs of this
attempt are stopped.

Failure story: if the control topic cannot be written, or a job has not ended after the grace period, the engine is
stopped: slices reported by then count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_lakecommit.core import UNBLOCK
from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError, SparkJobError

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import ControlPort, GroupResult
    from airflow_provider_lakecommit.hooks import SparkSubmit
    from airflow_provider_lakecommit.iceberg import Tables
    from airflow_provider_lakecommit.spark import Engine, Secrets, SliceResult, WindowJob

ASKING = 32
"""Jobs per request to end: requests of one set at the same time are one transaction."""
REMEDY = (
    "fix the spec, the table (`create` does not change an existing one) or the records; after a changed spec or table "
    f"the range is retried, otherwise use `{UNBLOCK}` (or --raise N, --skip) or LandingOperationOperator"
)
"""Remedy for a range that is not published because of its records."""


class WriteJobs:
    """The jobs of one attempt at a write task.

    :param log: the task's log
    """

    def __init__(self, engine: Engine, tables: Tables, kafka: Mapping[str, Any], log: Any) -> None:
        from airflow_provider_lakecommit.cycle import EarlyEnd

        self.engine = engine
        self._tables, self._kafka, self._log = tables, kafka, log
        self._running: dict[UUID, tuple[WindowJob, ControlPort]] = {}
        self._ending = False
        self._early_end = EarlyEnd(self._end_all, engine.stop)

    @property
    def ending(self) -> bool:
        """Return True if no further job may start."""
        return self._ending

    @contextmanager
    def until_deadline(self, timeout: timedelta | None) -> Iterator[None]:
        """Request the end of the jobs when the timeout is near, while the block runs."""
        try:
            with before_deadline(timeout, self._early_end.request):
                yield
        finally:
            self._early_end.close()

    def stop(self) -> None:
        """Stop everything, for a caller that is interrupted."""
        self._ending = True
        self.engine.stop()

    def end_for_kill(self) -> None:
        """End the jobs of a task that is stopped; for signal handlers."""
        self._early_end.request("the task was stopped", KILL_GRACE)

    def run(self, job: WindowJob, control: ControlPort) -> list[SliceResult]:
        """Run one job to its end."""
        with self._under_way([(job, control)]) as [begun]:
            return self.engine.run(begun, self._secrets(begun))

    def run_together(self, engine: SparkSubmit, requested: Sequence[tuple[WindowJob, ControlPort]]) -> None:
        """Run several jobs to their end, as one Spark job."""
        with self._under_way(requested) as jobs:
            engine.run_together([(job, self._secrets(job)) for job in jobs])

    @contextmanager
    def _under_way(self, requested: Sequence[tuple[WindowJob, ControlPort]]) -> Iterator[list[WindowJob]]:
        jobs = [job.begun() for job, _ in requested]
        mine = {begun.job_id: (begun, control) for begun, (_, control) in zip(jobs, requested, strict=True)}
        # Before the check: a request to end covers the registered jobs.
        self._running.update(mine)
        try:
            if self._ending:
                raise SparkJobError("LC8354", "the Spark job did not start: this task was stopped")
            yield jobs
        finally:
            for job_id in mine:
                del self._running[job_id]

    def _end_all(self, reason: str) -> None:
        from airflow_provider_lakecommit.cycle import end_job

        self._ending = True
        running = tuple(self._running.values())
        if not running:
            # There is nothing to save.
            self.engine.stop()
            return
        with ThreadPoolExecutor(min(ASKING, len(running)), thread_name_prefix="lakecommit-end") as pool:
            for each in [pool.submit(end_job, control, job, reason) for job, control in running]:
                each.result()

    def _secrets(self, job: WindowJob) -> Secrets:
        """Return the secrets of the job's tasks, made when the job starts. Airflow masks the secrets of its connections
        in logs, and now also the credentials that the catalog vends.
        """
        from airflow.sdk.log import mask_secret

        from airflow_provider_lakecommit.cycle import secrets_for

        secrets = secrets_for(self._tables, self._kafka, [job], log=self._log.warning)
        for storage in secrets.tables.values():
            for value in storage.secrets:
                mask_secret(value)
        return secrets


def left_undone(result: GroupResult, share: str, died: SparkJobError | None = None) -> LakecommitError | None:
    """Return the error of an incomplete group, if it is one.

    :param died: why its job ended before its slices did
    """
    if result.left and not result.ended_early:
        return SparkJobError("LC8355", _why(result, share, died))
    return BlockedRangeError("LC8356", _why(result, share)) if result.causes else None


def _why(result: GroupResult, share: str, died: SparkJobError | None = None) -> str:
    """Return one line: the cause first, then the saved slices, then the remedy."""
    if not result.causes:
        return f"{share}: {result}" if died is None else f"{died}; {share}: {result}"
    more = f" (and {len(result.causes) - 1} more causes)" if len(result.causes) > 1 else ""
    safe = f"{result.done} of its slices are reported and kept"
    left = f", {len(result.left)} must be read again" if result.left else ""
    return f"{result.causes[0]}{more}; {share}: {safe}{left}; {REMEDY}"


KILL_GRACE = 3.0
"""Seconds that Spark tasks have to report what they have read when a task is killed: Airflow waits five in total."""
MARGIN = timedelta(seconds=15)
"""Time to report and publish what was read; at most a fifth of a short timeout."""


@contextmanager
def before_deadline(timeout: timedelta | None, end: Callable[[str, float], None]) -> Iterator[None]:
    """Watch the time while the block runs.

    :param end: ends the work early; takes the reason, and the seconds that Spark tasks have
    """
    if timeout is None:
        yield
        return
    margin = min(MARGIN, timeout / 5)
    why = f"its execution_timeout of {timeout} is near"
    timer = threading.Timer((timeout - margin).total_seconds(), end, (why, margin.total_seconds() / 2))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
