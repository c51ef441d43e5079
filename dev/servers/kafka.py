# SPDX-License-Identifier: Apache-2.0
"""A real single-node Kafka broker (KRaft) as a child process.

Contract: :meth:`Broker.start` returns when the broker answers a metadata request, on 127.0.0.1 only;
:meth:`Broker.stop` and :meth:`Broker.kill` return when its process is gone. Ports are chosen free at random on the
first start, unless one is given, and kept for the life of the directory, so that clients find the broker again after
:meth:`Broker.restart`. The data survive stop, kill and restart: they are in the directory.

The broker runs in a session of its own: a Ctrl-C meant for us does not reach it, and only its recorded process id,
after a check that this process still is our broker, is ever signalled.

Failure story: a broker that dies while starting, or does not answer in time, ends in :class:`BrokerError` with the tail
of its log; a port that somebody else took between choice and use is answered by choosing another.
"""

from __future__ import annotations

import base64
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from dev.jars import classpath
from dev.java import java_binary
from dev.paths import run_dir

# Below the range that systems hand out to outgoing connections, so that a chosen port stays ours over a restart.
PORTS = range(18_000, 32_000)
START_SECONDS = 300.0
STOP_SECONDS = 30.0
PORT_ATTEMPTS = 4
LOOK_SECONDS = 0.1

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


class BrokerError(RuntimeError):
    """The local broker could not be started or does not answer."""


class PortTakenError(BrokerError):
    """Another process listens on the port that the broker was to have."""


class Broker:
    """One broker, its directory and its process."""

    def __init__(
        self, directory: Path | str, *, port: int | None = None, properties: Mapping[str, str] | None = None
    ) -> None:
        self.directory = Path(directory).resolve()
        self._wanted_port = port
        self._properties = dict(properties or {})
        self._process: subprocess.Popen[bytes] | None = None

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def port(self) -> int:
        """The client port; :class:`BrokerError` before the first start."""
        try:
            return int(self._port_file.read_text())
        except FileNotFoundError:
            raise BrokerError(f"no broker was ever started in {self.directory}") from None

    @property
    def bootstrap(self) -> str:
        """Value for `bootstrap.servers`."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker of this directory, whoever started it; None when it does not run."""
        try:
            pid = int((self.directory / "broker.pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        if self._process is not None and self._process.pid == pid:
            return pid if self._process.poll() is None else None
        return pid if str(self._config) in _command_of(pid) else None

    @property
    def log(self) -> Path:
        """What the broker prints."""
        return self.directory / "broker.log"

    @property
    def _port_file(self) -> Path:
        return self.directory / "port"

    @property
    def _config(self) -> Path:
        return self.directory / "server.properties"

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or find running, and wait until the broker answers."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if self.pid is not None:
            self._await_answer()
            return self
        chooses_port = self._wanted_port is None and not self._port_file.exists()
        for _ in range(PORT_ATTEMPTS - 1 if chooses_port else 0):
            try:
                return self._start_once()
            except PortTakenError:
                self._port_file.unlink()
        return self._start_once()

    def stop(self) -> None:
        """Shut down cleanly (SIGTERM); after 30 s by force. Nothing to do when it does not run."""
        self._end(signal.SIGTERM, STOP_SECONDS)

    def kill(self) -> None:
        """SIGKILL: what a crash of the machine looks like to clients."""
        self._end(signal.SIGKILL, STOP_SECONDS)

    def restart(self) -> Self:
        """Stop if running, then start on the same port with the same data."""
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
        self._configure()
        if listens(self.port):
            raise PortTakenError(f"port {self.port} of 127.0.0.1 is taken (Address already in use): give another port")
        self._format()
        self._launch()
        try:
            self._await_answer()
        except BrokerError:
            self.kill()
            raise
        return self

    def _configure(self) -> None:
        if self._wanted_port or not self._port_file.exists():
            self._port_file.write_text(str(self._wanted_port or free_port()))
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

    def _java(self, *arguments: str) -> list[str]:
        return [
            java_binary(),
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
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
            raise BrokerError(f"the broker's storage in {self.directory} could not be formatted:\n{_tail(done.stderr)}")

    def _cluster(self) -> str:
        lines = (self.directory / "data" / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]

    def _launch(self) -> None:
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._config)),
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.directory / "broker.pid").write_text(str(self._process.pid))

    def _await_answer(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.pid is None:
                raise self._ended_early()
            if listens(self.port) and _cluster_at(self.bootstrap) == self._cluster():
                return
            time.sleep(LOOK_SECONDS)
        raise BrokerError(f"no answer from {self.bootstrap} in {START_SECONDS:.0f} s; {self.log}:\n{self._log_tail()}")

    def _ended_early(self) -> BrokerError:
        kind = PortTakenError if "Address already in use" in self.log.read_text(errors="replace") else BrokerError
        return kind(f"the broker ended while starting; the end of {self.log}:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        return _tail(self.log.read_text(errors="replace"))

    def _end(self, how: signal.Signals, patience: float) -> None:
        pid = self.pid
        if pid is not None:
            os.kill(pid, how)
            if not self._gone_within(patience):
                os.kill(pid, signal.SIGKILL)
                if not self._gone_within(patience):
                    raise BrokerError(f"the broker (process {pid}) does not end, even by SIGKILL")
        self._process = None
        (self.directory / "broker.pid").unlink(missing_ok=True)

    def _gone_within(self, patience: float) -> bool:
        deadline = time.monotonic() + patience
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens now, outside the range of outgoing connections."""
    for candidate in random.sample(PORTS, 200):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", candidate))
            except OSError:
                continue
            return candidate
    raise BrokerError(f"no free port on 127.0.0.1 in {PORTS.start}-{PORTS.stop - 1}")


def listens(port: int) -> bool:
    """Whether somebody listens on a port of 127.0.0.1."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


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


def _command_of(pid: int) -> str:
    """Command line of a process, empty when there is none; `ps` because macOS has no /proc."""
    done = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.splitlines()[-lines:])


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
