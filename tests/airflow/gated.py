# SPDX-License-Identifier: Apache-2.0
"""Spark's own Python workers, which pass by a place before each slice: see :mod:`tests.airflow.faults`.

Contract: a module for `spark.python.daemon.module`. A real job then can be held in the middle, for as long as a test
needs to do something to it, on a machine of any speed.
"""

from __future__ import annotations

import os
import runpy
from pathlib import Path

from airflow_provider_lakecommit.spark import task
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from tests.airflow.faults import FOLDER, Faults

GATED = {"spark.python.daemon.module": __name__}
"""Spark's setting that has this module's workers do the slices."""


def gate() -> None:
    """Before every slice that a worker of this daemon begins."""
    run = task.run_task

    def gated(work: WindowJob, secrets: Secrets, index: int, *, deaths: int = 0) -> SliceResult:
        first = work.plan.slices[index].spans[0].range.start
        Faults(Path(os.environ[FOLDER]), work.landing.name).pass_by(f"write.{first}")
        return run(work, secrets, index, deaths=deaths)

    task.run_task = gated


if __name__ == "__main__":
    gate()
    runpy.run_module("pyspark.daemon", run_name="__main__")
