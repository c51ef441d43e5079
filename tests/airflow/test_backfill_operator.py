# SPDX-License-Identifier: Apache-2.0
"""The operator that fills a range, attempt by attempt, on a real broker, catalog and Spark Connect server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing, merged
from airflow_provider_lakecommit.operations.backfill import closing
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from tests.airflow.attempt import AttemptRequest, attempt, killed_in_its_second_slice
from tests.airflow.test_land_operator import CHECKOUT, World, orders, world
from tests.support.world import Killed

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

__all__ = ["world"]

Produce = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def late(world: World, produce: Produce) -> World:
    """A landing that began behind 20 orders in each of two partitions."""
    for p in range(2):
        produce(world.topic, orders(*range(100 * p, 100 * p + 20)), p)
    late = replace(world, landing=merged(world.landing, {"window": {"start": "latest"}}))
    assert attempt(late.request("origin")).state == "skipped"
    produce(world.topic, orders(50), 0)
    assert attempt(late.request("live")).state == "success"
    return late


def request_of(world: World, run: str, **options: Any) -> AttemptRequest:
    return world.request(run, kind="backfill", options=options)


def test_a_range_is_filled_once_whoever_requests_again(late: World) -> None:
    ranges = f"{late.topic}:0=5-10, {late.topic}:1=0-20"
    ended = attempt(request_of(late, "fill", ranges=ranges))
    assert ended.state == "success", ended
    assert late.ids == sorted([50, *range(5, 10), *range(100, 120)])
    assert ended.event is not None
    assert ended.event["rows"] == 25
    assert ended.event["valid_through"] is None, "a lane says nothing of how new the tables are"
    again = attempt(request_of(late, "again", ranges=ranges))
    assert again.state == "skipped"
    assert "is missing" in again.reason
    whole = attempt(request_of(late, "whole", since="2020-01-01", until="2100-01-01"))
    assert whole.state == "success", whole
    assert late.ids == sorted([50, *range(20), *range(100, 120)])


@pytest.mark.heavy
def test_an_attempt_that_is_killed_is_continued(late: World, tmp_path: Path) -> None:
    cut = replace(late, landing={**late.landing, "slice_records": 10})
    first = request_of(cut, "fill", since="2020-01-01", until="2100-01-01")
    second = killed_in_its_second_slice(first, tmp_path / "gate", {"PYTHONPATH": str(CHECKOUT)})
    ended = attempt(second)
    assert ended.state == "success", ended
    assert late.ids == sorted([50, *range(20), *range(100, 120)])
    assert attempt(request_of(late, "again", since="2020-01-01", until="2100-01-01")).state == "skipped"


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before the lane is closed", "after it"])
def test_an_attempt_that_died_with_all_of_it_landed_is_reported_by_the_next(
    late: World, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else no asset event would ever say what it landed."""
    real = closing.close_lane

    def dies(session: Any, **options: Any) -> None:
        if when == "after it":
            real(session, **options)
        raise Killed("the machine is gone")

    first = request_of(late, "fill", ranges=f"{late.topic}:0=5-10, {late.topic}:1=0-20")
    with monkeypatch.context() as patch:
        patch.setattr(closing, "close_lane", dies)
        with pytest.raises(Killed):
            attempt(first)
    ended = attempt(replace(first, number=2))
    assert ended.state == "success", ended
    assert ended.event is not None
    assert ended.event["rows"] == 25
    assert late.ids == sorted([50, *range(5, 10), *range(100, 120)])
    cleared = attempt(replace(first, number=3, first=3, events=[ended.event]))
    assert cleared.state == "skipped", "cleared, it has nothing to do"


@pytest.mark.heavy
def test_a_cleared_run_whose_rows_were_rolled_back_lands_them_again(late: World) -> None:
    first = request_of(late, "fill", ranges=f"{late.topic}:0=5-10")
    before = late.lake.head("shop.orders")
    assert attempt(first).state == "success"
    late.lake.open().load_table("shop.orders").manage_snapshots().set_current_snapshot(before).commit()
    assert late.ids == [50]
    assert attempt(late.request("after")).state == "skipped"
    ended = attempt(replace(first, number=2, first=2))
    assert ended.state == "success", ended
    assert late.ids == [*range(5, 10), 50]


def test_what_cannot_be_meant_is_reported_when_the_dag_is_parsed() -> None:
    landing = Landing(name="orders", topics="orders", table="shop.orders")
    with pytest.raises(SpecError, match="LC7205"):
        BackfillOperator(task_id="t", landing=landing, since="yesterday", until="2026-01-01")
    with pytest.raises(SpecError, match="LC7203"):
        BackfillOperator(task_id="t", landing=landing, ranges="orders:0=1-2,orders:0=5-9")
    with pytest.raises(SpecError, match="LC8301"):
        BackfillOperator(task_id="t", landing=landing, follow_for=5)
    empty = BackfillOperator(task_id="t", landing=landing)
    empty.since = empty.until = "2026-01-01T00:00:00+00:00"
    with pytest.raises(SpecError, match="LC8302"):
        empty.request()
