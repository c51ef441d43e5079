# SPDX-License-Identifier: Apache-2.0
"""What runs window jobs: one face for spark-submit, Spark Connect and a local session.

Contract: an engine may be asked for several jobs, also at the same time from several threads. A job's secrets are given
to its tasks and appear nowhere else. What a job's tasks finished is in the control log whatever becomes of the job, so
callers ask there; the results that an engine returns are for the log of the run.

Failure story: whatever ends a job early is a :class:`~airflow_provider_lakecommit.exceptions.SparkJobError`. A job that
is stopped loses the slices in hand and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark.main import WORKERS_DIED

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob

__all__ = ["AHEAD", "WORKERS_DIED", "EarlierWorkError", "Engine"]

AHEAD = 2
"""Windows ahead for an engine that is warm: one is written, and one is there for a processor that gets free."""


class EarlierWorkError(SparkJobError):
    """Work of an earlier attempt was waited for in place of the job, and has ended: ask the control log what is left of
    the group, and run that.
    """


class Engine(Protocol):
    """Runs window jobs.

    :ivar ahead: windows that may be under way beside the one that is closed next; 0 where each job costs the machine a
        process of its own
    """

    @property
    def ahead(self) -> int: ...

    def start(self) -> None:
        """Have what the first job needs; again when it is gone. Cheap when all is there.

        :raises SparkJobError: it cannot be had
        """

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        """Run a job to its end.

        Returns what is known of its slices; an engine whose driver is on another machine may know nothing.

        :raises EarlierWorkError: an engine that outlives its callers has waited for an earlier attempt's job of the
            same group, which may not have done all of this one
        :raises SparkJobError: it ended early, or was stopped
        """

    def stop(self) -> None:
        """Ask all running jobs to end early; returns at once, :meth:`run` then ends by itself. For signal handlers."""

    def close(self) -> None:
        """Give back what :meth:`start` took."""
