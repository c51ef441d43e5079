# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` of a set, told to stop or killed while Spark works for all of its landings."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.cli import Running
from tests.support.shop import Shop
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.campaign]

TABLES = ("north", "south", "west")
NAMES = tuple(f"shop.lake.{table}" for table in TABLES)
ORDERS, SLICE = 10_000, 250
MARK = "LAKECOMMIT_TEST_TREE"


@pytest.fixture
def filled(shop: Shop) -> Shop:
    """Three landings of 10,000 orders each."""
    for table in TABLES:
        shop.topic(table, range(ORDERS))
    shop.values["defaults"] |= {"slice_records": SLICE, "groups": 2}
    return shop


@pytest.fixture
def tree() -> str:
    """What marks the processes of a call."""
    return uuid4().hex


@pytest.fixture
def running(filled: Shop, tree: str) -> Iterator[Running]:
    """The call, while all three are at work and some slices are done."""
    process = Running.land(filled.write(), env={MARK: tree})
    for name in NAMES:
        process.wait_for(f"{name}: cycle 0 (")
    process.wait_for(": done in", times=3)
    yield process
    process.close()


def check_all_landed_once(shop: Shop) -> None:
    for table, name in zip(TABLES, NAMES, strict=True):
        assert shop.ids(table) == list(range(ORDERS))
        verified = shop.run("verify", "--landing", name, "--json")
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
def test_a_call_that_is_instructed_to_stop_reports_every_landing_and_leaves_no_process(
    number: signal.Signals, filled: Shop, running: Running, tree: str
) -> None:
    assert len(processes(tree)) > 1
    running.kill(number)
    answer = running.end()
    assert answer.code == 128 + number
    assert f"stopped by {number.name}" in answer.err
    for name in NAMES:
        own = [line for line in answer.err.splitlines() if line.startswith(f"{name}: ")]
        kept = ("will not be read again", " rows in snapshot ")
        assert any(words in line for line in own for words in kept), own
    assert "Traceback" not in answer.err
    until(lambda: not processes(tree), what="the end of Spark")

    assert filled.run("land").code == 0
    check_all_landed_once(filled)


def test_after_a_kill_the_next_call_goes_on_with_every_landing(filled: Shop, running: Running, tree: str) -> None:
    running.kill()
    assert running.end().code == -signal.SIGKILL
    until(lambda: not processes(tree), what="the end of Spark")

    answer = filled.run("land")
    assert answer.code == 0, answer.err
    for name in NAMES:
        assert f"{name}: cycle " in answer.err
        assert any(
            line.startswith(f"{name}: ") and "is of a run that has ended" in line for line in answer.err.splitlines()
        )
    check_all_landed_once(filled)
