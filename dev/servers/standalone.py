# SPDX-License-Identifier: Apache-2.0
"""A real Spark cluster of its own: a standalone master and one worker of it, from the jars that pyspark bundles.

Contract: each is a :class:`~dev.servers.server.Server`. Executors are children of the worker and end with it; Python
workers find what the worker's environment says.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pyspark

from dev.java import java_binary
from dev.servers.server import Server, ServerError

__all__ = ["StandaloneMaster", "StandaloneWorker"]

HOST = "127.0.0.1"
CLASSES = "org.apache.spark.deploy"


class StandaloneError(ServerError):
    """The local Spark cluster could not be started or does not listen."""


class _Part(Server):
    error = StandaloneError
    start_seconds = 240.0

    def environment(self) -> Mapping[str, str]:
        java_home = Path(java_binary()).resolve().parent.parent
        here = Path(pyspark.__file__).parent
        return {**os.environ, "JAVA_HOME": str(java_home), "SPARK_HOME": str(here), "SPARK_LOCAL_IP": HOST}

    def _run(self, name: str, *words: str) -> list[str]:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        listens = ["--host", HOST, "--port", str(self.port), "--webui-port", "0"]
        return [str(program), f"{CLASSES}.{name}", *listens, *words]


class StandaloneMaster(_Part):
    """Who gives applications their executors."""

    name = "master"
    what = "Spark master"

    @property
    def url(self) -> str:
        """Value for `spark.master`."""
        return f"spark://{HOST}:{self.port}"

    def command(self) -> list[str]:
        return self._run("master.Master")


class StandaloneWorker(_Part):
    """Who runs executors.

    :param master: its url
    :param cores: tasks that run at once
    """

    name = "worker"
    what = "Spark worker"

    def __init__(self, directory: Path | str, master: str, *, cores: int = 1) -> None:
        super().__init__(directory)
        self._master = master
        self._cores = cores

    def command(self) -> list[str]:
        room = ["--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.directory / "work")]
        return self._run("worker.Worker", *room, self._master)
