# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.sensors`: thousands of sensors that wait in one real triggerer, and are let go at once.

Contract: the triggerer is Airflow's own process, with SQLite; the waiting tasks are rows of its database as the API
server writes them when a sensor defers (:mod:`bench.sensors_rows`). Told are the Kafka clients in the triggerer, its
memory above that of the idle one, its share of one core while events go over the control topics, and when the tasks
were successful after the COMPLETE of their group was sent. Memory is that of the process that runs the triggers and of
its supervisor; CPU is told of both, with what the idle triggerer takes.

With `--floor` the same tasks wait for nothing but one moment: how long Airflow itself takes to end so many.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID, uuid4

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from sqlalchemy import create_engine, text

from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import (
    CommitComplete,
    DataComplete,
    Payload,
    StartCommit,
    TopicPartitionOffset,
)
from dev.airflow_stack import Airflow
from dev.paths import CHECKOUT
from dev.processes import Children
from dev.servers.kafka import Broker
from dev.servers.postgres import Postgres

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
    parser.add_argument("--floor", action="store_true", help="tasks that wait for a moment, without our triggers")
    parser.add_argument("--lead", type=float, default=90.0, help="seconds up to that moment")
    parser.add_argument("--postgres", action="store_true", help="PostgreSQL as Airflow's database, in place of SQLite")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="lakecommit-bench-") as folder, ExitStack() as started:
        home, settings = Path(folder) / "airflow", {}
        if options.postgres:
            os.chmod(folder, 0o755)
            server = started.enter_context(Postgres(Path(folder) / "postgres"))
            settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = server.uri()
        broker = started.enter_context(Broker(Path(folder) / "kafka"))
        topics = [f"control-{n}" for n in range(options.topics)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for made in admin.create_topics([NewTopic(topic, num_partitions=3) for topic in topics]).values():
            made.result(30)
        with _triggerer(home, broker.bootstrap, settings, options.sensors) as stack:
            (_floor if options.floor else _measure)(stack, Sender(broker.bootstrap, topics), topics, options)
    return 0


class Stack:
    """An Airflow of nothing but a triggerer."""

    def __init__(self, airflow: Airflow, children: Children) -> None:
        self.home = airflow.home
        self.triggerer = Triggerer(children)
        self._airflow, self._children = airflow, children
        self._database = create_engine(airflow.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"])

    def wait(self, sensors: int, topics: list[str], moment: float = 0.0) -> float:
        """Make tasks that wait, for a moment unless it is 0; seconds until the triggerer has taken them up."""
        command = [sys.executable, "-m", "bench.sensors_rows", str(self.home / "dags"), str(sensors), str(GROUPS)]
        environment = self._airflow.environment
        self._children.run(
            "rows", [*command, str(moment), *topics], env=environment, cwd=self.home, timeout=WAIT_SECONDS
        )
        begun = time.monotonic()
        _until(lambda: sum(1 for _ in self._logs()) >= sensors)
        return time.monotonic() - begun

    def released(self, wanted: int, since: float) -> list[float]:
        """Seconds after which each task was successful, when all are."""

        def ended() -> list[datetime]:
            with self._database.connect() as connection:
                rows = connection.execute(text("select end_date from task_instance where state = 'success'"))
                return [datetime.fromisoformat(str(row[0])) for row in rows]

        _until(lambda: len(ended()) >= wanted)
        return [(at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() - since for at in ended()]

    def fired(self, since: float) -> Iterator[float]:
        """Seconds after which each trigger let its task go, by its log."""
        for path in self._logs():
            for line in path.read_text().splitlines():
                told = json.loads(line)
                if told.get("event") == "Trigger fired event":
                    yield datetime.fromisoformat(told["timestamp"]).timestamp() - since

    def _logs(self) -> Iterator[Path]:
        """Each trigger that the runner has taken up has one."""
        yield from (self.home / "logs").glob("dag_id=*/**/*.trigger.*")


@contextmanager
def _triggerer(home: Path, bootstrap: str, settings: dict[str, str], sensors: int) -> Iterator[Stack]:
    home.mkdir()
    children = Children(home)
    kafka = {"kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}}}
    (home / "dags").mkdir()
    airflow = Airflow(
        home,
        children,
        connections=kafka,
        settings={
            "AIRFLOW__TRIGGERER__CAPACITY": str(sensors + 100),
            "AIRFLOW__CORE__MAX_MAP_LENGTH": "100000",
            "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
            "PYTHONPATH": str(CHECKOUT),
            **settings,
        },
        deployment="bench",
        parts=("triggerer",),
    )
    try:
        airflow.migrate()
        children.start("triggerer", [sys.executable, "-m", "airflow", "triggerer"], env=airflow.environment, cwd=home)
        time.sleep(2 * SETTLE_SECONDS)
        yield Stack(airflow, children)
    finally:
        children.stop()


def _measure(stack: Stack, sender: Sender, topics: list[str], options: argparse.Namespace) -> None:
    sender.stall()
    triggerer = stack.triggerer
    idle, idle_cpu = triggerer.memory, triggerer.cpu(10)
    took = stack.wait(options.sensors, topics)
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
    released = stack.released(options.sensors, complete)
    print(f"{options.sensors} sensors over {options.topics} control topics, taken up within {took:.0f} s")
    print(f"Kafka clients in the triggerer   {clients}")
    above = "  ".join(f"{now - before:.0f}" for before, now in zip(idle, memory, strict=True))
    print(
        f"memory above idle, MB            {sum(memory) - sum(idle):.0f}   (idle {sum(idle):.0f}; by process {above})"
    )
    print(f"CPU, % of a core, idle           {_shares(idle_cpu)}")
    print(f"CPU at {options.rate:.0f} events/s              {_shares(cpu)}")
    print(f"the COMPLETE of all was sent in  {complete - sent:.2f} s")
    _tell_release(stack, released, complete)


def _floor(stack: Stack, _: Sender, topics: list[str], options: argparse.Namespace) -> None:
    moment = time.time() + options.lead
    took = stack.wait(options.sensors, topics, moment)
    if time.time() > moment:
        raise TimeoutError(f"they were not taken up within {options.lead:.0f} s: say more by --lead")
    print(f"{options.sensors} tasks that wait for a moment, taken up within {took:.0f} s")
    _tell_release(stack, stack.released(options.sensors, moment), moment)


def _tell_release(stack: Stack, released: list[float], since: float) -> None:
    print(f"fired after it, s                {_spread(list(stack.fired(since)))}")
    print(f"successful after it, s           {_spread(released)}   ({len(released)} tasks)")


def _spread(seconds: list[float]) -> str:
    if not seconds:
        return "none"
    marks = {"first": min(seconds), "median": statistics.median(seconds), "last": max(seconds)}
    return "  ".join(f"{name} {value:.1f}" for name, value in marks.items())


def _shares(cpu: dict[str, float]) -> str:
    return "  ".join(f"{name} {share:.1f}" for name, share in cpu.items())


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {WAIT_SECONDS:.0f} s")
        time.sleep(2.0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
