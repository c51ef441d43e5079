# SPDX-License-Identifier: Apache-2.0
"""An API server that starts again goes on where the page's history ends, and believes it of this very log alone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.page.history import PageHistory
from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic
from airflow_provider_lakecommit.page.topic_reader import TopicReader
from tests.fixtures.kafka import create_topic, unique
from tests.support.coordinator import Coordinator
from tests.support.narrator import Narrator
from tests.support.story import P0
from tests.support.waiting import until

pytestmark = pytest.mark.integration


class Restarts:
    """An API server's reader of one topic, that can be started again."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.kafka, self.folder = {"bootstrap.servers": bootstrap}, folder
        self.place = PageTopic("kafka_default", topic)
        self.reader: TopicReader | None = None

    def start(self) -> TopicReader:
        self.stop()
        self.reader = TopicReader(self.place, lambda _: self.kafka, "live-test", self.folder)
        return self.reader

    def stop(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.reader = None

    def rows(self, wanted: Callable[[dict[str, LandingRow]], bool], what: str) -> dict[str, LandingRow]:
        """What the reader has, once it is as wanted."""
        reader = self.reader or self.start()

        def found() -> dict[str, LandingRow]:
            reader.look()
            return {r.name: r for r in reader.rows.values()}

        until(lambda: wanted(found()), what=what)
        return {r.name: r for r in reader.rows.values()}


@pytest.fixture
def told(bootstrap: str, admin: AdminClient, tmp_path: Path) -> Iterator[tuple[Restarts, Narrator]]:
    topic = unique("control")
    create_topic(admin, topic, 2)
    restarts = Restarts(bootstrap, topic, tmp_path / "page")
    orders = Narrator(restarts.kafka, topic, "orders", "land")
    orders.lands("first")
    orders.opens("second", ((P0, 10, 20), (P0, 20, 30)))
    orders.reports("second", slice(0, 1))
    Coordinator(bootstrap, topic).healthy()
    try:
        yield restarts, orders
    finally:
        restarts.stop()


def shown(rows: dict[str, LandingRow]) -> Any:
    """What of rows is to be the same."""
    return {name: (r.state, r.cycles, r.found.verdict, r.dags, r.read_lag, r.commit_lag) for name, r in rows.items()}


def test_a_restart_goes_on_in_the_middle_of_a_window_and_counts_nothing_twice(
    told: tuple[Restarts, Narrator], monkeypatch: pytest.MonkeyPatch
) -> None:
    restarts, orders = told
    before = restarts.rows(lambda r: len(r) == 2, "both groups")
    heard: list[int] = []
    again = restarts.start()
    original = again.memory.heard
    monkeypatch.setattr(again._watch._fold, "_heard", lambda t, r, own: (heard.append(r.offset), original(t, r, own)))
    assert shown(restarts.rows(lambda r: len(r) == 2, "the same again")) == shown(before)
    assert heard == [], "nothing was read again"
    orders.reports("second")
    orders.completes("second")
    after = restarts.rows(lambda r: r["orders"].cycles.totals.commits == 2, "what came after the restart")
    totals, last = after["orders"].cycles.totals, after["orders"].cycles.cycles[-1]
    assert (totals.read, totals.committed, last.counts.total, last.redundant) == (30, 30, 20, 1)
    assert after["orders"].trend is not None
    assert sum(v or 0 for v in after["orders"].trend.shown(time.time())[1].values["read"]) == 30


def test_what_was_read_first_is_kept_though_the_process_dies(told: tuple[Restarts, Narrator]) -> None:
    restarts, _ = told
    before = restarts.rows(lambda r: len(r) == 2, "both groups")
    dead, restarts.reader = restarts.reader, None
    try:
        again = restarts.start()
        assert set(again.memory.cycles) == {r.group for r in before.values()}, "before anything is read"
    finally:
        if dead is not None:
            dead.close()


def test_a_log_that_was_cut_below_its_history_is_read_anew(
    told: tuple[Restarts, Narrator], caplog: pytest.LogCaptureFixture
) -> None:
    restarts, _ = told
    before = restarts.rows(lambda r: len(r) == 2, "both groups")
    info = restarts.start()._info
    reader = restarts.reader
    assert reader is not None
    memory, states = reader.memory, dict(reader._watch.groups())
    restarts.stop()
    # As if a leader had been elected that has fewer records of that epoch.
    memory.positions = {
        p: ReadPosition(offset=at.offset + 50, leader_epoch=at.leader_epoch) for p, at in memory.positions.items()
    }
    history = PageHistory(restarts.folder, restarts.place)
    assert history.write(info, memory, states)
    history.close()
    with caplog.at_level(logging.WARNING):
        assert shown(restarts.rows(lambda r: len(r) == 2, "read anew")) == shown(before)
    assert "does not hold what was read of it" in caplog.text


def test_without_a_folder_all_is_read_again(told: tuple[Restarts, Narrator]) -> None:
    restarts, _ = told
    restarts.folder = None  # type: ignore[assignment]
    first = restarts.rows(lambda r: len(r) == 2, "both groups")
    restarts.start()
    assert shown(restarts.rows(lambda r: len(r) == 2, "both groups again")) == shown(first)
