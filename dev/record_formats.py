# SPDX-License-Identifier: Apache-2.0
"""Records tables, ledgers and a control topic as the installed package writes them, for later versions to read.

Contract: `python -m dev.record_formats FOLDER` plays one story with a broker, a catalog and a warehouse of its own, all
through the commands of `lakecommit`, and stops in the middle of it: a window whose process was killed, a commit that
failed, a range over its budget. It writes to FOLDER

* `lake.tar.xz`: the broker's data, catalog, warehouse and specs, byte for byte,
* `control.jsonl.gz`: the records of the control topic with what `control-log` told of each,
* `told.json`: which code that was, and what `status`, `plan`, `ledger show` and `verify` told at the end.

The package is the one that the interpreter has installed, whatever checkout this module is of. Nothing in the bytes
says where they were recorded: the tables are below :data:`HERE`, which every process takes for its own folder, and the
host has a name of its own. Topics keep their records for ever: they are read when they are years old.

Needs Linux and the right to name a host: root's, or that of `unshare --user --map-root-user`.

Failure story: a step of the story that ends in another way than it should ends the recording; nothing is written.
"""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
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

from dev.paths import CHECKOUT
from dev.servers.kafka import Broker

HERE = "file:///proc/self/cwd"
BROKER = "BROKER"
"""Stands in the packed specs for the broker's address."""
HOST = "recorder"
CONTROL, CONTROL_PARTITIONS = "control", 6
TRIGGER = "create trigger outage before update on iceberg_tables begin select raise(abort, 'the catalog is away'); end"
STEP_SECONDS = 240.0
CLONE_NEWUTS = 0x04000000

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
    "dead_letter_max_records": 5,
    "metadata_columns": True,
    "slice_records": 100,
    "groups": 2,
}
RETURNS = {**ORDERS, "name": "returns", "topics": "returns", "control_events": "1.10"}
VISITS: dict[str, Any] = {
    "name": "visits",
    "topics": "visits",
    "table": "shop.visits",
    "create": {"schema": SCHEMA},
    "metadata_columns": True,
    "timestamps": {"at": "iso8601"},
    "on_spec_change": "void",
}
SPECS = {
    "orders": ORDERS,
    "returns": RETURNS,
    "visits": VISITS,
    # The same landings with other settings, for one step of the story.
    "orders-in-windows": {**ORDERS, "max_records": 70},
    "orders-in-small-slices": {**ORDERS, "slice_records": 10},
    "visits-before": {key: value for key, value in VISITS.items() if key != "timestamps"} | {"slice_records": 10},
}
BAD = [b"no json", b'{"id": "x"}']
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
        _until(
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
        command = self._command(*verb.split(), f"{spec}.yaml", *more)
        print(f"  {' '.join(command[3:])}", file=sys.stderr, flush=True)
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False)
        if code is not None and done.returncode != code:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}, not {code}:\n{done.stderr[-4000:]}")
        return [json.loads(line) for line in done.stdout.splitlines()] if "--json" in more or verb == "land" else []

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
        _until(lambda: not any(_works_in(self.folder)))
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
    return landing | {
        # What is open when the recording ends claims nothing any more when it is read.
        "completion_timeout": 60,
        "control_topic": CONTROL,
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


# -- the story --------------------------------------------------------------------------------------------------------


def tell(lake: Lake) -> dict[str, Any]:
    """All up to where it stops; what only who told it knows: the offsets that a person gave up."""
    orders = lake.orders
    lake.make()

    lake.send("orders", 0, orders(160))
    lake.send("orders", 1, [*orders(60), *BAD, None, *orders(60)])
    lake.send("orders", 2, orders(20), transaction="commit")
    lake.send("orders", 2, orders(10), transaction="abort")
    lake.send("orders", 2, orders(20, colour="red"))
    lake.run("land", "orders")
    lake.keep_control_topic()

    lake.send("orders", 0, [*BAD * 3, *orders(20)])
    lake.send("orders", 1, [*BAD * 4, *orders(20)])
    lake.run("land", "orders", code=1)
    (skipped,) = lake.run("unblock", "orders", "--skip", "--partition", "orders:0", "--json")
    lake.run("unblock", "orders", "--raise", "10", "--json")
    lake.run("land", "orders")

    for partition in range(2):
        lake.send("returns", partition, [*orders(40), *BAD])
    lake.run("land", "returns")
    for partition in range(3):
        lake.send("orders", partition, orders(50))
    lake.run("land", "orders-in-windows")

    lake.send("visits", 0, orders(40))
    lake.run("ledger init", "visits", "--from", "visits:0=10")
    lake.run("land", "visits-before")
    lake.send("visits", 0, orders(300))
    lake.kill_a_landing("visits-before", after=2)
    lake.run("land", "visits")

    lake.send(CONTROL, zlib.crc32(b"lakecommit-orders") % CONTROL_PARTITIONS, list(_of_connectors()))
    leave_in_the_middle(lake)
    return {"skipped": skipped["unblocked"]}


def leave_in_the_middle(lake: Lake) -> None:
    lake.send("orders", 2, [*lake.orders(30), *BAD * 4, *lake.orders(30)])
    lake.run("land", "orders", code=1)
    for partition in range(2):
        lake.send("orders", partition, lake.orders(80))
    with lake.outage():
        lake.run("land", "orders", code=1)
    for partition in range(2):
        lake.send("orders", partition, lake.orders(600))
    lake.kill_a_landing("orders-in-small-slices", after=4)
    lake.send("returns", 1, lake.orders(30))


def _of_connectors() -> Iterator[bytes]:
    """Events as the connector's own classes wrote them."""
    golden = json.loads((CHECKOUT / "tests/support/golden_events.json").read_text())
    for events in golden.values():
        yield from (zlib.decompress(base64.b64decode(event)) for event in events.values())


def ask(lake: Lake) -> dict[str, Any]:
    """What the commands that only read tell of it, once no claim holds any more."""
    _until(lambda: not any(c["live"] for c in lake.run("status", "orders", "--json", code=None)[0]["cycles"]))
    verbs = {"status": "status", "plan": "plan", "ledger": "ledger show", "verify": "verify"}
    return {
        landing: {key: lake.run(verb, landing, "--json", code=None) for key, verb in verbs.items()}
        for landing in ("orders", "returns", "visits")
    }


def control_log(lake: Lake) -> list[dict[str, Any]]:
    """Records of the control topic, each with its bytes and with what was told of it."""
    told = {(t["partition"], t["offset"]): t for t in lake.run("control-log", "orders", "--json")}
    raw = [{**record, "told": told.pop((record["partition"], record["offset"]))} for record in lake.control_records()]
    if told or not raw:
        raise RuntimeError(f"control-log told of records that are not there: {list(told)}")
    return raw


_ABOUT = """
import importlib.metadata, json, pathlib, subprocess, sys
import airflow_provider_lakecommit as package
folder = str(pathlib.Path(package.__file__).parent)
git = lambda *words: subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True).stdout
if git("status", "--porcelain", "--", "."):
    sys.exit(f"{folder} differs from its commit")
names = "confluent-kafka", "fastavro", "pyarrow", "pyiceberg", "pyspark"
versions = {name: importlib.metadata.version(name) for name in names}
print(json.dumps({"commit": git("rev-parse", "--short", "HEAD").strip(), "version": package.__version__} | versions))
"""


def about(folder: Path) -> dict[str, str]:
    """Which code is recorded, as the processes in *folder* find it."""
    done = subprocess.run([sys.executable, "-c", _ABOUT], cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


# -- what is left of it -----------------------------------------------------------------------------------------------


def pack(folder: Path, archive: Path) -> None:
    """The same files make the same archive."""
    for name in SPECS:
        path = folder / f"{name}.yaml"
        values = json.loads(path.read_text())
        path.write_text(json.dumps(values | {"kafka": {"bootstrap.servers": BROKER}}, indent=1) + "\n")
    found = [
        folder / "catalog.db",
        *folder.glob("*.yaml"),
        *folder.glob("warehouse/**/*"),
        *folder.glob("kafka/data/**/*"),
    ]
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(found):
            if path.is_file() and path.name != ".lock":
                tar.add(path, path.relative_to(folder).as_posix(), filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o644
    return member


def _until(holds: Callable[[], bool]) -> None:
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


def _name_host() -> None:
    """For this process and those below it only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWUTS):
        raise SystemExit("no right to name a host: run it as root, or below `unshare --user --map-root-user`")
    socket.sethostname(HOST)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    _name_host()
    out = Path(arguments[0])
    with tempfile.TemporaryDirectory(prefix="recorded-") as made:
        folder = Path(made).resolve()
        code = about(folder)
        with Broker(folder / "kafka") as broker:
            lake = Lake(folder, broker)
            story = tell(lake)
            told = ask(lake)
            records = control_log(lake)
        pack(folder, out / "lake.tar.xz")
    with gzip.GzipFile(out / "control.jsonl.gz", "wb", mtime=0) as lines:
        lines.writelines(json.dumps(record, separators=(",", ":")).encode() + b"\n" for record in records)
    (out / "told.json").write_text(json.dumps({"code": code, **story, "landings": told}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
