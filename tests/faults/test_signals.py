# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` with several specs, told to stop or killed while Spark works for all of them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import LAND_SECONDS, Answer, Running, orders, run, write_spec
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.campaign]

NAMES = ("north", "south", "west")
ORDERS, SLICE = 10_000, 250
MARK = "LAKECOMMIT_TEST_TREE"


@pytest.fixture
def specs(bootstrap: str, tmp_path: Path) -> list[Path]:
    """Three landings of 10,000 orders each, in one catalog."""
    catalog = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    admin, sender, made = AdminClient({"bootstrap.servers": bootstrap}), Sender(bootstrap), []
    for name in NAMES:
        topic = f"{name}-{uuid4().hex[:8]}"
        create_topic(admin, topic, 2)
        for partition in range(2):
            sender.produce(topic, orders(ORDERS)[partition::2], partition)
        made.append(
            write_spec(tmp_path, name, topic, f"{topic}-control", bootstrap, catalog, slice_records=SLICE, groups=2)
        )
    return made


@pytest.fixture
def tree() -> str:
    """What marks the processes of a call."""
    return uuid4().hex


@pytest.fixture
def running(specs: list[Path], tree: str) -> Iterator[Running]:
    """The call, while all three are at work and some slices are done."""
    process = Running.land(*specs, env={MARK: tree})
    for name in NAMES:
        process.wait_for(f"{name}: cycle 0 (")
    process.wait_for(": done in", times=3)
    yield process
    process.close()


def land_all(specs: list[Path]) -> Answer:
    return run("land", *map(str, specs), timeout=LAND_SECONDS)


def check_all_landed_once(specs: list[Path]) -> None:
    for spec in specs:
        values = json.loads(spec.read_text())
        found = load_catalog(**values["catalog"]).load_table(values["table"]).scan().to_arrow()
        assert sorted(found.column("id").to_pylist()) == list(range(ORDERS))
        verified = run("verify", str(spec), "--json")
        assert verified.code == 0, verified.out


def processes(tree: str) -> list[int]:
    """Those that were started below the call, and live."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdecimal() else b""
        except OSError:
            continue
        if f"{MARK}={tree}".encode() in environment.split(b"\0"):
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_a_call_that_is_told_to_stop_tells_every_landing_and_leaves_no_process(
    number: signal.Signals, specs: list[Path], running: Running, tree: str
) -> None:
    assert len(processes(tree)) > 1
    running.kill(number)
    answer = running.end()
    assert answer.code == 128 + number
    assert f"told to stop by {number.name}" in answer.err
    for name in NAMES:
        own = [line for line in answer.err.splitlines() if line.startswith(f"{name}: ")]
        kept = ("will not be read again", " rows in snapshot ")
        assert any(words in line for line in own for words in kept), own
    assert "Traceback" not in answer.err
    until(lambda: not processes(tree), what="the end of Spark")

    assert land_all(specs).code == 0
    check_all_landed_once(specs)


def test_after_a_kill_the_next_call_goes_on_with_every_landing(specs: list[Path], running: Running, tree: str) -> None:
    running.kill()
    assert running.end().code == -signal.SIGKILL
    until(lambda: not processes(tree), what="the end of Spark")

    answer = land_all(specs)
    assert answer.code == 0, answer.err
    for name in NAMES:
        assert f"{name}: cycle " in answer.err
        assert any(
            line.startswith(f"{name}: ") and "is of a process that is gone" in line for line in answer.err.splitlines()
        )
    check_all_landed_once(specs)
