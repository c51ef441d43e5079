# SPDX-License-Identifier: Apache-2.0
"""The Spark session of a run, with its driver in this process, on this machine or a cluster: created when there is
something to write, kept warm over cycles, and recreated when its Java process or cluster ended it.

Contract: :meth:`LocalSpark.run` runs one job of a partition group, also several concurrently from several threads.
Files of the driver and its secret settings are in a folder of this process that is removed with it; the next process
removes that of a killed one. This package is sent to a cluster; other libraries must be present there, or be sent by
`spark.archives`.

Failure story: anything that ends a Spark job early is a :class:`SparkJobError`; slices reported before are safe. A dead
Python worker or executor costs its slices in progress, which Spark gives to another one. The Java process ends with
this one, when its standard input ends, and the cluster's executors end with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import SparkJobError, SpecError
from airflow_provider_lakecommit.landing import SPARK_KEYS, wrong_with_spark
from airflow_provider_lakecommit.redaction import secrets_in
from airflow_provider_lakecommit.spark.job import DECODED, Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.launch.base import AHEAD, Engine
from airflow_provider_lakecommit.spark.launch.java import JAVA_REMEDY, java_here
from airflow_provider_lakecommit.spark.launch.package import package_digest, package_zip
from airflow_provider_lakecommit.spark.launch.process import CLI
from airflow_provider_lakecommit.spark.launch.scratch import REDACTION, beside_the_arguments, scratch_folder
from airflow_provider_lakecommit.spark.probe import run_probe
from airflow_provider_lakecommit.spark.window import run_window, run_windows, workers_died

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_ATTEMPTS = 3
STOP_SECONDS = 10.0
_LOCAL = re.compile(r"local(\[([0-9]+|\*)\])?")
PYTHON = "spark.pyspark.python"

LOG_LEVEL = "ERROR"
_LOGGING = f"""\
rootLogger.level = {LOG_LEVEL.lower()}
rootLogger.appenderRef.console.ref = console
appender.console.name = console
appender.console.type = Console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex{{2}}
"""
"""Logging of the Java process from its first line on: `spark.log.level` only applies once Spark has read it."""

JAVA_OPTIONS = "-XX:TieredStopAtLevel=1"
"""Java runs for seconds and does little: its second compiler costs more processor time than it saves."""

SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": LOG_LEVEL,
    # Java only schedules; the records go through the Python workers.
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.worker.reuse": "true",
    "spark.api.mode": "classic",
}
ON_THIS_MACHINE: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""For a local master; executors on other machines could not reach such a driver."""


class SparkSection:
    """The section `spark` of a spec.

    :raises SpecError: unknown keys or wrong values
    """

    def __init__(self, section: Mapping[str, Any]) -> None:
        if wrong := wrong_with_spark(section):
            raise SpecError("LC5022", "; ".join(wrong))
        master, conf, remote = (section.get(key) for key in SPARK_KEYS)
        self.remote = remote
        self.master = master or "local[*]"
        if plainly := _LOCAL.fullmatch(self.master):
            # With Spark's one attempt per task on a local master, a dead worker would end the whole job.
            self.master = f"local[{plainly[2] or 1},{TASK_ATTEMPTS}]"
        self.conf = {str(k): str(v).lower() if isinstance(v, bool) else str(v) for k, v in (conf or {}).items()}

    @property
    def is_local(self) -> bool:
        """Return True if the tasks run on this machine, with its files and its Python."""
        return re.match(r"local\b", self.master) is not None

    @property
    def is_warm(self) -> bool:
        """Return True if Spark already runs, so that using it costs almost nothing."""
        return self.remote is not None


def engine_of(
    section: SparkSection, landing: str, *, log: Callable[[str], None], on_start: Callable[[], None], lane: str = "live"
) -> Engine:
    """Return the engine of a spec; nothing is started or contacted.

    :raises SpecError: `remote` is not an address of a Spark Connect server
    """
    if section.remote is None:
        return LocalSpark(section, log=log, on_start=on_start)
    from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine

    return ConnectEngine(section.remote, deployment=CLI, landing=landing, lane=lane)


class LocalSpark:
    """A session that starts when needed.

    :param on_start: called after each start, because Spark replaces the interrupt handlers
    """

    ahead = AHEAD

    def __init__(self, section: SparkSection, *, log: Callable[[str], None], on_start: Callable[[], None]) -> None:
        self._section = section
        self._log = log
        self._on_start = on_start
        self._session: SparkSession | None = None
        self._folder: Path | None = None

    def start(self) -> None:
        """Start a working session, from the main thread.

        :raises SparkJobError: Spark does not start
        """
        if self._session is not None and _answers(self._session):
            return
        if self._session is not None:
            self._log("the Spark session has ended; starting another one")
            self._drop()
        self._session = self._new()
        self._on_start()

    def run(self, job: WindowJob, secrets: Secrets) -> list[SliceResult]:
        """Run a job to its end.

        :raises SparkJobError: it ended early; what its tasks reported before is safe
        """
        session = self._started
        try:
            return run_window(session, job, secrets)
        except Exception as e:
            raise SparkJobError(
                "LC5024",
                f"the Spark job of group {job.group} ended early: {_first_line(e)}",
                workers_died=workers_died(str(e)),
            ) from e

    def run_together(self, requests: Sequence[tuple[WindowJob, Secrets]]) -> list[list[SliceResult]]:
        """Run several jobs to their end as one Spark job.

        :raises SparkJobError: it ended early; what their tasks reported before is safe
        """
        session = self._started
        try:
            return run_windows(session, requests)
        except Exception as e:
            whose = ", ".join(job.landing.name for job, _ in requests[:3])
            raise SparkJobError(
                "LC5025",
                f"the Spark job of {len(requests)} landings ({whose}, …) ended early: {_first_line(e)}",
                workers_died=workers_died(str(e)),
            ) from e

    def probe(self, paths: Mapping[str, str], secrets: Secrets) -> dict[str, Any]:
        """Return a task's view of this session; see :mod:`~airflow_provider_lakecommit.spark.probe`.

        :raises SparkJobError: the task did not answer
        """
        return run_probe(self._started, paths, partial(Secrets.from_json, secrets.to_json()))

    def stop(self) -> None:
        """Stop all tasks; returns at once."""
        if self._session is not None:
            with contextlib.suppress(Exception):
                self._session.sparkContext.cancelAllJobs()

    def close(self) -> None:
        """Stop Spark and remove its files and ours."""
        if self._session is not None:
            self._drop()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    @property
    def _started(self) -> SparkSession:
        if self._session is None:
            raise SparkJobError("LC5023", "the Spark session is not started")
        return self._session

    def _new(self) -> SparkSession:
        from pyspark.sql import SparkSession

        self._folder = folder = self._folder or scratch_folder()
        logging = folder / "log4j2.properties"
        logging.write_text(_LOGGING, encoding="ascii")
        if self._section.is_local:
            # Otherwise Spark looks for an address of this host and warns about the result.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            (folder / "decoded").mkdir(exist_ok=True)
            os.environ[DECODED] = str(folder / "decoded")
        os.environ["PYSPARK_PYTHON"] = self._workers_python()
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        settings: dict[str, Any] = {
            **SETTINGS,
            **(ON_THIS_MACHINE if self._section.is_local else {}),
            "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            **REDACTION,
            **self._section.conf,
        }
        hidden = {key: settings.pop(key) for key in list(settings) if secrets_in({key: settings[key]})}
        try:
            builder = SparkSession.builder.master(self._section.master).appName("lakecommit")
            with beside_the_arguments(folder / "spark.properties", hidden):
                session = builder.config(map=settings).getOrCreate()
            session.sparkContext.setLogLevel(settings["spark.log.level"])
            if not self._section.is_local:
                package = folder / f"airflow_provider_lakecommit-{package_digest()}.zip"
                package.write_bytes(package_zip())
                session.sparkContext.addPyFile(str(package))
        except Exception as e:
            _forget_java()
            fits, java = java_here()
            if not fits:
                raise SparkJobError("LC5081", f"Spark does not start: {java}; {JAVA_REMEDY}") from None
            ended = "its Java process ended at once, with the message above"
            why = ended if "JAVA_GATEWAY_EXITED" in str(e) else _first_line(e)
            raise SparkJobError(
                "LC5026",
                f"Spark does not start (master {self._section.master}, {java}): {why}; check `conf` of the section "
                "`spark`, such as spark.driver.memory: 2g",
            ) from e
        return session

    def _workers_python(self) -> str:
        """Return this Python on this machine; on a cluster that of the settings or the environment, else the same path.
        pyspark itself reads only the environment.
        """
        if self._section.is_local:
            return sys.executable
        return self._section.conf.get(PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable

    def _drop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Exception):
                session.stop()
        _forget_java()


def _answers(session: SparkSession) -> bool:
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except Exception:
        return False


def _forget_java() -> None:
    """End the Java process, and make pyspark start another one next time: otherwise it keeps using a dead one.

    There is no public way, so this is the only place that clears its private references to the process.
    """
    from pyspark.core.context import SparkContext
    from pyspark.sql import SparkSession
    from pyspark.sql.context import SQLContext

    gateway: Any = SparkContext._gateway
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = SparkSession._activeSession = None
    SQLContext._instantiatedContext = None
    if gateway is None:
        return
    with contextlib.suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is not None:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the Java process by closing its standard input."""
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_SECONDS)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
