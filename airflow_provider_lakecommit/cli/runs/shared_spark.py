# SPDX-License-Identifier: Apache-2.0
"""The one local Spark session of the landings of a set.

The first landing that needs it starts it. Small jobs that wait at the same time run as tasks of one Spark job, so that
five hundred small windows do not cost five hundred jobs; a large job runs by itself. A job that dies, dies for all
landings in it, and each retries the rest of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from airflow_provider_lakecommit.cycle import Combined
from airflow_provider_lakecommit.exceptions import SparkJobError
from airflow_provider_lakecommit.spark import LocalSpark, Secrets, SliceResult, WindowJob

SMALL = 100_000
"""Most records of a job that runs together with others."""
AT_ONCE = 4
"""Spark jobs of small ones at a time: a hanging one blocks only its own landings."""
TOGETHER = 256
"""Most small jobs in one."""


class SharedSpark:
    """One engine for all landings; the session's owner closes it."""

    ahead = 0

    def __init__(self, session: LocalSpark) -> None:
        self._session = session
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
        if sum(map(len, job.plan.slices)) > SMALL:
            return self._session.run(job, secrets)
        return self._small.request((job, secrets))

    def stop(self) -> None:
        self._stopped = True
        self._session.stop()

    def close(self) -> None:
        """Do nothing: the session is shared."""

    def _run_all(self, requests: Sequence[tuple[WindowJob, Secrets]]) -> Sequence[list[SliceResult]]:
        self._go_on_or_stop()
        return self._session.run_together(requests)

    def _go_on_or_stop(self) -> None:
        if self._stopped:
            raise SparkJobError("LC8033", "this call was stopped")
