# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land --follow` on the real parts: killed, told to stop, and followed by the next one."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.fixtures.kafka import unique
from tests.support.cli import Running, orders, run, write_spec
from tests.support.waiting import until

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

FOLLOW = ("--follow", "--window-age", "1s", "--log-interval", "2s")


@dataclass
class Topic:
    """A landing that is followed, and how many orders were produced for it."""

    spec: Path
    produce: Callable[[list[dict[str, Any]]], None]
    produced: int = 0
    running: list[Running] = field(default_factory=list)

    def follow(self) -> Running:
        self.running.append(Running.land(self.spec, options=FOLLOW))
        return self.running[-1]

    def more(self, count: int = 500) -> None:
        self.produce(orders(count, self.produced))
        self.produced += count

    def ids(self) -> list[int]:
        values = json.loads(self.spec.read_text())
        found = load_catalog(**values["catalog"]).load_table(values["table"]).scan(selected_fields=("id",))
        return sorted(found.to_arrow().column("id").to_pylist())

    def landed(self) -> None:
        until(lambda: len(self.ids()) >= self.produced, what="all rows")

    def check(self) -> None:
        assert self.ids() == list(range(self.produced))
        verified = run("verify", str(self.spec), "--json")
        assert verified.code == 0, verified.out


@pytest.fixture
def topic(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any], tmp_path: Path
) -> Iterator[Topic]:
    (tmp_path / "warehouse").mkdir()
    catalog = {
        "name": "lake",
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/warehouse",
    }
    name = make_topic(2)
    spec = write_spec(tmp_path, unique("follow"), name, f"{name}-control", bootstrap, catalog, slice_records=100)

    def both(records: list[dict[str, Any]]) -> None:
        for partition in range(2):
            produce(name, records[partition::2], partition)

    made = Topic(spec, both)
    yield made
    for each in made.running:
        each.close()


def test_a_follow_that_is_killed_and_one_that_is_stopped_lose_and_double_nothing(topic: Topic) -> None:
    topic.more()
    first = topic.follow()
    first.wait_for("cycle 0: ")
    for _ in range(3):
        topic.more()
        topic.landed()
    # At work, or about to be: wherever it is, the next one goes on.
    topic.more(2000)
    first.kill()
    assert first.end().code == -signal.SIGKILL

    topic.more()
    second = topic.follow()
    second.wait_for("cycle 0: ")
    topic.more()
    topic.landed()
    second.wait_for("followed for")
    assert second.count("slice ") == 0, "of each window nothing is said"
    second.kill(signal.SIGTERM)
    answer = second.end()
    assert answer.code == 128 + signal.SIGTERM
    assert "Traceback" not in answer.err
    assert sum(line["rows"] for line in answer.lines) >= 1000
    topic.check()


@pytest.mark.heavy
@pytest.mark.parametrize("turn", range(4))
def test_follows_that_are_killed_one_after_the_other(topic: Topic, turn: int) -> None:
    for kills in range(3):
        topic.more()
        follow = topic.follow()
        follow.wait_for("cycle 0")
        for _ in range(turn + kills):
            topic.more(200)
            topic.landed()
        topic.more(1500)
        follow.kill()
        follow.end()
    assert run("land", str(topic.spec), "--json").code == 0
    topic.check()
