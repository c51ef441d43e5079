# SPDX-License-Identifier: Apache-2.0
"""A real single-node Kafka broker (KRaft) as a child process.

Contract: that of :class:`~dev.servers.server.Server`; it answers when it names its own cluster, on 127.0.0.1 only.
The data survive stop, kill and restart: they are in the directory.
"""

from __future__ import annotations

import base64
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from dev import class_archive
from dev.jars import classpath
from dev.java import java_binary
from dev.paths import run_dir
from dev.servers.server import Server, ServerError, free_port, listens

SETTINGS: dict[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    # One node: every internal topic has one replica. Few partitions: each costs files and start-up time.
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller readmits the broker only when the dead one's session (9 s by default) has ended.
    "broker.session.timeout.ms": "4000",
    "broker.heartbeat.interval.ms": "500",
    # An idle controller writes nothing.
    "metadata.max.idle.interval.ms": "0",
    # A mistyped topic name is an error, not a new topic.
    "auto.create.topics.enable": "false",
    # Timed out transactions are aborted, and deleted or compacted records go, within a test's patience.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "log.initial.task.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "log.cleaner.backoff.ms": "500",
    "log.cleaner.dedupe.buffer.size": "8388608",
}

LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1} %m%n
"""


class BrokerError(ServerError):
    """The local broker could not be started or does not answer."""


class Broker(Server):
    """One broker, its directory and its process.

    :param properties: broker settings that win over the ones here
    :param java_options: instead of those of short runs
    """

    name = "broker"
    what = "broker"
    error = BrokerError
    start_seconds = 300.0
    stop_seconds = 30.0

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        java_options: Sequence[str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        self._properties = dict(properties or {})
        self._java_options = java_options

    @property
    def bootstrap(self) -> str:
        """Value for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        controller = free_port()
        settings = {
            **SETTINGS,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
            **self._properties,
        }
        self._config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        (self.directory / "log4j2.properties").write_text(LOGGING)
        self._format()
        return self._java("kafka.Kafka", str(self._config))

    def answers(self) -> bool:
        return listens(self.port) and _cluster_at(self.bootstrap) == self._cluster()

    @property
    def _config(self) -> Path:
        return self.directory / "server.properties"

    def _java(self, *arguments: str) -> list[str]:
        return [
            java_binary(),
            "-Xmx512m",
            *(self._java_options or class_archive.options("broker")),
            f"-Dlog4j2.configurationFile={self.directory / 'log4j2.properties'}",
            "-cp",
            classpath("broker"),
            *arguments,
        ]

    def _format(self) -> None:
        if (self.directory / "data" / "meta.properties").exists():
            return
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Joined by "=": an id that starts with "-" would read as an option.
        command = self._java("kafka.tools.StorageTool", "format", f"--config={self._config}", f"--cluster-id={cluster}")
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.directory)
        if done.returncode != 0:
            raise BrokerError(
                f"the broker's storage in {self.directory} could not be formatted:\n{done.stderr[-3000:]}"
            )

    def _cluster(self) -> str:
        lines = (self.directory / "data" / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]


def _cluster_at(bootstrap: str) -> str | None:
    """Id of the cluster that answers there, None when none does."""
    # Imported late: preflight and the jars need this package before the client is installed.
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": bootstrap, "socket.timeout.ms": 5000, "log_level": 0})
    try:
        metadata = client.list_topics(timeout=5)
    except KafkaException:
        return None
    return metadata.cluster_id if metadata.brokers else None


def main(arguments: list[str]) -> int:
    """`python -m dev.servers.kafka up [PORT] | down`: the broker of this checkout, in the run directory."""
    verb, *rest = arguments or ["help"]
    try:
        if verb == "up":
            broker = Broker(run_dir() / "kafka", port=int(rest[0]) if rest else None).start()
            print(f"{broker.bootstrap} (process {broker.pid}, log {broker.log})")
            return 0
        if verb == "down":
            Broker(run_dir() / "kafka").stop()
            return 0
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    print(main.__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
