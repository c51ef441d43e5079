# SPDX-License-Identifier: Apache-2.0
"""The operator that lands a range again, attempt by attempt, on a real broker, catalog and Spark Connect server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation

from airflow_provider_lakecommit.operations.backfill import closing
from tests.airflow.attempt import AttemptRequest, attempt, killed_in_its_second_slice
from tests.airflow.test_land_operator import CHECKOUT, World, orders, world
from tests.support.world import Killed

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

__all__ = ["world"]

Produce = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def landed(world: World, produce: Produce) -> World:
    """20 orders in each of two partitions, in a table that says which record each row is of."""
    for p in range(2):
        produce(world.topic, orders(*range(100 * p, 100 * p + 20)), p)
    landed = replace(world, landing={**world.landing, "metadata_columns": True})
    assert attempt(landed.request("live")).state == "success"
    return landed


def request_of(world: World, run: str, **options: Any) -> AttemptRequest:
    return world.request(run, kind="replay", options=options)


def replacements(world: World) -> list[int]:
    """The snapshots that took rows out."""
    snapshots = world.lake.open().load_table(world.landing["table"]).snapshots()
    return [s.snapshot_id for s in snapshots if s.summary and s.summary.operation is Operation.OVERWRITE]


ALL = sorted([*range(20), *range(100, 120)])


def test_a_range_is_landed_again_and_a_range_that_is_not_there_is_refused(landed: World) -> None:
    ranges = f"{landed.topic}:0=5-10, {landed.topic}:1=0-20"
    ended = attempt(request_of(landed, "again", ranges=ranges, reason="once more"))
    assert ended.state == "success", ended
    assert ended.event is not None
    assert ended.event["rows"] == 25
    assert ended.printed("25 rows of")
    assert landed.ids == ALL
    nothing = attempt(request_of(landed, "nothing", since="2020-01-01", until="2020-01-02"))
    assert nothing.state == "failed"
    assert "nothing to replace" in nothing.reason


@pytest.mark.heavy
def test_an_attempt_that_is_killed_is_continued(landed: World, tmp_path: Path) -> None:
    cut = replace(landed, landing={**landed.landing, "slice_records": 10})
    first = request_of(cut, "again", since="2020-01-01", until="2100-01-01")
    second = killed_in_its_second_slice(first, tmp_path / "gate", {"PYTHONPATH": str(CHECKOUT)})
    assert landed.ids == ALL
    ended = attempt(second)
    assert ended.state == "success", ended
    assert ended.event is not None
    assert ended.event["rows"] == 40
    assert landed.ids == ALL


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before the lane is closed", "after it"])
def test_an_attempt_that_died_with_all_of_it_replaced_is_reported_by_the_next(
    landed: World, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaces nothing once more, and sends the event that was never sent."""
    real = closing.close_lane

    def dies(session: Any, **options: Any) -> None:
        if when == "after it":
            real(session, **options)
        raise Killed("the machine is gone")

    first = request_of(landed, "again", ranges=f"{landed.topic}:0=5-10, {landed.topic}:1=0-20")
    with monkeypatch.context() as patch:
        patch.setattr(closing, "close_lane", dies)
        with pytest.raises(Killed):
            attempt(first)
    head = replacements(landed)
    assert len(head) == 1
    ended = attempt(replace(first, number=2))
    assert ended.state == "success", ended
    assert replacements(landed) == head
    assert ended.event is not None
    assert (ended.event["rows"], ended.event["snapshot_id"]) == (25, head[0])
    assert landed.ids == ALL
    cleared = attempt(replace(first, number=3, first=3))
    assert cleared.state == "success", cleared
    assert len(replacements(landed)) == 2
    assert landed.ids == ALL
