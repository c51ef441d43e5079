# SPDX-License-Identifier: Apache-2.0
"""A real Kafka Connect worker with the Iceberg sink, as a child process: what many people land topics with today.

Contract: that of :class:`~dev.servers.server.Server`; its log's lines begin with milliseconds of the epoch. One worker
in distributed mode; its three topics are its own. :func:`iceberg_sink` is the configuration of a sink that writes JSON
values into one table of a catalog that pyiceberg shares.

Failure story: a worker that ends early, and a connector or task that fails, are a :class:`WorkerError` with what the
worker says of it.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from dev.jars import classpath, fetch
from dev.java import java_binary
from dev.processes import ChildError, tail
from dev.servers.server import Server, ServerError

__all__ = ["ConnectWorker", "WorkerError", "iceberg_sink"]

LOOK_SECONDS = 0.2
ASK_SECONDS = 10.0
BUSY = frozenset({404, 409, 500, 503})
"""Answers of a worker that is starting or rebalancing."""

LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{UNIX_MILLIS} %p %X{connector.context}%c{1}: %m%n
"""


class WorkerError(ServerError):
    """The worker, a connector or a task of it has failed."""


class ConnectWorker(Server):
    """One worker, its directory and its process.

    :param flush: seconds after which an idle task is called: the sink reads its control topic only then
    :param heap: limit of the Java heap
    :param plugins: jar configurations, each of which is a plugin
    :param properties: worker settings that win over the ones here
    """

    name = "worker"
    what = "Kafka Connect worker"
    error = WorkerError
    start_seconds = 240.0

    def __init__(
        self,
        directory: Path,
        bootstrap: str,
        *,
        flush: float = 60.0,
        heap: str = "3g",
        plugins: Sequence[str] = ("sink",),
        properties: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory)
        self._bootstrap = bootstrap
        self._flush = flush
        self._heap = heap
        self._of_plugins = tuple(plugins)
        self._properties = dict(properties or {})
        self._group = f"connect-{uuid4().hex[:8]}"

    def command(self) -> list[str]:
        settings = {**self._settings(), **self._properties}
        config, logging = self.directory / "worker.properties", self.directory / "log4j2.properties"
        config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        logging.write_text(LOGGING)
        command = [java_binary(), f"-Xmx{self._heap}", f"-Dlog4j2.configurationFile={logging}"]
        return [*command, "-cp", classpath("worker"), "org.apache.kafka.connect.cli.ConnectDistributed", str(config)]

    def answers(self) -> bool:
        return self.ask("GET", "/connectors") is not None

    # -- connectors ---------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Of the REST interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def group(self) -> dict[str, str]:
        """Settings with which another worker joins this one."""
        names = ("group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic")
        return {name: value for name, value in self._settings().items() if name in names}

    def create(self, name: str, config: Mapping[str, str]) -> None:
        """Hand a connector to the worker."""
        body = {"name": name, "config": dict(config)}
        self.wait_for(lambda: self.ask("POST", "/connectors", body) is not None, self.start_seconds)

    def check(self, name: str) -> None:
        """:raises WorkerError: the worker has ended, or the connector or one of its tasks has failed"""
        self._check_alive()
        status = self.ask("GET", f"/connectors/{name}/status") or {}
        for part in (status.get("connector", {}), *status.get("tasks", ())):
            if part.get("state") == "FAILED":
                raise WorkerError(f"connector {name}: {part.get('trace', part)}")

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """One request; ``None`` where the worker is not ready to answer it.

        :raises WorkerError: it is refused
        """
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=ASK_SECONDS) as answer:
                text = answer.read()
        except urllib.error.HTTPError as e:
            if e.code in BUSY:
                return None
            raise WorkerError(f"{method} {path}: {e.code} {e.read().decode(errors='replace')[:1000]}") from e
        except OSError:
            return None
        return json.loads(text) if text else {}

    def wait_for(self, done: Callable[[], bool], seconds: float) -> None:
        """:raises WorkerError: it does not come to pass in time, or the worker ends"""
        deadline = time.monotonic() + seconds
        while not done():
            self._check_alive()
            if time.monotonic() > deadline:
                raise WorkerError(f"not in {seconds:.0f} s; the end of {self.log}:\n{tail(self.log)}")
            time.sleep(LOOK_SECONDS)

    def _check_alive(self) -> None:
        try:
            self._children.expect_alive(self.name)
        except ChildError as e:
            raise WorkerError(str(e)) from e

    def _plugins(self) -> Path:
        """A folder with the plugins in it: a worker takes each entry of its plugin path for one."""
        folder = self.directory / "plugins"
        folder.mkdir(exist_ok=True)
        for name, jars in fetch(*self._of_plugins).items():
            link = folder / name
            link.unlink(missing_ok=True)
            link.symlink_to(jars)
        return folder

    def _settings(self) -> dict[str, str]:
        converter = "org.apache.kafka.connect.json.JsonConverter"
        topics = {kind: f"{kind}.storage.topic" for kind in ("config", "offset", "status")}
        return {
            "bootstrap.servers": self._bootstrap,
            "group.id": self._group,
            "plugin.path": str(self._plugins()),
            "key.converter": converter,
            "value.converter": converter,
            "listeners": self.url,
            "rest.advertised.host.name": "127.0.0.1",
            "offset.flush.interval.ms": str(int(self._flush * 1000)),
            "offset.storage.partitions": "4",
            **{setting: f"{self._group}-{kind}" for kind, setting in topics.items()},
            **{f"{kind}.storage.replication.factor": "1" for kind in topics},
        }


def iceberg_sink(
    *,
    topic: str,
    table: str,
    tasks: int,
    control_topic: str,
    commit_seconds: float,
    catalog: Mapping[str, str],
    catalog_name: str,
) -> dict[str, str]:
    """Configuration of a sink that lands JSON values.

    :param catalog: further ``iceberg.catalog.*`` settings, without that prefix
    :param catalog_name: name under which the catalog has its tables
    """
    return {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "tasks.max": str(tasks),
        "topics": topic,
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "consumer.override.auto.offset.reset": "earliest",
        "iceberg.tables": table,
        "iceberg.control.topic": control_topic,
        "iceberg.control.commit.interval-ms": str(int(commit_seconds * 1000)),
        "iceberg.catalog": catalog_name,
        **{f"iceberg.catalog.{key}": value for key, value in catalog.items()},
    }
