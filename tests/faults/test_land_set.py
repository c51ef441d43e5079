# SPDX-License-Identifier: Apache-2.0
"""A landing set whose process is killed, that two processes land at once, and that is followed while topics come."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dev.paths import CHECKOUT
from tests.fixtures.kafka import delete_topic
from tests.support.cli import Running
from tests.support.shop import Shop
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.long]

TOPICS = 12
HANGING = """
import sys
import time
from pathlib import Path

if "airflow_provider_lakecommit.cli.main" in sys.orig_argv:
    from pyiceberg.catalog.sql import SqlCatalog

    from airflow_provider_lakecommit.iceberg import catalog

    catalog.ANSWER_SECONDS = 3600.0
    load = SqlCatalog.load_table

    def loaded(self, identifier):
        while identifier == "lake.t03" and Path(__file__).with_name("hold").exists():
            time.sleep(0.1)
        return load(self, identifier)

    SqlCatalog.load_table = loaded
"""
"""Of the process that lands: requests for one table hang, and nobody gives them up."""


@pytest.fixture
def filled(shop: Shop) -> Shop:
    for n in range(TOPICS):
        shop.topic(f"t{n:02d}", range(40))
    return shop


def whole(shop: Shop, count: int) -> None:
    """Every record is in its table once, in each of them."""
    assert [shop.ids(f"t{n:02d}") for n in range(TOPICS)] == [list(range(count))] * TOPICS


def begin(shop: Shop, *more: str) -> Running:
    return Running.land(shop.write(), options=more)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_set_that_is_killed_in_the_middle_and_again_is_landed_once(filled: Shop, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(2):
        running = begin(filled)
        # From its first START to within its commits.
        running.wait_for(": cycle 0 (", times=dice.randint(1, TOPICS))
        time.sleep(dice.choice([0.0, 2.0, 5.0]))
        running.close()
    for n in range(TOPICS):
        filled.send(f"t{n:02d}", range(40, 60))
    answer = filled.run("land")
    assert answer.code == 0, answer.err
    whole(filled, 60)
    answer = filled.run("land")
    assert answer.code == 0, answer.err
    assert {line["rows"] for line in answer.lines} == {0}


@pytest.mark.heavy
def test_two_at_once_land_everything_once(filled: Shop) -> None:
    running = [begin(filled) for _ in range(2)]
    for each in running:
        each.end()
        each.close()
    assert filled.run("land").code == 0
    whole(filled, 40)


@pytest.mark.heavy
def test_a_set_that_is_followed_lands_topics_as_they_come_and_names_troubles(filled: Shop) -> None:
    def has(table: str) -> Callable[[], bool]:
        return lambda: filled.has(table)

    running = begin(filled, "--follow", "--window-age", "1s")
    try:
        until(has(f"t{TOPICS - 1:02d}"), what="the topics that were there are landed")
        filled.topic("late", range(7))
        until(has("late"), what="a topic that came is landed")
        filled.sql().drop_table("lake.t02")
        filled.send("t02", range(40, 45))
        running.wait_for("lakecommit: shop.lake.t02: ")
        delete_topic(filled.admin, f"{filled.prefix}.t03")
        running.wait_for("shop.lake.t03: its topics are missing")
        filled.send("t00", range(40, 45))
        until(lambda: len(filled.ids("t00")) == 45, what="what came to an old topic is landed")
    finally:
        running.kill(signal.SIGTERM)
        code = running.end().code
        running.close()
    assert code == 128 + signal.SIGTERM
    assert (filled.ids("late"), filled.ids("t03")) == (list(range(7)), list(range(40)))


@pytest.mark.heavy
def test_a_table_whose_catalog_hangs_holds_up_no_other_that_is_followed(filled: Shop, tmp_path: Path) -> None:
    folder = tmp_path / "hanging"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HANGING)
    path = os.pathsep.join([str(folder), str(CHECKOUT)])
    running = Running.land(filled.write(), options=("--follow", "--window-age", "1s"), env={"PYTHONPATH": path})
    try:
        until(lambda: filled.has(f"t{TOPICS - 1:02d}"), what="the topics that were there are landed")
        until(lambda: filled.has("t03"), what="and so is the one that will hang")
        (folder / "hold").touch()
        filled.send("t03", range(40, 50))
        for count in (50, 60, 70):
            filled.send("t07", range(count - 10, count))
            until(lambda count=count: len(filled.ids("t07")) == count, what=f"{count} records of another topic")
        assert filled.ids("t03") == list(range(40))
        (folder / "hold").unlink()
        until(lambda: len(filled.ids("t03")) == 50, what="the one that hung is landed")
    finally:
        running.kill(signal.SIGTERM)
        running.end()
        running.close()
