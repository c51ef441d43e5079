# SPDX-License-Identifier: Apache-2.0
"""A stream that yields waits exactly as long as the live stream has records that are overdue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.operations.backfill.live_first import live_first, overdue
from airflow_provider_lakecommit.operations.decisions.pause import suspend
from tests.faults.test_lanes import lane
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
NOW, LONG = timedelta(0), timedelta(hours=1)


@pytest.fixture
def late(make_world: Make, produce: Produce) -> World:
    """A landing that began at offset 20 of its two partitions, and has landed all."""
    world = make_world(2)
    world.landing = world.landing.changed(window={"start": "latest"})
    for p in range(2):
        produce(world.landing.topics, records(100 * p, 20), partition=p)
    world.settle()
    return world


def overdue_text(world: World, older_than: timedelta) -> str:
    with world.session() as session:
        return str(overdue(session, older_than)).replace(str(world.landing.topics), "")


def test_what_is_older_and_not_in_the_table_is_overdue(late: World, produce: Produce) -> None:
    assert overdue_text(late, NOW) == "nothing"
    produce(late.landing.topics, records(20, 5), partition=0)
    time.sleep(0.05)
    assert overdue_text(late, NOW) == "[0] [20, 25)"
    assert overdue_text(late, LONG) == "nothing"
    opened = late.open("under way")
    late.write(opened)
    assert overdue_text(late, NOW) == "[0] [20, 25)", "what is read and not published is not in the table"
    late.close("under way", opened)
    assert overdue_text(late, NOW) == "nothing"
    late.check(Counter(range(20, 25)))


@pytest.mark.heavy
def test_it_gets_a_time_in_between(late: World, produce: Produce) -> None:
    produce(late.landing.topics, records(20, 5), partition=1)
    with late.session() as session:
        began = session.now()
    time.sleep(1.0)
    produce(late.landing.topics, records(25, 5), partition=1)
    with late.session() as session:
        now = session.now()
    late.now = lambda: now
    assert overdue_text(late, now - began - timedelta(seconds=0.5)) == "[1] [20, 25)"


@pytest.mark.heavy
def test_a_stream_of_the_landing_is_no_reason_and_covers_what_it_landed(late: World, produce: Produce) -> None:
    lane(late, "0=0-10").run()
    assert overdue_text(late, NOW) == "nothing"


def test_a_landing_without_a_live_stream_or_with_a_suspended_one_is_not_waited_for(
    make_world: Make, late: World, produce: Produce
) -> None:
    produce(late.landing.topics, records(20, 5), partition=0)
    decision = Decision(command="suspend", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")
    with late.session() as session:
        suspend(session, decision)
    assert overdue_text(late, NOW) == "nothing"
    never = make_world(1)
    produce(never.landing.topics, records(0, 5), partition=0)
    assert overdue_text(never, NOW) == "nothing"


def test_a_landing_that_cannot_report_holds_up_no_other(
    late: World, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(late.landing.topics, records(20, 5), partition=0)
    time.sleep(0.05)
    with late.session() as session:
        first = partial(live_first, session, NOW)
        assert "[0] [20, 25)" in first()

        def away(*_: object) -> None:
            raise CatalogError("LC9999", "the catalog is away")

        monkeypatch.setattr(Tables, "find", away)
        assert first() == ""
