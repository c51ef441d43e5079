# SPDX-License-Identifier: Apache-2.0
"""A window job by spark-submit, through the Spark provider's own hook.

Contract: one object runs one job. Job and connection settings go in files of a private folder that is gone when the job
has ended; nothing secret is in an argument, in Spark's configuration or in the log. Spark's output is the task's log.
On a local master the workers are the Python that runs this; for a cluster the files and this package are shipped, the
other libraries must be installed there.

Failure story: a job that ends badly is a :class:`SparkJobError`; what of it was reported stands in the control log, so
the caller asks there and not here. :meth:`SparkSubmit.stop` asks by SIGTERM and, after the grace period, has the
provider's hook end the job by force; a job whose caller was interrupted does not outlive it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.connections import connection

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark.job import Secrets, WindowJob

__all__ = ["SparkMaster", "SparkSubmit", "spark_master"]

PACKAGE = Path(__file__).resolve().parent.parent
APPLICATION = PACKAGE / "spark" / "main.py"

DEFAULTS = {
    "spark.ui.enabled": "false",
    # The rows never enter the JVM: its tasks hand over a number and get back one line per slice.
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
    "spark.python.worker.faulthandler.enabled": "true",
}
LOCAL_DEFAULTS = {
    # A machine whose own name resolves to nothing, or to a network that is away, can still run a local job.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMaster:
    """Where a Spark connection runs its jobs."""

    local: bool
    driver_on_cluster: bool

    @property
    def conf(self) -> dict[str, str]:
        """Settings that a user's own win over."""
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        here = {} if self.driver_on_cluster else {"spark.pyspark.python": python, "spark.pyspark.driver.python": python}
        return {**DEFAULTS, **(LOCAL_DEFAULTS if self.local else {}), **here}

    @property
    def environment(self) -> dict[str, str]:
        """Of the spark-submit process: the one installed beside this Python, for a cluster the user's own first."""
        beside, others = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
        path = [beside, others] if self.local else [others, beside]
        return {**os.environ, "PATH": os.pathsep.join(path)}


def spark_master(conn_id: str) -> SparkMaster:
    """What a Spark connection says; nothing is contacted.

    :raises SpecError: no such connection, or one of a type that has no engine yet
    """
    found = connection(conn_id, "spark", "the master as host (local[2], yarn, spark://host:7077, k8s://https://host)")
    if found.conn_type == "spark_connect":
        raise SpecError(
            f"the Spark connection {conn_id!r} is of type `spark_connect`: Spark Connect comes with a later release, "
            "use a connection of type `spark` (spark-submit) until then"
        )
    return SparkMaster(
        local=(found.host or "").startswith("local"),
        driver_on_cluster=found.extra_dejson.get("deploy-mode") == "cluster",
    )


class _SubmitHook(SparkSubmitHook):
    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The running spark-submit. The provider's hook can only kill it, which leaves no time to close anything."""
        process: subprocess.Popen[str] | None = self._submit_sp
        return process


class SparkSubmit:
    """One run of spark-submit.

    :param conn_id: Airflow connection of type `spark`
    :param conf: Spark settings that win over the defaults here
    :param grace: how long a job that is told to stop may take
    """

    def __init__(self, conn_id: str, *, conf: Mapping[str, Any] | None = None, grace: timedelta) -> None:
        self._conn_id = conn_id
        self._conf = dict(conf or {})
        self._grace = grace.total_seconds()
        self._hook: _SubmitHook | None = None
        self._force: threading.Timer | None = None
        self._stopped = False

    def run(self, job: WindowJob, secrets: Secrets) -> None:
        """Run the job to its end.

        :raises SparkJobError: it ended with an error, or was stopped
        :raises SpecError: the connection cannot be used, or this machine has no spark-submit
        """
        master = spark_master(self._conn_id)
        if self._stopped:
            raise SparkJobError(f"the Spark job of group {job.group} was told to stop before it began")
        with _files(job, secrets, ship=not master.local) as files:
            self._hook = files.hook({**master.conf, **self._conf}, self._conn_id, master)
            try:
                self._hook.submit(str(APPLICATION), env=master.environment)
            except AirflowException as e:
                raise SparkJobError(f"the Spark job of group {job.group}, {job.plan.coverage}, ended early: {e}") from e
            except FileNotFoundError as e:
                raise SpecError(
                    f"{e.filename} is not on the search path: install pyspark beside Airflow, or Spark on this worker"
                ) from e
            finally:
                self._end()

    def stop(self) -> None:
        """Ask the job to end, and see to it that it does; returns at once, :meth:`run` then ends by itself."""
        self._stopped = True
        process = self._process
        if process is None:
            return
        process.terminate()
        if self._force is None and self._hook is not None:
            self._force = threading.Timer(self._grace, self._hook.on_kill)
            self._force.daemon = True
            self._force.start()

    @property
    def _process(self) -> subprocess.Popen[str] | None:
        process = self._hook.process if self._hook else None
        return process if process is not None and process.poll() is None else None

    def _end(self) -> None:
        """After a normal end nothing is left to do; a caller that was interrupted (timeout) leaves a live process."""
        if (process := self._process) is not None:
            self.stop()
            process.communicate()
        if (ended := self._hook.process if self._hook else None) is not None and ended.stdout is not None:
            ended.stdout.close()
        if self._force is not None:
            self._force.cancel()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Files:
    job: Path
    secrets: Path
    package: Path | None
    name: str

    def hook(self, conf: Mapping[str, Any], conn_id: str, master: SparkMaster) -> _SubmitHook:
        job, secrets = (f.name if master.driver_on_cluster else str(f) for f in (self.job, self.secrets))
        return _SubmitHook(
            conf=dict(conf),
            conn_id=conn_id,
            name=self.name,
            files=f"{self.job},{self.secrets}" if self.package else None,
            py_files=str(self.package) if self.package else None,
            application_args=["--job", job, "--secrets", secrets],
        )


@contextmanager
def _files(job: WindowJob, secrets: Secrets, *, ship: bool) -> Iterator[_Files]:
    """The job's files in a folder that only this user can read."""
    with tempfile.TemporaryDirectory(prefix="lakecommit-") as folder:
        files = _Files(
            job=Path(folder, "job.json"),
            secrets=Path(folder, "secrets.json"),
            package=Path(folder, "airflow_provider_lakecommit.zip") if ship else None,
            name=f"lakecommit-{job.plan.landing}-{job.group}",
        )
        files.job.write_text(job.to_json(), encoding="utf-8")
        try:
            secrets.save(files.secrets)
        except TypeError as e:
            callables = ", ".join(sorted(key for key, value in secrets.kafka.items() if callable(value)))
            raise SpecError(
                f"the Kafka settings {callables} of this landing are functions, which Spark's workers cannot be given: "
                "use credentials that are settings, or let the workers have their own identity"
            ) from e
        if files.package is not None:
            _zip_package(files.package)
        yield files


def _zip_package(target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for source in sorted(PACKAGE.rglob("*.py")):
            archive.write(source, source.relative_to(PACKAGE.parent))
