# SPDX-License-Identifier: Apache-2.0
"""A new API server reads the newest part of a control topic and shows what the one before it showed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.page import topic_reader
from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic
from airflow_provider_lakecommit.page.topic_reader import TopicReader
from tests.fixtures.kafka import create_topic, unique
from tests.support.coordinator import Coordinator
from tests.support.narrator import Narrator
from tests.support.story import P0
from tests.support.waiting import until

pytestmark = pytest.mark.integration

Rows = Callable[[Callable[[dict[str, LandingRow]], bool], str], dict[str, LandingRow]]


@contextmanager
def page_of(kafka: dict[str, Any], topic: str) -> Iterator[Rows]:
    """Rows of a reader that has just started, by name, once they are as wanted."""
    reader = TopicReader(PageTopic("kafka_default", topic), lambda _: kafka, "live-test")

    def rows(condition: Callable[[dict[str, LandingRow]], bool], what: str) -> dict[str, LandingRow]:
        def found() -> dict[str, LandingRow]:
            reader.read()
            return {r.name: r for r in reader.rows.values()}

        until(lambda: condition(found()), what=what)
        return found()

    try:
        yield rows
    finally:
        reader.close()


def shown(rows: dict[str, LandingRow]) -> Any:
    """The parts of rows that must be equal after a restart."""
    return {name: (r.state, r.cycles, r.found.verdict, r.dags, r.read_lag, r.commit_lag) for name, r in rows.items()}


def test_a_restart_in_the_middle_of_a_window_shows_the_same_and_counts_nothing_twice(
    bootstrap: str, admin: AdminClient
) -> None:
    kafka, topic = {"bootstrap.servers": bootstrap}, unique("control")
    create_topic(admin, topic, 2)
    orders = Narrator(kafka, topic, "orders", "land")
    orders.lands("first")
    orders.opens("second", ((P0, 10, 20), (P0, 20, 30)))
    orders.reports("second", slice(0, 1))
    Coordinator(bootstrap, topic).healthy()
    with page_of(kafka, topic) as rows:
        before = rows(lambda r: len(r) == 2, "both groups")
    with page_of(kafka, topic) as rows:
        assert shown(rows(lambda r: len(r) == 2, "both groups again")) == shown(before)
        orders.reports("second")
        orders.completes("second")
        after = rows(lambda r: r["orders"].cycles.totals.commits == 2, "records after the restart")["orders"]
    totals, last = after.cycles.totals, after.cycles.cycles[-1]
    assert (totals.read, totals.committed, last.counts.total, last.redundant) == (30, 30, 20, 1)
    assert after.trend is not None
    assert sum(v or 0 for v in after.trend.steps(time.time())[900][1]["read"]) == 30


@pytest.mark.heavy
@pytest.mark.parametrize("partitions", [1, 2])
def test_of_a_long_topic_the_newest_records_are_read(
    bootstrap: str, admin: AdminClient, monkeypatch: pytest.MonkeyPatch, partitions: int
) -> None:
    kafka, topic, offsets = {"bootstrap.servers": bootstrap}, unique("control"), 40
    create_topic(admin, topic, partitions)
    monkeypatch.setattr(topic_reader, "MOST_OFFSETS", offsets)
    old, orders = Narrator(kafka, topic, "old", "land"), Narrator(kafka, topic, "orders", "land")
    old.lands("first")
    for n in range(2 * offsets):
        orders.lands(f"run-{n}", ((P0, n, n + 1),))
    with page_of(kafka, topic) as rows:
        found = rows(lambda r: "orders" in r, "the landing")
    assert 1 <= len(found["orders"].cycles.cycles) <= offsets // 2
    assert found["orders"].cycles.cycles[-1].run == f"run-{2 * offsets - 1}"
    assert partitions > 1 or "old" not in found
