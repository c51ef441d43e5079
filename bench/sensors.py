# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.sensors`: thousands of sensors that wait in one real triggerer, and are let go at once.

Contract: the triggerer is Airflow's own process, with SQLite; the waiting tasks are rows of its database as the API
server writes them when a sensor defers (:mod:`bench.sensors_rows`). Told are the Kafka clients in the triggerer, its
memory above that of the idle one, its share of one core while events go over the control topics, and when the tasks
were successful after the COMPLETE of their group was sent. Memory is that of the process that runs the triggers and of
its supervisor; CPU is told of both, with what the idle triggerer takes.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from airflow_provider_lakecommit.wire.events import (
    CommitComplete,
    DataComplete,
    Event,
    Payload,
    StartCommit,
    TopicPartitionOffset,
    encode,
)
from dev.airflow_stack import Airflow
from dev.kafka import Broker
from dev.paths import CHECKOUT
from dev.processes import Children

GROUPS = 10
"""Connectors on each control topic; the sensors of a topic wait for them in turn."""
SETTLE_SECONDS = 8.0
WAIT_SECONDS = 300.0


class Sender:
    """Speaks for all connectors of all control topics."""

    def __init__(self, bootstrap: str, topics: list[str]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
        self.groups = [(topic, f"connect-{n}") for topic in topics for n in range(GROUPS)]
        self.open: dict[tuple[str, str], UUID] = {}

    def stall(self) -> None:
        """Three cycles of each connector that do not complete."""
        for n in (2, 1, 0):
            for place in self.groups:
                self.open[place] = uuid4()
                self._send(place, StartCommit(commit_id=self.open[place]), 30.0 * n)
        self._producer.flush(30)

    def complete(self) -> None:
        """One COMPLETE of each."""
        for place in self.groups:
            self._send(place, CommitComplete(commit_id=self.open[place], valid_through=None))
        self._producer.flush(30)

    def answers(self, rate: float, until: threading.Event) -> None:
        """Answers of tasks, so many a second over all topics."""
        begun, sent = time.monotonic(), 0
        while not until.is_set():
            place = self.groups[sent % len(self.groups)]
            done = TopicPartitionOffset(topic="orders", partition=sent % 50, offset=sent, timestamp=None)
            self._send(place, DataComplete(commit_id=self.open[place], assignments=(done,)))
            self._producer.poll(0)
            sent += 1
            time.sleep(max(0.0, begun + sent / rate - time.monotonic()))
        self._producer.flush(30)

    def _send(self, place: tuple[str, str], payload: Payload, ago: float = 0.0) -> None:
        topic, group = place
        at = time.time() - ago
        event = Event(id=uuid4(), timestamp=datetime.fromtimestamp(at, UTC), group_id=group, payload=payload)
        self._producer.produce(topic, encode(event), f"{group}-coordinator", timestamp=int(at * 1000))


class Triggerer:
    """The process that runs triggers, and its supervisor."""

    def __init__(self, children: Children) -> None:
        self._family = [psutil.Process(p.pid) for p in children.family("triggerer")]

    @property
    def memory(self) -> list[float]:
        """Megabytes of each process, with its share of what they share."""
        return [p.memory_full_info().pss / 1e6 for p in self._family]

    @property
    def clients(self) -> int:
        """Kafka clients: each has one main thread."""
        return sum(self._clients(p) for p in self._family)

    @staticmethod
    def _clients(process: psutil.Process) -> int:
        threads = Path(f"/proc/{process.pid}/task").glob("*/comm")
        return sum(path.read_text().strip() == "rdk:main" for path in threads)

    def cpu(self, seconds: float) -> dict[str, float]:
        """Share of one core: of the process that runs the triggers, once it has clients, and of all."""
        before = {p: sum(p.cpu_times()[:2]) for p in self._family}
        time.sleep(seconds)
        shares = {p: (sum(p.cpu_times()[:2]) - cpu) / seconds * 100 for p, cpu in before.items()}
        runner = sum(share for p, share in shares.items() if self._clients(p))
        return {"runner": runner, "all": sum(shares.values())}


def main(arguments: list[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.sensors", description=__doc__)
    parser.add_argument("--sensors", type=int, default=2000)
    parser.add_argument("--topics", type=int, default=4)
    parser.add_argument("--rate", type=float, default=100.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which CPU is measured")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, Broker(Path(folder) / "kafka") as broker:
        topics = [f"control-{n}" for n in range(options.topics)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(topic, num_partitions=3) for topic in topics]).values():
            made.result(30)
        _measure(Path(folder) / "airflow", broker.bootstrap, topics, options)
    return 0


def _measure(home: Path, bootstrap: str, topics: list[str], options: argparse.Namespace) -> None:
    home.mkdir()
    sender, children = Sender(bootstrap, topics), Children(home)
    sender.stall()
    settings = {
        "AIRFLOW__TRIGGERER__CAPACITY": str(options.sensors + 100),
        "AIRFLOW__CORE__MAX_MAP_LENGTH": "100000",
        "PYTHONPATH": str(CHECKOUT),
    }
    kafka = {"kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}}}
    (home / "dags").mkdir()
    airflow = Airflow(
        home,
        children,
        connections=kafka,
        settings={**settings, "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags")},
        deployment="bench",
        parts=("triggerer",),
    )

    def run(*command: str) -> None:
        children.run("rows", [sys.executable, "-m", *command], env=airflow.environment, cwd=home, timeout=WAIT_SECONDS)

    try:
        airflow.migrate()
        children.start("triggerer", [sys.executable, "-m", "airflow", "triggerer"], env=airflow.environment, cwd=home)
        time.sleep(2 * SETTLE_SECONDS)
        triggerer = Triggerer(children)
        idle, idle_cpu = triggerer.memory, triggerer.cpu(10)
        run("bench.sensors_rows", str(home / "dags"), str(options.sensors), str(GROUPS), *topics)
        begun = time.monotonic()
        _until(lambda: _started(home) >= options.sensors)
        took = time.monotonic() - begun
        done = threading.Event()
        events = threading.Thread(target=sender.answers, args=(options.rate, done))
        events.start()
        time.sleep(SETTLE_SECONDS)
        cpu = triggerer.cpu(options.seconds)
        memory, clients = triggerer.memory, triggerer.clients
        done.set()
        events.join()
        sent = time.time()
        sender.complete()
        complete = time.time()
        released = list(_released(airflow.database, options.sensors, complete))
        fired = list(_fired(home, complete))
    finally:
        children.stop()
    print(f"{options.sensors} sensors over {options.topics} control topics, taken up within {took:.0f} s")
    print(f"Kafka clients in the triggerer   {clients}")
    above = "  ".join(f"{now - before:.0f}" for before, now in zip(idle, memory, strict=True))
    print(
        f"memory above idle, MB            {sum(memory) - sum(idle):.0f}   (idle {sum(idle):.0f}; by process {above})"
    )
    print(f"CPU, % of a core, idle           {_shares(idle_cpu)}")
    print(f"CPU at {options.rate:.0f} events/s              {_shares(cpu)}")
    print(f"fired after the COMPLETE, s      {_spread(fired)}   (sending took {complete - sent:.2f} s)")
    print(f"successful after it, s           {_spread(released)}   ({len(released)} tasks)")


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    marks = {"first": min(seconds), "median": statistics.median(seconds), "last": max(seconds)}
    return "  ".join(f"{name} {value:.1f}" for name, value in marks.items())


def _shares(cpu: dict[str, float]) -> str:
    return "  ".join(f"{name} {share:.1f}" for name, share in cpu.items())


def _started(home: Path) -> int:
    """Triggers that the runner has taken up: each has a log of its own."""
    return sum(1 for _ in (home / "logs").glob("dag_id=*/**/*.trigger.*"))


def _released(database: Path, wanted: int, since: float) -> Iterator[float]:
    """Seconds after which each task was successful."""

    def ended() -> list[float]:
        with closing(sqlite3.connect(database, timeout=30)) as db:
            rows = db.execute("select end_date from task_instance where state = 'success'").fetchall()
        return [datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for (text,) in rows]

    _until(lambda: len(ended()) >= wanted)
    yield from (at - since for at in ended())


def _fired(home: Path, since: float) -> Iterator[float]:
    """Seconds after which each trigger let its task go, by its log."""
    for path in (home / "logs").glob("dag_id=*/**/*.trigger.*"):
        for line in path.read_text().splitlines():
            told = json.loads(line)
            if told.get("event") == "Trigger fired event":
                yield datetime.fromisoformat(told["timestamp"]).timestamp() - since


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_SECONDS:.0f} s")
        time.sleep(2.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
