# SPDX-License-Identifier: Apache-2.0
"""A real Spark cluster of its own: a standalone master and workers of it, from the jars that pyspark bundles.

Contract: each is a :class:`~dev.servers.server.Server` with a port and a folder of its own. Executors are children of
their worker and end with it; Python workers find what the worker's environment says. :class:`StandaloneCluster` is a
master and its workers together; a worker that was killed comes back by :meth:`StandaloneCluster.start`.
"""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyspark

from dev.java import java_binary
from dev.processes import Process, descendants, living
from dev.servers.server import LOOK_SECONDS, Server, ServerError, free_port, listens

__all__ = ["StandaloneCluster", "StandaloneMaster", "StandaloneWorker"]

HOST = "127.0.0.1"
CLASSES = "org.apache.spark.deploy"
EXECUTOR = "CoarseGrainedExecutorBackend"
SETTINGS: Mapping[str, str] = {
    # A worker that says goodbye takes nothing on any more.
    "spark.decommission.enabled": "true"
}


class StandaloneError(ServerError):
    """The local Spark cluster could not be started or does not listen."""


class _Part(Server):
    error = StandaloneError
    start_seconds = 240.0

    @property
    def page_port(self) -> int:
        """Of its page, kept like its port."""
        kept = self.directory / "page-port"
        if not kept.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            kept.write_text(str(free_port()))
        return int(kept.read_text())

    def answers(self) -> bool:
        # The page comes last.
        return super().answers() and listens(self.page_port)

    def environment(self) -> Mapping[str, str]:
        java_home = Path(java_binary()).resolve().parent.parent
        here = Path(pyspark.__file__).parent
        options = " ".join(f"-D{key}={value}" for key, value in SETTINGS.items())
        return {
            **os.environ,
            "JAVA_HOME": str(java_home),
            "SPARK_HOME": str(here),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_JAVA_OPTS": options,
            "SPARK_DAEMON_MEMORY": "256m",
        }

    def _run(self, name: str, *words: str) -> list[str]:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        listens = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.page_port)]
        return [str(program), f"{CLASSES}.{name}", *listens, *words]


class StandaloneMaster(_Part):
    """Who gives applications their executors."""

    name = "master"
    what = "Spark master"

    @property
    def url(self) -> str:
        """Value for `spark.master`."""
        return f"spark://{HOST}:{self.port}"

    @property
    def state(self) -> dict[str, Any]:
        """What it knows of workers and applications."""
        with urllib.request.urlopen(f"http://{HOST}:{self.page_port}/json/", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def command(self) -> list[str]:
        return self._run("master.Master")


class StandaloneWorker(_Part):
    """Who runs executors.

    :param master: whose it is
    :param cores: tasks that run at once
    :param variables: of its environment and that of its executors, in place of those of this process
    """

    name = "worker"
    what = "Spark worker"

    def __init__(
        self,
        directory: Path | str,
        master: StandaloneMaster,
        *,
        cores: int = 1,
        port: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        self._master = master
        self._cores = cores
        self._variables = dict(variables or {})

    def environment(self) -> Mapping[str, str]:
        return {**super().environment(), **self._variables}

    @property
    def executors(self) -> list[Process]:
        """The Java processes that run tasks here."""
        return [p for p in self._children.family(self.name) if EXECUTOR in p.command and "java" in p.command]

    def kill_executors(self) -> list[int]:
        """SIGKILL for all of them and for their Python workers, which would otherwise notice a moment later."""
        now, executors = living(), self.executors
        for executor in executors:
            for process in descendants(executor.pid, now):
                os.kill(process.pid, signal.SIGKILL)
        return [executor.pid for executor in executors]

    def decommission(self) -> None:
        """Have it leave the cluster in order, as a machine does that is taken back."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGPWR)

    def command(self) -> list[str]:
        room = ["--cores", str(self._cores), "--memory", "1g", "--work-dir", str(self.directory / "work")]
        return self._run("worker.Worker", *room, self._master.url)


class StandaloneCluster:
    """A master and workers of one core each. Usable as a context manager.

    :param variables: of the workers' environment
    """

    def __init__(self, directory: Path | str, *, workers: int = 2, variables: Mapping[str, str] | None = None) -> None:
        folder = Path(directory)
        self.master = StandaloneMaster(folder / "master")
        self.workers: Sequence[StandaloneWorker] = [
            StandaloneWorker(folder / f"worker-{n}", self.master, variables=variables) for n in range(workers)
        ]

    @property
    def url(self) -> str:
        return self.master.url

    @property
    def pids(self) -> list[int]:
        """Of its parts that run."""
        return [pid for part in (self.master, *self.workers) if (pid := part.pid) is not None]

    @property
    def alive(self) -> int:
        """How many workers take executors, as the master sees it; none while its page is not there yet."""
        try:
            return int(self.master.state["aliveworkers"])
        except urllib.error.URLError:
            return 0

    def start(self) -> Self:
        """Start what does not run, and wait until the master knows all workers."""
        for part in (self.master, *self.workers):
            part.start()
        deadline = time.monotonic() + self.master.start_seconds
        while self.alive < len(self.workers):
            if time.monotonic() > deadline:
                raise StandaloneError(
                    f"the master knows {self.alive} of {len(self.workers)} workers; see {self.master.log}"
                )
            time.sleep(LOOK_SECONDS)
        return self

    def stop(self) -> None:
        for part in (*self.workers, self.master):
            part.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
