# SPDX-License-Identifier: Apache-2.0
"""A real Spark Connect server as a child process, from the jars that pyspark bundles.

Contract: that of :class:`~dev.servers.server.Server`, with the Python workers that it starts. Its sessions and their
work do not survive.

The server runs the settings that this package advises (:data:`SERVER_SETTINGS`), on as many threads as *cores* says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from airflow_provider_lakecommit.spark.launch.connect_server import PRELOAD, SERVER_SETTINGS
from dev.java import java_binary
from dev.servers.server import Server, ServerError

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
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


class ConnectServerError(ServerError):
    """The local Spark Connect server could not be started or does not listen."""


class ConnectServer(Server):
    """One server, its directory and its processes.

    :param cores: tasks that run at once
    :param master: of a cluster that runs them in place of this machine
    :param conf: Spark settings that win over the ones here
    """

    name = "connect"
    what = "Spark Connect server"
    error = ConnectServerError
    start_seconds = 240.0
    stop_seconds = 10.0

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int | None = None,
        cores: int = 2,
        master: str | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        self._master = master or f"local[{cores},{TASK_ATTEMPTS}]"
        self._conf = dict(conf or {})

    @property
    def url(self) -> str:
        """Value for a client's `remote`."""
        return f"sc://127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        settings = {
            **SETTINGS,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.local.dir": str(self.directory / "local"),
            "spark.sql.warehouse.dir": str(self.directory / "warehouse"),
            **self._conf,
        }
        words = [str(Path(sys.executable).with_name("spark-submit")), "--class", SERVER, "--name", "lakecommit-connect"]
        words += ["--master", self._master]
        for key, value in settings.items():
            words += ["--conf", f"{key}={value}"]
        return [*words, "spark-internal"]

    def environment(self) -> dict[str, str]:
        java_home = Path(java_binary()).resolve().parent.parent
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # Else Spark looks for an address of this host and warns of what it finds.
        return {**os.environ, "JAVA_HOME": str(java_home), "SPARK_LOCAL_IP": "127.0.0.1", **python}
