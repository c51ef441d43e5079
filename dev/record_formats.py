# SPDX-License-Identifier: Apache-2.0
"""Records tables, ledgers and a control topic as the installed package writes them, for later versions to read.

Contract: `python -m dev.record_formats FOLDER` plays one story with a broker, a catalog and a warehouse of its own, all
through the commands of `lakecommit`, and stops in the middle of it: a window whose process was killed, a commit that
failed, a range over its budget. It writes to FOLDER

* `lake.tar.xz`: the broker's data, catalog, warehouse and specs, byte for byte,
* `control.jsonl.gz`: the records of the control topic with what `history --control-topic` told of each,
* `told.json`: which code that was, and what `status`, `plan`, `history --ledger` and `verify` told at the end.

The package is the one that the interpreter has installed, whatever checkout this module is of. Nothing in the bytes
says where they were recorded: the tables are below :data:`~dev.recorded_lake.HERE`, which every process takes for its
own folder, and the host has a name of its own.

Needs Linux and the right to name a host: root's, or that of `unshare --user --map-root-user`.

Failure story: a step of the story that ends in another way than it should ends the recording; nothing is written.
"""

from __future__ import annotations

import base64
import ctypes
import gzip
import json
import socket
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dev.paths import CHECKOUT
from dev.recorded_lake import CONTROL, CONTROL_PARTITIONS, SPECS, Lake, until
from dev.servers.kafka import Broker

BROKER = "BROKER"
"""Stands in the packed specs for the broker's address."""
HOST = "recorder"
CLONE_NEWUTS = 0x04000000

BAD = [b"no json", b'{"id": "x"}']


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
    (skipped,) = lake.run("reset blocked", "orders", "--skip", "--partition", "orders:0", "--yes", "--json")
    lake.run("reset blocked", "orders", "--raise", "10", "--yes", "--json")
    lake.run("land", "orders")

    for partition in range(2):
        lake.send("returns", partition, [*orders(40), *BAD])
    lake.run("land", "returns")
    for partition in range(3):
        lake.send("orders", partition, orders(50))
    lake.run("land", "orders-in-windows")

    lake.send("visits", 0, orders(40))
    lake.run("reset offsets", "visits", "--from", "visits:0=10", "--yes")
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
    until(lambda: not any(c["live"] for c in lake.run("status", "orders", "--json", code=None)[0]["cycles"]))
    verbs = {"status": "status", "plan": "plan", "ledger": "history --ledger", "verify": "verify"}
    return {
        landing: {key: lake.run(verb, landing, "--json", code=None) for key, verb in verbs.items()}
        for landing in ("orders", "returns", "visits")
    }


def control_log(lake: Lake) -> list[dict[str, Any]]:
    """Records of the control topic, each with its bytes and with what was told of it."""
    told = {(t["partition"], t["offset"]): t for t in lake.run("history", "orders", "--control-topic", "--json")}
    raw = [{**record, "told": told.pop((record["partition"], record["offset"]))} for record in lake.control_records()]
    if told or not raw:
        raise RuntimeError(f"the control topic told of records that are not there: {list(told)}")
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
