# SPDX-License-Identifier: Apache-2.0
"""The lake that a recording is made in: a folder with a broker's address, a catalog in SQLite, a warehouse and specs.

Contract: all is done through the commands of `lakecommit`, run in that folder by the interpreter that records, so that
nothing in the bytes says where it was. Topics keep their records for ever: they are read when they are years old.

Failure story: a command that ends in another way than it should, and whatever does not come about in time, is a
:class:`RuntimeError` that ends the recording.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Message, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # public all the same
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from airflow_provider_lakecommit.landing.options import merged
from dev.servers.kafka import Broker

HERE = "file:///proc/self/cwd"
CONTROL = "control"
CONTROL_PARTITIONS = 6
TRIGGER = "create trigger outage before update on iceberg_tables begin select raise(abort, 'the catalog is away'); end"
STEP_SECONDS = 240.0
SCHEMA = [
    {"name": "id", "type": "long", "required": True},
    {"name": "amount", "type": "decimal(12, 2)"},
    {"name": "at", "type": "timestamptz"},
    {"name": "kafka_topic", "type": "string"},
    {"name": "kafka_partition", "type": "int"},
    {"name": "kafka_offset", "type": "long"},
]
ORDERS: dict[str, Any] = {
    "name": "orders",
    "topics": "orders",
    "table": "shop.orders",
    "create": {"schema": SCHEMA, "partition_by": ["bucket(2, id)"], "sort_order": ["id"]},
    "dead_letter_table": "shop.orders_dead",
    "dead_letters": {"max_records": 5},
    "columns": {"metadata": True},
    "window": {"slice_records": 100, "groups": 2},
}
RETURNS = {**ORDERS, "name": "returns", "topics": "returns", "connections": {"control_events": "1.10"}}
VISITS: dict[str, Any] = {
    "name": "visits",
    "topics": "visits",
    "table": "shop.visits",
    "create": {"schema": SCHEMA},
    "columns": {"metadata": True},
    "timestamps": {"at": "iso8601"},
    "window": {"on_spec_change": "void"},
}
SPECS = {
    "orders": ORDERS,
    "returns": RETURNS,
    "visits": VISITS,
    # The same landings with other settings, for one step of the story.
    "orders-in-windows": merged(ORDERS, {"window": {"max_records": 70}}),
    "orders-in-small-slices": merged(ORDERS, {"window": {"slice_records": 10}}),
    "visits-before": merged(
        {key: value for key, value in VISITS.items() if key != "timestamps"}, {"window": {"slice_records": 10}}
    ),
}
TOPICS = {"orders": 3, "returns": 2, "visits": 1}


class Lake:
    """A folder with a broker, a catalog in SQLite, a warehouse and specs."""

    def __init__(self, folder: Path, broker: Broker) -> None:
        self.folder = folder
        self._kafka: dict[str, Any] = {"bootstrap.servers": broker.bootstrap}
        self._admin = AdminClient(self._kafka)
        self._sent = 0

    def make(self) -> None:
        """What is there before the first landing."""
        (self.folder / "warehouse").mkdir()
        for name, landing in SPECS.items():
            told = _spec(landing, self._kafka["bootstrap.servers"])
            (self.folder / f"{name}.yaml").write_text(json.dumps(told, indent=1))
        wanted = [NewTopic(name, parts, 1, config={"retention.ms": "-1"}) for name, parts in TOPICS.items()]
        for made in self._admin.create_topics(wanted).values():
            made.result(STEP_SECONDS)

    # -- records ------------------------------------------------------------------------------------------------------

    def keep_control_topic(self) -> None:
        """It is made by the package; its records are to be there for ever."""
        entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, CONTROL, incremental_configs=[entry])
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(STEP_SECONDS)

    def orders(self, count: int, **more: Any) -> list[bytes]:
        """Records that no other is equal to."""
        first, self._sent = self._sent, self._sent + count
        return [json.dumps(_order(n) | more).encode() for n in range(first, first + count)]

    def send(self, topic: str, partition: int, values: Sequence[bytes | None], transaction: str | None = None) -> None:
        """:param transaction: `commit` or `abort` for one that all are in"""
        settings = self._kafka | {"linger.ms": 5}
        producer = Producer(settings | ({"transactional.id": f"shop-{self._sent}"} if transaction else {}))
        if transaction:
            producer.init_transactions(STEP_SECONDS)
            producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        if producer.flush(STEP_SECONDS):
            raise RuntimeError(f"records for {topic} were not taken")
        if transaction == "commit":
            producer.commit_transaction(STEP_SECONDS)
        elif transaction == "abort":
            producer.abort_transaction(STEP_SECONDS)

    def await_ends(self) -> None:
        """Until no transaction is open on the control topic."""
        places = [TopicPartition(CONTROL, n) for n in range(CONTROL_PARTITIONS)]
        until(
            lambda: (
                self._ends(places, IsolationLevel.READ_COMMITTED) == self._ends(places, IsolationLevel.READ_UNCOMMITTED)
            )
        )

    def _ends(self, places: Sequence[TopicPartition], level: IsolationLevel) -> list[int]:
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(dict.fromkeys(places, latest), isolation_level=level)
        return [asked[p].result(STEP_SECONDS).offset for p in places]

    def control_records(self) -> Iterator[dict[str, Any]]:
        """The bytes of all committed records, by partition and offset."""
        settings = {**self._kafka, "group.id": "recorder", "enable.auto.commit": False, "enable.partition.eof": True}
        consumer = Consumer({**settings, "isolation.level": "read_committed"})
        for partition in range(CONTROL_PARTITIONS):
            consumer.assign([TopicPartition(CONTROL, partition, 0)])
            while (message := consumer.poll(STEP_SECONDS)) is not None and message.error() is None:
                yield {
                    "partition": partition,
                    "offset": message.offset(),
                    "at": message.timestamp()[1],
                    "key": _text(message.key()),
                    "value": _text(message.value()),
                    "headers": [[name, _text(value)] for name, value in _pairs(message)],
                }
        consumer.close()

    # -- commands -----------------------------------------------------------------------------------------------------

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "airflow_provider_lakecommit.cli.main", *words]

    def run(self, verb: str, spec: str, *more: str, code: int | None = 0) -> list[Any]:
        """A command to its end, which must be *code*, if one is named; the JSON lines that it told."""
        more = (*more, "--json") if verb == "land" else more
        command = self._command(*verb.split(), f"{spec}.yaml", *more)
        print(f"  {' '.join(command[3:])}", file=sys.stderr, flush=True)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if code is not None and done.returncode != code:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}, not {code}:\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()] if "--json" in more else []

    def kill_a_landing(self, spec: str, after: int) -> None:
        """Kill a landing with all its processes once so many of its slices are reported."""
        command = self._command("land", f"{spec}.yaml")
        landing = subprocess.Popen(command, cwd=self.folder, stderr=subprocess.PIPE, text=True, start_new_session=True)
        done = 0
        for line in landing.stderr or ():
            done += ": done in" in line
            if done == after:
                break
        os.killpg(landing.pid, signal.SIGKILL)
        landing.communicate()
        if done < after:
            raise RuntimeError(f"{spec}: ended after {done} slices")
        until(lambda: not any(_works_in(self.folder)))
        self.await_ends()

    @contextmanager
    def outage(self) -> Iterator[None]:
        """The catalog takes no commit."""
        self._execute(TRIGGER)
        yield
        self._execute("drop trigger outage")

    def _execute(self, statement: str) -> None:
        with sqlite3.connect(self.folder / "catalog.db", timeout=30) as connection:
            connection.execute(statement)


def _spec(landing: dict[str, Any], bootstrap: str) -> dict[str, Any]:
    # What is open when the recording ends claims nothing any more when it is read.
    options = {"window": {"completion_timeout": 60}, "connections": {"control_topic": CONTROL}}
    return merged(landing, options) | {
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": {"name": "lake", "type": "sql", "uri": "sqlite:///catalog.db", "warehouse": f"{HERE}/warehouse"},
        "spark": {"master": "local[2]"},
    }


def _order(n: int) -> dict[str, Any]:
    return {"id": n, "amount": f"{n}.{n % 100:02d}", "at": f"2026-01-01T{n // 60 % 24:02d}:{n % 60:02d}:00Z"}


def _pairs(message: Message) -> list[tuple[str, bytes]]:
    found: Any = message.headers()
    return list(found or ())


def _text(value: bytes | str | None) -> str | None:
    raw = value.encode() if isinstance(value, str) else value
    return None if raw is None else base64.b64encode(raw).decode()


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + STEP_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise RuntimeError(f"it did not come about within {STEP_SECONDS:.0f} s")
        time.sleep(0.2)


def _works_in(folder: Path) -> Iterator[str]:
    """Processes whose folder it is."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder:
                yield process.name
        except OSError:
            continue
