# SPDX-License-Identifier: Apache-2.0
"""A stand-in for spark-submit: runs the tasks of a window job one after the other in one process, without a JVM.

Contract: takes the arguments that the provider's hook gives to spark-submit, runs :func:`run_task`, which is what
Spark's tasks run, and ends with the same codes as :mod:`airflow_provider_lakecommit.spark.main`. For tests of what
Airflow makes of a run, where Spark's start would be nearly all of the time; the others use the real one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from airflow_provider_lakecommit.spark.task import run_task
from tests.airflow.faults import FOLDER, Faults

MASTER = "spark://stand-in:7077"
"""No local master, so that the search path decides which spark-submit is run."""


def main(arguments: list[str]) -> int:
    """Run the job."""
    job = WindowJob.from_json(Path(_after("--job", arguments)).read_text())
    secrets = Secrets.load_together(_after("--secrets", arguments))[0]
    faults = Faults(Path(os.environ[FOLDER]), job.landing.name)
    ends = []
    for index, work in enumerate(job.plan.slices):
        faults.pass_by(f"write.{work.spans[0].range.start}")
        ends.append(run_task(job, secrets, index).status)
    return 0 if all(status.is_clean for status in ends) else 1


def install(folder: Path) -> str:
    """Put the stand-in on a search path, which is returned."""
    folder.mkdir(parents=True)
    program = folder / "spark-submit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tests.airflow.stand_in "$@"\n')
    program.chmod(0o755)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _after(option: str, arguments: list[str]) -> str:
    return arguments[arguments.index(option) + 1]


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
