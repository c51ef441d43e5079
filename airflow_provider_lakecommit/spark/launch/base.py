# SPDX-License-Identifier: Apache-2.0
"""Engines that run window jobs: one interface for spark-submit, Spark Connect and a local session.

Contract: an engine may run several jobs, also concurrently from several threads. A job's secrets are given to its tasks
and appear nowhere else. Finished work of a job's tasks is in the control topic whatever becomes of the job, so callers
read it there; the results that an engine returns are for the log of the run.

Failure story: anything that ends a job early is a :class:`~airflow_provider_lakecommit.exceptions.SparkJobError`. A
stopped job loses only the slices in progress.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.main import WORKERS_DIED

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob

__all__ = ["AHEAD", "WORKERS_DIED", "EarlierWorkError", "Engine"]

AHEAD = 2
"""Windows ahead for a warm engine: one is being written, and one is ready for a free processor."""


class EarlierWorkError(SparkJobError):
    """An earlier attempt's work, which was awaited in place of the job, has ended: read the control topic for what is
    left of the group, and run that.
    """


class Engine(Protocol):
    """Runs window jobs.

    :ivar ahead: concurrent windows besides the next one to close; 0 if each job needs a process of its own
    """

    @property
    def ahead(self) -> int: ...

    def start(self) -> None:
        """Start what the first job needs, and restart it if it is gone. Cheap if all is running.

        :raises SparkJobError: it cannot be started
        """

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        """Run a job to its end.

        Returns the known results of its slices; an engine with a driver on another machine may have none.

        :raises EarlierWorkError: an engine that outlives its callers waited for an earlier attempt's job of the
            same group, which may not have done all of this one
        :raises SparkJobError: it ended early, or was stopped
        """

    def stop(self) -> None:
        """Ask all running jobs to end early; returns at once, :meth:`run` then ends by itself. For signal handlers."""

    def close(self) -> None:
        """Release what :meth:`start` took."""
