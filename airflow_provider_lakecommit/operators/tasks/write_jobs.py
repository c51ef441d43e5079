# SPDX-License-Identifier: Apache-2.0
"""The Spark jobs of a write task: begun with their secrets, and asked to end early all together.

Contract: every job that runs is known from before it begins, so that a kill, however early it comes, finds it. A
request to end has the tasks of each job end behind the record in hand and report what they have read; no further job
begins after it. Only jobs of this attempt are meant.

Failure story: where the control topic cannot be written, and for what has not ended after the grace, the engine is
stopped: what is reported by then counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from airflow_provider_lakecommit.core import RESET_BLOCKED
from airflow_provider_lakecommit.exceptions import BlockedRangeError, LakecommitError, SparkJobError
from airflow_provider_lakecommit.operators.tasks.deadline import KILL_GRACE, before_deadline

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle import ControlPort, GroupResult
    from airflow_provider_lakecommit.hooks import SparkSubmit
    from airflow_provider_lakecommit.iceberg import Tables
    from airflow_provider_lakecommit.spark import Engine, Secrets, SliceResult, WindowJob

__all__ = ["WriteJobs", "left_undone"]

ASKING = 32
"""Jobs that are asked to end at a time: what is said at the same time is one transaction, where it is of one set."""
MEND = (
    "mend the spec, the table (`create` changes none that is there) or the records: after a changed spec or table the "
    f"range is tried again by itself, else `{RESET_BLOCKED}` (--retry, --raise or --skip) or LandingOperationOperator"
)
"""What helps against a range that is not published because of its records."""


class WriteJobs:
    """Those of one attempt at a write task.

    :param log: of the task
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
        """Return True if no further job may begin."""
        return self._ending

    @contextmanager
    def until_deadline(self, timeout: timedelta | None) -> Iterator[None]:
        """While the block runs, jobs are asked to end when the time is near.

        :param timeout: the task's ``execution_timeout``
        """
        try:
            with before_deadline(timeout, self._early_end.request):
                yield
        finally:
            self._early_end.close()

    def stop(self) -> None:
        """Have nothing go on, for a caller that is interrupted."""
        self._ending = True
        self.engine.stop()

    def end_for_kill(self) -> None:
        """The task is told to stop; for signal handlers."""
        self._early_end.request("the task was told to stop", KILL_GRACE)

    def run(self, job: WindowJob, control: ControlPort) -> list[SliceResult]:
        """Run one job to its end.

        :raises SparkJobError: it ended early, or did not begin
        """
        with self._under_way([(job, control)]) as [begun]:
            return self.engine.run(begun, self._secrets(begun))

    def run_together(self, engine: SparkSubmit, asked: Sequence[tuple[WindowJob, ControlPort]]) -> None:
        """Run several jobs to their end, as one of Spark's.

        :raises SparkJobError: it ended early, or did not begin
        """
        with self._under_way(asked) as jobs:
            engine.run_together([(job, self._secrets(job)) for job in jobs])

    @contextmanager
    def _under_way(self, asked: Sequence[tuple[WindowJob, ControlPort]]) -> Iterator[list[WindowJob]]:
        jobs = [job.begun() for job, _ in asked]
        mine = {begun.job_id: (begun, control) for begun, (_, control) in zip(jobs, asked, strict=True)}
        # Before the question: who ends them asks those that are here.
        self._running.update(mine)
        try:
            if self._ending:
                raise SparkJobError("LC8354", "the Spark job did not begin: this task was told to stop")
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
        """What the job's tasks are given, made when the job begins. Airflow knows the secrets of its connections, and
        learns those that the catalog hands out, to strike them out of logs.
        """
        from airflow.sdk.log import mask_secret

        from airflow_provider_lakecommit.cycle import secrets_for

        secrets = secrets_for(self._tables, self._kafka, [job], log=self._log.warning)
        for storage in secrets.tables.values():
            for value in storage.secrets:
                mask_secret(value)
        return secrets


def left_undone(result: GroupResult, whose: str, died: SparkJobError | None = None) -> LakecommitError | None:
    """What a group ends with of which not everything is reported.

    :param whose: which group it is
    :param died: why its job ended before its slices did
    """
    if result.left and not result.ended_early:
        return SparkJobError("LC8355", _why(result, whose, died))
    return BlockedRangeError("LC8356", _why(result, whose)) if result.causes else None


def _why(result: GroupResult, whose: str, died: SparkJobError | None = None) -> str:
    """One line: the cause first, then what is safe, then what helps."""
    if not result.causes:
        return f"{whose}: {result}" if died is None else f"{died}; {whose}: {result}"
    more = f" (and {len(result.causes) - 1} more causes)" if len(result.causes) > 1 else ""
    safe = f"{result.done} of its slices are reported and kept"
    left = f", {len(result.left)} are read again" if result.left else ""
    return f"{result.causes[0]}{more}; {whose}: {safe}{left}; {MEND}"
