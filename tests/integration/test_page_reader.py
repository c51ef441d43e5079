# SPDX-License-Identifier: Apache-2.0
"""What the page reads of landings that land for real: its numbers are those of the topic and of the table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from airflow_provider_lakecommit.page.landings import LandingRow, PageTopic
from airflow_provider_lakecommit.page.reader import PageReader
from tests.support.waiting import until
from tests.support.world import World

pytestmark = pytest.mark.integration

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@contextmanager
def page_of(world: World) -> Iterator[Callable[[], LandingRow]]:
    """The landing's row, read by the page from the beginning."""
    place = PageTopic("kafka_default", world.landing.control_topic_name)
    reader = PageReader(lambda: (place,), lambda _: world.kafka, "test")

    def row() -> LandingRow:
        until(lambda: any(r.name == world.landing.name for r in reader.board().rows.values()), what="the row")
        return next(r for r in reader.board().rows.values() if r.name == world.landing.name)

    try:
        yield row
    finally:
        reader.close()


def test_lags_counts_and_outcomes_are_those_of_the_landing(make_world: Make, produce: Produce) -> None:
    world = make_world()
    topic, began = str(world.landing.topics), time.time()
    produce(topic, [{"id": n, "note": "good"} for n in range(100)], 0)
    produce(topic, [{"id": "not a number"}], 1)
    world.run("first")
    with page_of(world) as row:
        until(lambda: row().commit_lag == 0 and row().read_lag == 0, what="all is landed", timeout=15)
        done = row().cycles.cycles[-1]
        assert (row().outcomes[-1], done.records, done.counts.rejected, done.done) == ("complete", 100, 1, done.slices)
        assert {t for t, _ in done.published} == {world.landing.table, world.landing.dead_letter_table}
        assert [(p.partition, p.published, p.end) for p in row().partitions] == [(0, 100, 100), (1, 1, 1)]

        produce(topic, [{"id": n, "note": "more"} for n in range(50)], 0)
        until(lambda: row().read_lag == 50, what="the lag of a landing that does not run", timeout=60)
        assert began <= (row().read_since or 0) == (row().table_since or 0) <= time.time(), "the look before them"
        opened = world.open("second")
        world.write(opened)
        until(lambda: (row().read_lag, row().commit_lag) == (0, 50), what="reported, and not published", timeout=60)
        assert (row().read_since, (row().table_since or 0) >= began) == (None, True), "read, and not in the table"
        assert row().outcomes[-1] == "running"
        world.close("second", opened)
        until(lambda: row().commit_lag == 0, what="published")
        assert row().outcomes[-1] == "complete"
