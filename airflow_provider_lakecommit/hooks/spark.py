# SPDX-License-Identifier: Apache-2.0
"""Run a window job by spark-submit, through the Spark provider's own hook.

Contract: each job is a process of its own. Job and connection settings, and secret Spark settings of the user, are in
files of a private folder that is deleted when the job ends; arguments and logs contain no secret. Spark's output is the
task's log. On a local master, the workers run this Python. To a cluster, this package is sent, and the files too if the
driver runs there; other libraries must be installed there or sent by `spark.archives`. Connection settings reach
executors in the tasks' code, not in a file.

Failure story: a failed job is a :class:`SparkJobError`; its reported slices are in the control log, where the caller
reads them. The next job on the same machine removes the files of a killed task. :meth:`SparkSubmit.stop` sends SIGTERM
and, after the grace period, the provider's hook kills the job; a job does not outlive an interrupted caller.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.hooks.connections import connection, master_url
from airflow_provider_lakecommit.hooks.secrets import hide
from airflow_provider_lakecommit.redaction import redacted, secrets_in, without
from airflow_provider_lakecommit.spark import (
    LOAD_DEFAULTS,
    PACKAGE,
    REDACTION,
    WORKERS_DIED,
    package_zip,
    save_properties,
    scratch_folder,
)

if TYPE_CHECKING:
    from airflow_provider_lakecommit.spark import Secrets, SliceResult, WindowJob


__all__ = ["SparkMaster", "SparkSubmit", "spark_master"]

APPLICATION = PACKAGE / "spark" / "main.py"

DEFAULTS = {
    "spark.ui.enabled": "false",
    # The rows never enter the JVM: its tasks hand over a number and get back one line per slice.
    "spark.driver.memory": "1g",
    "spark.log.level": "WARN",
    "spark.python.worker.faulthandler.enabled": "true",
    **REDACTION,
}
LOCAL_DEFAULTS = {
    # A machine whose own name does not resolve, or resolves to an unreachable network, can still run a local job.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
DRIVER_ON_CLUSTER = {
    # Another driver of the same job would read again what this one has reported. A retry of the task asks first.
    "spark.yarn.maxAppAttempts": "1"
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkMaster:
    """Where a Spark connection runs jobs."""

    local: bool
    driver_on_cluster: bool

    @property
    def conf(self) -> dict[str, str]:
        """Settings that a user's own override."""
        if self.driver_on_cluster:
            return {**DEFAULTS, **DRIVER_ON_CLUSTER}
        python = os.environ.get("PYSPARK_PYTHON", sys.executable)
        here = {"spark.pyspark.python": python, "spark.pyspark.driver.python": python}
        return {**DEFAULTS, **(LOCAL_DEFAULTS if self.local else {}), **here}

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of the spark-submit process: the one installed with this Python, or for a cluster the
        user's own, if there is one. The installed one runs the first `python3` of the search path and expects pyspark
        there.
        """
        beside, others = os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)
        own = not self.local and shutil.which("spark-submit", path=others) is not None
        path = [others, beside] if own else [beside, others]
        return {**os.environ, "PATH": os.pathsep.join(path)}


def spark_master(conn_id: str) -> SparkMaster:
    """Return what a Spark connection says, without contacting anything."""
    found = connection(conn_id, "spark", f"the master as host ({_MASTERS})")
    master, on_cluster = master_url(found), found.extra_dejson.get("deploy-mode") == "cluster"
    if not _MASTER.fullmatch(master):
        raise SpecError(
            "LC5311",
            f"the Airflow connection {conn_id!r}, of type `{found.conn_type}`, is not a Spark connection: "
            f"{without(master, ())!r} is not a master. Its type must be `spark`, with the master as host "
            f"({_MASTERS}), or `spark_connect`",
        )
    if on_cluster and master.startswith("spark://"):
        raise SpecError(
            "LC5312",
            f"the Spark connection {conn_id!r} asks for `deploy-mode: cluster` on {master}: a standalone cluster "
            "does not support this for Python applications. Remove deploy-mode (the driver then runs alongside the "
            "task), or run a Spark Connect server on the cluster and give its connection of type `spark_connect`",
        )
    if "k8s" in master and getattr(spark_submit, "kube_client", None) is None:
        raise SpecError(
            "LC5313",
            f"the Spark connection {conn_id!r} submits to {master}: the Spark provider's hook needs "
            "apache-airflow-providers-cncf-kubernetes for this; install it alongside Airflow",
        )
    return SparkMaster(local=re.match(r"local\b", master) is not None, driver_on_cluster=on_cluster)


_MASTERS = "local[2], yarn, spark://host:7077, k8s://https://host"
_MASTER = re.compile(r"local(\[.+\]|-cluster\[.+\])?|yarn|(spark|k8s)://\S+")
"""What spark-submit takes for one."""
_FRAME = re.compile(r"at [\w.$<>/]+\(.*\)|\.\.\. \d+ more")
"""A line of a Java stack trace, which explains nothing on its own."""
_ENDED = re.compile(r"Cannot execute: .*\. Error code is: (?P<code>-?\d+)\.\s+Last spark-submit output:\s*", re.DOTALL)
_NO_JAVA = re.compile(r"JAVA_HOME is not set|/java: No such file|command not found: java|java: command not found")


def _last_error_lines(error: str) -> str:
    """Return what the provider's hook reports for a failed job: its last line and the lines before it. The command line
    at its beginning, and stack traces, are already in the log.
    """
    ended = _ENDED.match(error)
    said = [line.strip() for line in error[ended.end() :].splitlines() if line.strip()] if ended else []
    lines = [line for line in said if not _FRAME.match(line)] or said
    if ended is None or not lines:
        return error
    if _NO_JAVA.search(error):
        return (
            f"Spark needs Java 17 or 21 on the machine of this task: install it, or set JAVA_HOME ({' '.join(lines)})"
        )
    return "\n".join([f"code {ended['code']}, {lines[-1]}", *lines[:-1]])


class _SubmitHook(SparkSubmitHook):
    def _build_spark_common_args(self) -> list[str]:
        # Else Spark takes a file of properties in place of its own defaults.
        return [*super()._build_spark_common_args(), *([LOAD_DEFAULTS] if self._properties_file else [])]

    @property
    def process(self) -> subprocess.Popen[str] | None:
        """The running spark-submit. The provider's hook can only kill it, which leaves no time to close anything."""
        process: subprocess.Popen[str] | None = self._submit_sp
        return process


class SparkSubmit:
    """Window jobs, each in its own spark-submit.

    :param conn_id: Airflow connection of type `spark`
    :param conf: Spark settings that override the defaults here
    :param grace: maximum duration of a job after a request to stop
    """

    ahead = 0

    def __init__(self, conn_id: str, *, conf: Mapping[str, Any] | None = None, grace: timedelta) -> None:
        self._conn_id = conn_id
        self._conf = dict(conf or {})
        hide({"conf": self._conf})
        self._grace = grace.total_seconds()
        self._running: list[_Submission] = []
        self._stopped = False

    def start(self) -> None:
        """Nothing is kept between jobs."""

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        """Run the job to its end.

        :raises SparkJobError: it ended with an error, or was stopped
        :raises SpecError: the connection cannot be used, or this machine has no spark-submit
        """
        self._submit([job], [secrets], f"the Spark job of group {job.group}", f"{job.plan.coverage}, ")
        return []

    def run_together(self, requests: Sequence[tuple[WindowJob, Secrets]]) -> list[list[SliceResult]]:
        """Run several jobs to their end, as one Spark job."""
        jobs, secrets = [job for job, _ in requests], [each for _, each in requests]
        self._submit(jobs, secrets, f"the Spark job of {len(jobs)} groups", "")
        return []

    def _submit(self, jobs: Sequence[WindowJob], secrets: Sequence[Secrets], what: str, where: str) -> None:
        master = spark_master(self._conn_id)
        with _files(jobs, secrets, ship=not master.local) as files:
            hook = files.hook({**master.conf, **self._conf}, self._conn_id, master)
            submission = _Submission(hook, self._grace)
            self._running.append(submission)
            try:
                if self._stopped:
                    raise SparkJobError("LC5314", f"{what} was stopped before it began")
                submission.run(files.environment(master))
            except AirflowException as e:
                # The whole command is in its text, and in that all settings.
                stated = connection(self._conn_id, "spark", "").extra_dejson
                cause = redacted(_last_error_lines(str(e)), {"conf": self._conf, "extra": stated})
                for each in secrets:
                    cause = each.without(cause)
                raise SparkJobError(
                    "LC5315", f"{what}, {where}ended early: {cause}", workers_died=submission.code == WORKERS_DIED
                ) from None
            finally:
                self._running.remove(submission)
                submission.end()

    def stop(self) -> None:
        """Make the jobs end; returns at once, and :meth:`run` then ends."""
        self._stopped = True
        for submission in tuple(self._running):
            submission.stop()

    def close(self) -> None:
        """End running jobs: replicas that were not needed any more. Nothing else is held."""
        if self._running:
            self.stop()


class _Submission:
    def __init__(self, hook: _SubmitHook, grace: float) -> None:
        self._hook = hook
        self._grace = grace
        self._force: threading.Timer | None = None

    def run(self, environment: Mapping[str, str]) -> None:
        try:
            self._hook.submit(str(APPLICATION), env=dict(environment))
        except FileNotFoundError as e:
            raise SpecError(
                "LC5316",
                f"{e.filename} is not on the search path: install pyspark alongside Airflow, or Spark on this worker",
            ) from e

    def stop(self) -> None:
        process = self.process
        if process is None:
            return
        process.terminate()
        if self._force is None:
            self._force = threading.Timer(self._grace, self._hook.on_kill)
            self._force.daemon = True
            self._force.start()

    @property
    def process(self) -> subprocess.Popen[str] | None:
        process = self._hook.process
        return process if process is not None and process.poll() is None else None

    @property
    def code(self) -> int | None:
        process = self._hook.process
        return None if process is None else process.poll()

    def end(self) -> None:
        """An interrupted caller (timeout) leaves a live process."""
        if (process := self.process) is not None:
            self.stop()
            process.communicate()
        if (ended := self._hook.process) is not None and ended.stdout is not None:
            ended.stdout.close()
        if self._force is not None:
            self._force.cancel()


class _Files(NamedTuple):
    job: Path
    secrets: Path
    package: Path | None
    name: str

    def environment(self, master: SparkMaster) -> dict[str, str]:
        """Return the environment of the spark-submit process. A driver copies the files it ships; a killed driver
        leaves these copies.
        """
        copies = {"SPARK_LOCAL_DIRS": str(self.job.parent / "local")}
        return {**master.environment, **(copies if self.package and not master.driver_on_cluster else {})}

    def hook(self, conf: Mapping[str, Any], conn_id: str, master: SparkMaster) -> _SubmitHook:
        """Return a new hook. Everyone who may list this machine's processes can read their arguments."""
        hidden = {key: value for key, value in conf.items() if secrets_in({key: value})}
        properties = self.job.parent / "spark.properties"
        if hidden:
            save_properties(properties, hidden)
        job, secrets = (f.name if master.driver_on_cluster else str(f) for f in (self.job, self.secrets))
        return _SubmitHook(
            conf={key: value for key, value in conf.items() if key not in hidden},
            properties_file=str(properties) if hidden else None,
            conn_id=conn_id,
            name=self.name,
            files=f"{self.job},{self.secrets}" if master.driver_on_cluster else None,
            py_files=str(self.package) if self.package else None,
            application_args=["--job", job, "--secrets", secrets],
        )


@contextmanager
def _files(jobs: Sequence[WindowJob], secrets: Sequence[Secrets], *, ship: bool) -> Iterator[_Files]:
    """Yield the files of some jobs, in a folder that only this user can read."""
    folder = scratch_folder()
    try:
        files = _Files(
            job=folder / "job.json",
            secrets=folder / "secrets.json",
            package=folder / "airflow_provider_lakecommit.zip" if ship else None,
            name=f"lakecommit-{jobs[0].plan.landing}-{jobs[0].group}",
        )
        texts = [job.to_json() for job in jobs]
        files.job.write_text(texts[0] if len(texts) == 1 else json.dumps(texts), encoding="utf-8")
        type(secrets[0]).save_together(files.secrets, secrets)
        if files.package is not None:
            files.package.write_bytes(package_zip())
        yield files
    finally:
        shutil.rmtree(folder, ignore_errors=True)
