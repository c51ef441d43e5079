# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` with replicas on a real Spark: workers that die or hang while they have slices in hand."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import unique
from tests.support.cli import Running, orders, run, write_spec

pytestmark = [pytest.mark.faults]

MANY = 600_000
"""Orders that two workers need seconds for."""


@dataclass
class Lake:
    """A landing with replicas, and the processes that were begun for it."""

    spec: Path
    running: list[Running] = field(default_factory=list)

    def land(self, *options: str) -> Running:
        self.running.append(Running.land(self.spec, options=options))
        return self.running[-1]

    def check(self, expected: int) -> None:
        values = json.loads(self.spec.read_text())
        found = load_catalog(**values["catalog"]).load_table(values["table"]).scan(selected_fields=("id",))
        assert sorted(found.to_arrow().column("id").to_pylist()) == list(range(expected))
        verified = run("verify", str(self.spec), "--files", "--json")
        assert verified.code == 0, verified.out


def workers(running: Running) -> list[psutil.Process]:
    """Spark's Python workers that have slices in hand, the busiest first: forks of their daemon."""
    found: list[tuple[float, psutil.Process]] = []
    for process in psutil.Process(running.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in " ".join(process.cmdline()) and not process.children():
                found.append((sum(process.cpu_times()[:2]), process))
    return [process for _, process in sorted(found, key=lambda each: -each[0])]


@pytest.fixture
def make_lake(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[..., Lake]]:
    made: list[Lake] = []

    def make(count: int, **more: Any) -> Lake:
        (tmp_path / "warehouse").mkdir()
        catalog = {
            "name": "lake",
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": f"file://{tmp_path}/warehouse",
        }
        topic = make_topic(2)
        stated = {"slice_records": 50_000, "replicas": 2, **more}
        spec = write_spec(tmp_path, unique("replicas"), topic, f"{topic}-control", bootstrap, catalog, **stated)
        for partition in range(2):
            produce(topic, orders(count)[partition::2], partition)
        made.append(Lake(spec))
        return made[-1]

    yield make
    for each in (running for lake in made for running in lake.running):
        each.close()


def test_a_worker_that_dies_and_one_that_hangs_hold_up_no_window(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(MANY)
    running = lake.land()
    running.wait_for(": done in", times=2)
    dies, hangs, *_ = workers(running)
    hangs.send_signal(signal.SIGSTOP)
    dies.kill()
    answer = running.end(timeout=120)
    with suppress(psutil.NoSuchProcess):
        hangs.kill()
    assert answer.code == 0, answer.err
    print(answer.err)
    print(answer.out)
    assert "does not end, and is left alone" in answer.err
    assert sum(line["rows"] for line in answer.lines) == MANY
    lake.check(MANY)
