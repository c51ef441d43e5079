# SPDX-License-Identifier: Apache-2.0
"""The one local Spark session of several landings.

Contract: the session is begun by the first landing that needs it, and closed by its owner. Where it is asked for, jobs
of few records that are there at the same time run *together*, as tasks of one Spark job, so that five hundred small
windows do not cost five hundred; a large one is a job of its own, which nobody waits for but its landing. Nothing
begins after the session was asked to stop.

Failure story: a Spark job that dies, dies for all that are in it; what their slices reported is safe, and each landing
does what is left of its own, as it does wherever a job died.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from airflow_provider_lakecommit.engines.local import LocalSpark
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.many.combined import Combined
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob

__all__ = ["SharedSpark"]

SMALL = 100_000
"""Most records of a job that runs together with others."""
AT_ONCE = 4
"""Spark jobs of small ones at a time: one that hangs holds up those in it, and no others."""
TOGETHER = 256
"""Most of them in one."""


class SharedSpark:
    """An engine for all of them.

    :param session: its owner closes it
    :param together: do small jobs run as one?
    """

    def __init__(self, session: LocalSpark, *, together: bool = False) -> None:
        self._session = session
        self._together = together
        self._starting = threading.Lock()
        self._stopped = False
        self._small = Combined[tuple[WindowJob, Secrets], list[SliceResult]](
            self._run_all, at_once=AT_ONCE, most=TOGETHER
        )

    def start(self) -> None:
        with self._starting:
            self._go_on_or_stop()
            self._session.start()

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        self._go_on_or_stop()
        if not self._together or sum(map(len, job.plan.slices)) > SMALL:
            return self._session.run(job, secrets)
        return self._small.ask((job, secrets))

    @property
    def ahead(self) -> int:
        return 0 if self._together else self._session.ahead

    def stop(self) -> None:
        self._stopped = True
        self._session.stop()

    def close(self) -> None:
        """It is everybody's."""

    def _run_all(self, asked: Sequence[tuple[WindowJob, Secrets]]) -> Sequence[list[SliceResult]]:
        self._go_on_or_stop()
        return self._session.run_together(asked)

    def _go_on_or_stop(self) -> None:
        if self._stopped:
            raise SparkJobError("this call was told to stop")
