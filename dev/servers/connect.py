# SPDX-License-Identifier: Apache-2.0
"""A real Spark Connect server as a child process, from the jars that pyspark bundles.

Contract: :meth:`ConnectServer.start` returns when the server listens, on 127.0.0.1 only; :meth:`ConnectServer.stop` and
:meth:`ConnectServer.kill` return when its process and the Python workers that it started are gone. The port is chosen
free at random on the first start, unless one is given, and kept for the life of the directory, so that clients find the
server again after :meth:`ConnectServer.restart`. Its sessions and their work do not survive.

The server runs the settings that this package advises (:data:`SERVER_SETTINGS`), on as many threads as *cores* says.

Failure story: a server that dies while starting, or does not listen in time, ends in :class:`ConnectServerError` with
the tail of its log; a port that somebody else took between choice and use is answered by choosing another.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from airflow_provider_lakecommit.engines.connect_server import PRELOAD, SERVER_SETTINGS
from dev.java import java_binary
from dev.processes import ChildError, Children, tail
from dev.servers.kafka import free_port, listens

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
NAME = "connect"
START_SECONDS = 240.0
STOP_GRACE = 10.0
PORT_ATTEMPTS = 4
LOOK_SECONDS = 0.1
TASK_ATTEMPTS = 3
"""A local master gives a task one attempt unless told otherwise: one dead worker would end a whole job."""

SETTINGS: Mapping[str, str] = {
    **SERVER_SETTINGS,
    **PRELOAD,
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
}


class ConnectServerError(RuntimeError):
    """The local Spark Connect server could not be started or does not listen."""


class ConnectServer:
    """One server, its directory and its processes.

    :param cores: tasks that run at once
    :param conf: Spark settings that win over the ones here
    """

    def __init__(
        self, directory: Path | str, *, port: int | None = None, cores: int = 2, conf: Mapping[str, str] | None = None
    ) -> None:
        self.directory = Path(directory).resolve()
        self._wanted_port = port
        self._cores = cores
        self._conf = dict(conf or {})
        self._found: Children | None = None

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The port; :class:`ConnectServerError` before the first start."""
        try:
            return int(self._port_file.read_text())
        except FileNotFoundError:
            raise ConnectServerError(f"no Spark Connect server was ever started in {self.directory}") from None

    @property
    def url(self) -> str:
        """Value for a client's `remote`."""
        return f"sc://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running server of this directory, whoever started it; None when it does not run."""
        return self._children.pid(NAME)

    @property
    def log(self) -> Path:
        """What the server and its workers print."""
        return self._children.log(NAME)

    @property
    def _port_file(self) -> Path:
        return self.directory / "port"

    @property
    def _children(self) -> Children:
        if self._found is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._found = Children(self.directory)
        return self._found

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or find running, and wait until the server listens."""
        if self.pid is not None:
            self._await_listening()
            return self
        chooses_port = self._wanted_port is None and not self._port_file.exists()
        for _ in range(PORT_ATTEMPTS - 1 if chooses_port else 0):
            try:
                return self._start_once()
            except ConnectServerError:
                if "Address already in use" not in tail(self.log):
                    raise
                self._port_file.unlink()
        return self._start_once()

    def stop(self) -> None:
        """Shut down by SIGTERM; after 10 s by force. Nothing to do when it does not run."""
        self._end(STOP_GRACE)

    def kill(self) -> None:
        """SIGKILL for the server and its workers: what a crash of the machine looks like to clients."""
        self._end(0.0)

    def restart(self) -> Self:
        """Stop if running, then start on the same port."""
        self.stop()
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- how ----------------------------------------------------------------------------------------------------------

    def _start_once(self) -> Self:
        if self._wanted_port or not self._port_file.exists():
            self._port_file.write_text(str(self._wanted_port or free_port()))
        if listens(self.port):
            raise ConnectServerError(f"port {self.port} of 127.0.0.1 is taken: give another port")
        self._children.start(NAME, self._command(), env=self._environment(), cwd=self.directory)
        try:
            self._await_listening()
        except ConnectServerError:
            self.kill()
            raise
        return self

    def _command(self) -> list[str]:
        settings = {
            **SETTINGS,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.local.dir": str(self.directory / "local"),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            **self._conf,
        }
        words = [str(Path(sys.executable).with_name("spark-submit")), "--class", SERVER, "--name", "lakecommit-connect"]
        words += ["--master", f"local[{self._cores},{TASK_ATTEMPTS}]"]
        for key, value in settings.items():
            words += ["--conf", f"{key}={value}"]
        return [*words, "spark-internal"]

    def _environment(self) -> dict[str, str]:
        java_home = Path(java_binary()).resolve().parent.parent
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # Else Spark looks for an address of this host and warns of what it finds.
        return {**os.environ, "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1", **python}

    def _await_listening(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                self._children.expect_alive(NAME)
            except ChildError as e:
                raise ConnectServerError(f"the Spark Connect server ended while starting: {e}") from e
            if listens(self.port):
                return
            time.sleep(LOOK_SECONDS)
        raise ConnectServerError(f"{self.url} does not answer in {START_SECONDS:.0f} s; {self.log}:\n{tail(self.log)}")

    def _end(self, grace: float) -> None:
        self._children.stop(grace)
        # What has been told to stop starts nothing any more; the next start has its own record.
        self._found = None
