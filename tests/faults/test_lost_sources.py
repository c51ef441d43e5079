# SPDX-License-Identifier: Apache-2.0
"""A source that lost records or changed: refused by name before anything is skipped, with a command that works as
printed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog

from dev.servers.connect import ConnectServer
from tests.fixtures.kafka import Sender, create_topic
from tests.support.cli import LAND_SECONDS, Answer, orders, run, write_spec
from tests.support.waiting import PATIENCE, until
from tests.support.world import catalog_in

pytestmark = [pytest.mark.faults, pytest.mark.heavy]

PARTITIONS = 3
PRINTED = re.compile(r"`(lakecommit [^`]+)`")


class Shop:
    """Orders 0 to 29 are landed; what comes next the source loses."""

    def __init__(self, folder: Path, bootstrap: str, spark: str) -> None:
        self.topic = f"orders-{uuid4().hex[:8]}"
        self.admin = AdminClient({"bootstrap.servers": bootstrap})
        self.sender = Sender(bootstrap)
        self.make(PARTITIONS)
        catalog = {"name": "lake", **catalog_in(folder)}
        spark_section = {"remote": spark}
        self.spec = write_spec(
            folder, "orders", self.topic, f"{self.topic}-control", bootstrap, catalog, spark=spark_section
        )

    def make(self, partitions: int) -> None:
        create_topic(self.admin, self.topic, partitions)

    def delete(self) -> None:
        self.admin.delete_topics([self.topic])[self.topic].result(PATIENCE)
        until(lambda: self.topic not in self.admin.list_topics(timeout=30).topics, what="the topic to be gone")

    def send(self, first: int, count: int, partitions: int = PARTITIONS) -> None:
        for p in range(partitions):
            self.sender.produce(self.topic, orders(count, first)[p::partitions], p)

    def land(self) -> Answer:
        return run("land", str(self.spec), "--json", timeout=LAND_SECONDS)

    def printed(self, answer: Answer) -> tuple[str, ...]:
        """The first command that a refusal names and that can be typed, with the spec in the place of SPEC."""
        found = [c for c in PRINTED.findall(answer.err) if "OFFSET" not in c]
        assert found, f"no command to type in: {answer.err}"
        return tuple(str(self.spec) if word == "SPEC" else word for word in found[0].split()[1:])

    def ids(self) -> list[int]:
        values = json.loads(self.spec.read_text())
        rows = load_catalog(**values["catalog"]).load_table(values["table"]).scan().to_arrow()
        return sorted(rows.column("id").to_pylist())


def passed_by_retention(shop: Shop) -> set[int]:
    """Partition 1 loses what was never read, but its last record."""
    shop.send(30, 30)
    at = TopicPartition(shop.topic, 1, 19)
    shop.admin.delete_records([at])[at].result(PATIENCE)
    return set(orders_of(30, 30, 1)[:-1])


def orders_of(first: int, count: int, partition: int) -> list[int]:
    return [int(o["id"]) for o in orders(count, first)[partition::PARTITIONS]]


def made_anew_smaller(shop: Shop) -> set[int]:
    shop.delete()
    shop.make(2)
    shop.send(30, 30, 2)
    return set()


def made_anew_longer(shop: Shop) -> set[int]:
    """More records than it had: no offset is past its end."""
    shop.delete()
    shop.make(PARTITIONS)
    shop.send(30, 90)
    return set()


def emptied(shop: Shop) -> set[int]:
    """All that was never read is missing, and nothing came since."""
    shop.send(30, 30)
    places = [TopicPartition(shop.topic, p, -1) for p in range(PARTITIONS)]
    for answer in shop.admin.delete_records(places).values():
        answer.result(PATIENCE)
    return set(range(30, 60))


@pytest.mark.parametrize("lose", [passed_by_retention, made_anew_smaller, made_anew_longer, emptied])
def test_the_printed_command_goes_on_and_nothing_else_is_lost_or_doubled(
    tmp_path: Path, bootstrap: str, connect_server: ConnectServer, lose: Callable[[Shop], set[int]]
) -> None:
    shop = Shop(tmp_path, bootstrap, connect_server.url)
    shop.send(0, 30)
    assert shop.land().code == 0
    lost = lose(shop)
    for _ in range(2):
        refused = shop.land()
        assert refused.code == 1, "a loss is told, however often it is tried"
        assert shop.topic in refused.err
        assert shop.ids() == list(range(30)), "nothing is landed over a loss that nobody has agreed to"
    command = shop.printed(refused)
    previewed = run(*command)
    if previewed.code == 3:
        assert not lost or "GIVES UP" in previewed.out, "what is lost is shown before anybody agrees"
        previewed = run(*command, "--yes", "--reason", "the source lost it")
    assert previewed.code == 0, previewed.err
    landed = shop.land()
    assert landed.code == 0, landed.err
    last = 120 if lose is made_anew_longer else 60
    assert shop.ids() == [n for n in range(last) if n not in lost]
    verified = run("verify", str(shop.spec))
    assert verified.code == 0, verified.out
    shop.sender.close()


def test_a_topic_that_is_missing_is_reported_and_lands_on_once_it_is_back(
    tmp_path: Path, bootstrap: str, connect_server: ConnectServer
) -> None:
    shop = Shop(tmp_path, bootstrap, connect_server.url)
    shop.send(0, 30)
    assert shop.land().code == 0
    shop.delete()
    unreadable = shop.land()
    assert unreadable.code == 1
    assert shop.topic in unreadable.err
    shop.make(PARTITIONS)
    refused = shop.land()
    assert refused.code == 1, "an empty topic of that name is another one"
    assert run(*shop.printed(refused), "--yes").code == 0
    shop.send(30, 30)
    assert shop.land().code == 0
    assert shop.ids() == list(range(60))
    shop.sender.close()
