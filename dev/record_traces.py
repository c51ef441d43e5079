# SPDX-License-Identifier: Apache-2.0
"""Records what a real Iceberg sink of Kafka Connect says on its control topic while things go wrong with it.

Contract: `python -m dev.record_traces FOLDER [SCENE …]` plays the scenes with a broker, two workers and a catalog of
its own, and writes one `SCENE.jsonl.gz` each: a first line with the marks (when what was done to the connector), then
one line a record, as it stood on the control topic, partitions merged by time. The tests of the verdict replay them.
Time is scaled: the sink commits every two seconds.

Failure story: a scene that does not come about within its time ends the run with an error; those before it are written.
"""

from __future__ import annotations

import base64
import gzip
import json
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # public all the same
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker, iceberg_sink

INTERVAL = 2.0
ANSWER_TIMEOUT = 1.5
SOURCE_PARTITIONS = 4
CONTROL_PARTITIONS = {"three_control_partitions": 3}
"""Of scenes that have more than one."""
RECORDS_A_SECOND = 16
SCENE_SECONDS = 90.0
TRIGGER = "create trigger outage before update on iceberg_tables begin select {}; end"
CONFLICT, REFUSAL = "raise(ignore)", "raise(abort, 'the catalog is away')"


class Lake:
    """A catalog in SQLite that can be told to refuse commits; it is read all the same."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "catalog.db"
        warehouse = folder / "warehouse"
        warehouse.mkdir()
        self.sink = {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{self.database}?busy_timeout=30000",
            "warehouse": f"file://{warehouse}",
        }
        self.catalog: Catalog = load_catalog(
            "lake", type="sql", uri=f"sqlite:///{self.database}", warehouse=f"file://{warehouse}"
        )
        self.catalog.create_namespace("shop")

    def create(self, table: str) -> None:
        self.catalog.create_table(table, Schema(NestedField(1, "id", LongType()), NestedField(2, "part", LongType())))

    def commits(self, table: str) -> int:
        return len(self.catalog.load_table(table).history())

    def execute(self, statement: str) -> None:
        with sqlite3.connect(self.database, timeout=30) as connection:
            connection.execute(statement)


class Scene:
    """One connector, its source and its control topic, from its creation to the end of the recording."""

    def __init__(
        self, name: str, kafka: dict[str, Any], lake: Lake, workers: list[ConnectWorker], rate: float = RECORDS_A_SECOND
    ) -> None:
        """:param rate: records a second"""
        self.name, self.lake, self.workers, self.rate = name, lake, workers, rate
        run = uuid4().hex[:6]
        self.connector = f"{name.replace('_', '-')}-{run}"
        self.source, self.control, self.table = f"source-{run}", f"control-{run}", f"shop.t_{run}"
        self.marks: list[dict[str, Any]] = []
        self.partitions: tuple[int, ...] = tuple(range(SOURCE_PARTITIONS))
        self._kafka = kafka
        admin = AdminClient(kafka)
        topics = [
            NewTopic(self.source, SOURCE_PARTITIONS, 1),
            NewTopic(self.control, CONTROL_PARTITIONS.get(name, 1), 1),
        ]
        for made in admin.create_topics(topics).values():
            made.result(30)
        lake.create(self.table)
        self.fed = 0
        self._done = threading.Event()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._feeder.start()

    def begin(self, **settings: str) -> None:
        """Create the connector; returns after some commits."""
        config = iceberg_sink(
            topic=self.source,
            table=self.table,
            tasks=2,
            control_topic=self.control,
            commit_seconds=INTERVAL,
            catalog_name="lake",
            catalog=self.lake.sink,
        )
        timeout = {"iceberg.control.commit.timeout-ms": str(int(ANSWER_TIMEOUT * 1000))}
        self.workers[0].create(self.connector, {**config, **timeout, **settings})
        self.wait(lambda: self.lake.commits(self.table) >= 5)
        self.mark("healthy")

    def mark(self, what: str) -> None:
        self.marks.append({"at": time.time(), "what": what})
        print(f"{self.name}: {what}", flush=True)

    def cycles(self, number: float) -> None:
        """Let so many commit intervals pass."""
        time.sleep(number * INTERVAL)

    def wait(self, done: Callable[[], bool]) -> None:
        self.workers[0].wait_for(done, SCENE_SECONDS)

    def landed(self, more: int = 2) -> None:
        """Until the table got more commits."""
        before = self.lake.commits(self.table)
        self.wait(lambda: self.lake.commits(self.table) >= before + more)

    def rest(self, method: str, path: str) -> Any:
        return self.workers[0].ask(method, f"/connectors/{self.connector}{path}")

    def failed(self) -> bool:
        status = self.rest("GET", "/status") or {}
        return any(task["state"] == "FAILED" for task in status.get("tasks", ()))

    def leader(self) -> int:
        """Which worker has the coordinator: the one that sent the last START_COMMIT."""
        said = [self._last_start(worker) for worker in self.workers]
        return said.index(max(said))

    def _last_start(self, worker: ConnectWorker) -> int:
        lines = [
            line
            for line in worker.log.read_text(errors="replace").splitlines()
            if "Sending event of type: START_COMMIT" in line
        ]
        return int(lines[-1].split()[0]) if lines else 0

    def shrink_source(self, partitions: int) -> None:
        """The topic is made anew with fewer partitions."""
        self.partitions = ()
        admin = AdminClient(self._kafka)
        admin.delete_topics([self.source])[self.source].result(30)
        self.wait(lambda: self.source not in admin.list_topics(timeout=30).topics)
        admin.create_topics([NewTopic(self.source, partitions, 1)])[self.source].result(30)
        self.partitions = tuple(range(partitions))

    def close_source(self) -> int:
        """No more records; they are numbered from one, and this is the last."""
        self._done.set()
        self._feeder.join()
        return self.fed

    def write(self, folder: Path) -> None:
        """The recording; then the connector is deleted."""
        self.mark("end")
        self.close_source()
        with ControlTopic(self.control, self._kafka) as topic, gzip.open(folder / f"{self.name}.jsonl.gz", "wt") as out:
            facts = {"scene": self.name, "group": f"connect-{self.connector}", "interval": INTERVAL}
            print(json.dumps({**facts, "marks": self.marks}), file=out)
            # Sorting is stable: each partition keeps its order.
            for record in sorted(topic.read_all(), key=lambda r: r.timestamp):
                line = {
                    "at": record.timestamp.timestamp(),
                    "partition": record.partition,
                    "offset": record.offset,
                    "key": None if record.key is None else base64.b64encode(record.key).decode(),
                    "value": None if record.value is None else base64.b64encode(record.value).decode(),
                    "headers": [[name, base64.b64encode(value).decode()] for name, value in record.headers],
                }
                print(json.dumps(line), file=out)
        self.rest("DELETE", "")

    def _feed(self) -> None:
        producer = Producer(self._kafka)
        while not self._done.wait(1 / self.rate):
            if self.partitions:
                self.fed += 1
                partition = self.partitions[self.fed % len(self.partitions)]
                value = json.dumps({"id": self.fed, "part": partition})
                producer.produce(self.source, value, str(self.fed), partition=partition)
            producer.poll(0)
        producer.flush(30)


# -- the scenes -------------------------------------------------------------------------------------------------------


def idle(s: Scene) -> None:
    s.begin()
    s.partitions = (0, 1)
    s.mark("two partitions idle")
    s.cycles(5)
    s.partitions = ()
    s.mark("all idle")
    s.cycles(5)
    s.partitions = (0, 1, 2, 3)
    s.mark("busy")
    s.landed(3)


def idle_in_an_outage(s: Scene) -> None:
    """Idle cycles complete, catalog or not."""
    everything = s.partitions
    s.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})

    def feed(partitions: tuple[int, ...], what: str, cycles: int) -> None:
        s.partitions = partitions
        s.mark(what)
        s.cycles(cycles)

    feed((), "idle", 6)
    feed(everything, "traffic", 4)
    feed((), "idle", 5)
    s.lake.execute(TRIGGER.format(CONFLICT))
    feed((), "away, idle", 5)
    feed(everything, "away, traffic", 8)
    s.lake.execute("drop trigger outage")
    s.mark("back")
    s.landed(3)
    feed((), "idle", 4)
    feed(everything, "traffic", 0)
    s.landed()


def outage_with_retries(s: Scene) -> None:
    s.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    s.lake.execute(TRIGGER.format(CONFLICT))
    s.mark("catalog away")
    s.cycles(18)
    s.lake.execute("drop trigger outage")
    s.mark("catalog back")
    s.landed(4)


def outage_at_defaults(s: Scene) -> None:
    s.begin()
    s.lake.execute(TRIGGER.format(REFUSAL))
    s.mark("catalog away")
    s.wait(s.failed)
    s.mark("coordinator dead")
    s.cycles(6)
    s.lake.execute("drop trigger outage")
    s.mark("catalog back")
    s.cycles(1)
    s.rest("POST", "/restart?includeTasks=true&onlyFailed=true")
    s.mark("restarted")
    s.landed(4)


def dropped_table(s: Scene) -> None:
    s.begin()
    s.lake.catalog.drop_table(s.table)
    s.mark("table dropped")
    s.cycles(5)
    s.lake.create(s.table)
    s.mark("table replaced")
    s.cycles(4)
    s.rest("POST", "/restart?includeTasks=true")
    s.mark("restarted")
    s.wait(lambda: s.lake.commits(s.table) >= 4)


def paused(s: Scene) -> None:
    s.begin()
    s.rest("PUT", "/pause")
    s.mark("paused")
    s.cycles(8)
    s.rest("PUT", "/resume")
    s.mark("resumed")
    s.landed(4)


def paused_in_an_outage(s: Scene) -> None:
    s.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    s.lake.execute(TRIGGER.format(CONFLICT))
    s.mark("catalog away")
    s.cycles(16)
    s.rest("PUT", "/pause")
    s.mark("paused")
    s.cycles(6)
    s.lake.execute("drop trigger outage")
    s.mark("catalog back")
    s.cycles(6)
    s.rest("PUT", "/resume")
    s.mark("resumed")
    s.landed(4)


def half_silent(s: Scene) -> None:
    s.begin()
    other = 1 - s.leader()
    with s.workers[other].frozen():
        s.mark("half silent")
        s.cycles(8)
    s.mark("all back")
    s.landed(5)


def late_answers(s: Scene) -> None:
    s.begin()
    other = 1 - s.leader()
    for _ in range(4):
        with s.workers[other].frozen():
            s.mark("one worker late")
            time.sleep(INTERVAL + ANSWER_TIMEOUT / 2)
        s.mark("it goes on")
        s.cycles(2)
    s.landed(2)


def silent_coordinator(s: Scene) -> None:
    s.begin()
    with s.workers[s.leader()].frozen():
        s.mark("coordinator frozen")
        s.cycles(7)
    s.mark("it goes on")
    s.landed(4)


def zombie_coordinator(s: Scene) -> None:
    """Another one takes over, in vain: the frozen one still has the control topic. Then it wakes up."""
    s.begin(**{"consumer.override.session.timeout.ms": "8000"})
    with s.workers[s.leader()].frozen():
        s.mark("coordinator frozen")
        s.cycles(12)
    s.mark("it goes on")
    s.cycles(12)
    s.landed(3)


def three_control_partitions(s: Scene) -> None:
    """No order across them, and no patience: whoever is not quick is late."""
    settings = {"iceberg.control.commit.max-consecutive-failures": "1000", "iceberg.control.commit.timeout-ms": "100"}
    s.begin(**settings)
    s.lake.execute(TRIGGER.format(CONFLICT))
    s.mark("catalog away")
    s.cycles(8)
    s.lake.execute("drop trigger outage")
    s.mark("catalog back")
    s.landed(3)
    s.lake.catalog.drop_table(s.table)
    s.mark("table dropped")
    s.cycles(5)
    s.lake.create(s.table)
    s.rest("POST", "/restart?includeTasks=true")
    s.mark("replaced, restarted")
    s.landed(3)


def shrunk_topic(s: Scene) -> None:
    s.begin()
    s.rest("PUT", "/stop")
    s.mark("stopped")
    s.wait(lambda: not (s.rest("GET", "/status") or {"tasks": [1]})["tasks"])
    s.shrink_source(2)
    s.mark("topic made anew")
    s.rest("PUT", "/resume")
    s.cycles(10)
    s.landed(2)


SCENES: dict[str, Callable[[Scene], None]] = {
    play.__name__: play
    for play in (
        outage_with_retries,
        outage_at_defaults,
        dropped_table,
        idle,
        idle_in_an_outage,
        half_silent,
        late_answers,
        silent_coordinator,
        paused,
        paused_in_an_outage,
        zombie_coordinator,
        three_control_partitions,
        shrunk_topic,
    )
}


def main(folder: Path, names: list[str]) -> None:
    """Record those scenes, or all."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        home = Path(temporary)
        lake = Lake(home)
        with Broker(home / "kafka") as broker:
            kafka = {"bootstrap.servers": broker.bootstrap}
            first = ConnectWorker(home / "one", broker.bootstrap, flush=0.5, heap="512m")
            second = ConnectWorker(home / "two", broker.bootstrap, flush=0.5, heap="512m", properties=first.group)
            with first, second:
                for name in names or list(SCENES):
                    scene = Scene(name, kafka, lake, [first, second])
                    SCENES[name](scene)
                    scene.write(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
