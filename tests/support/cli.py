# SPDX-License-Identifier: Apache-2.0
"""The command line as a process of its own, and what a test wants to do to it.

Contract: :func:`run` forks its process from one that has imported the package (:mod:`tests.support.forks`), anew for
every command; :class:`Running` and whoever uses ``COMMAND`` start an interpreter, as a user does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka.admin import AdminClient

from tests.fixtures.kafka import Sender, create_topic
from tests.support.declared import nested
from tests.support.forks import Forks

COMMAND = (sys.executable, "-m", "airflow_provider_lakecommit.cli.main")
ROOMS = ("cli", "control", "core", "cycle", "formats", "iceberg", "kafka", "operations", "stall", "status")
FORKS = Forks(
    (
        *(f"airflow_provider_lakecommit.{room}.*" for room in ROOMS),
        "confluent_kafka.admin",
        "pyarrow.parquet",
        "pyiceberg.catalog.sql",
        "pyiceberg.io.pyarrow",
    )
)
ANSWER_SECONDS = 600.0
LAND_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def value(self) -> dict[str, Any]:
        (value,) = self.lines
        return value


def run(*arguments: str, timeout: float = ANSWER_SECONDS, folder: Path | None = None) -> Answer:
    """:param folder: in which it runs, where that is not the one of the tests"""
    done = FORKS.run("airflow_provider_lakecommit.cli.main:main", *arguments, timeout=timeout, folder=folder)
    return Answer(code=done.returncode, out=done.stdout, err=done.stderr)


@dataclass(slots=True)
class Running:
    """A `land` that is watched by its standard error."""

    process: subprocess.Popen[str]
    printed: list[str] = field(default_factory=list)
    _news: threading.Condition = field(default_factory=threading.Condition)
    _reader: threading.Thread | None = None

    @classmethod
    def land(cls, spec: Path, options: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Running:
        """:param env: variables that its whole process tree is to have besides."""
        process = subprocess.Popen(
            [*COMMAND, "land", str(spec), "--json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        running = cls(process)
        running._reader = threading.Thread(target=running._read, daemon=True)
        running._reader.start()
        return running

    def _read(self) -> None:
        for line in self.process.stderr or ():
            with self._news:
                self.printed.append(line.rstrip())
                self._news.notify_all()
        with self._news:
            self.printed.append("END")
            self._news.notify_all()

    def count(self, text: str) -> int:
        return sum(text in line for line in self.printed)

    def wait_for(self, text: str, times: int = 1, timeout: float = LAND_SECONDS) -> None:
        """Until so many lines on standard error hold *text*."""
        with self._news:
            there = self._news.wait_for(lambda: self.count(text) >= times or self.count("END") > 0, timeout)
        if not there or self.count(text) < times:
            raise AssertionError(f"{text!r} was not said {times} times:\n" + "\n".join(self.printed[-60:]))

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        self.process.send_signal(number)

    def kill_children(self, command: str) -> None:
        """SIGKILL those processes below it whose command line holds *command*."""
        found = [pid for pid in _below(self.process.pid) if command in _command(pid)]
        if not found:
            raise AssertionError(f"no process below {self.process.pid} runs {command!r}")
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end(self, timeout: float = LAND_SECONDS) -> Answer:
        out = (self.process.stdout.read() if self.process.stdout else "") or ""
        code = self.process.wait(timeout)
        if self._reader is not None:
            self._reader.join(timeout)
        return Answer(code=code, out=out, err="\n".join(self.printed))

    def close(self) -> None:
        """Whatever a test left running ends."""
        for pid in (*_below(self.process.pid), self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()


def _below(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:
            continue
        for child in map(int, children):
            yield child
            yield from _below(child)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def write_spec(
    folder: Path, name: str, topic: str, control: str, bootstrap: str, catalog: Mapping[str, str], **more: Any
) -> Path:
    """A spec of orders `{id, amount}` for the command line."""
    values = {
        "name": name,
        "topics": topic,
        "table": f"shop.{name}",
        "create": {
            "schema": [{"name": "id", "type": "long", "required": True}, {"name": "amount", "type": "decimal(12, 2)"}]
        },
        "dead_letter_table": f"shop.{name}_dead",
        "control_topic": control,
        "kafka": {"bootstrap.servers": bootstrap},
        "catalog": dict(catalog),
        "spark": {"master": "local[2]"},
        **more,
    }
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(nested(**{key: value for key, value in values.items() if value is not None})))
    return path


def orders(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": n, "amount": f"{n}.{n % 100:02d}"} for n in range(first, first + count)]


def landed_orders(bootstrap: str, folder: Path, **fields: Any) -> tuple[Path, str, Sender]:
    """A spec, and its topic: 1,000 orders in each of two partitions, which one run has landed as the spec says."""
    topic = f"orders-{uuid4().hex[:8]}"
    create_topic(AdminClient({"bootstrap.servers": bootstrap}), topic, 2)
    catalog = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }
    own = {"slice_records": 250, **fields}
    spec = write_spec(folder, "orders", topic, f"{topic}-control", bootstrap, catalog, **own)
    sender = Sender(bootstrap)
    for partition in range(2):
        sender.produce(topic, orders(2000)[partition::2], partition)
    assert run("land", str(spec), "--json", timeout=LAND_SECONDS).code == 0
    return spec, topic, sender
