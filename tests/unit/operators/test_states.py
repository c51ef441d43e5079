# SPDX-License-Identifier: Apache-2.0
"""Reading the states of a run's tasks, as Airflow names them, and the final line of a commit."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import _line
from airflow_provider_lakecommit.operators.outcome import _best, _groups
from airflow_provider_lakecommit.operators.plan import _window
from airflow_provider_lakecommit.operators.tasks.asset_event import event_extra, landed_line

CYCLE = UUID(int=1)
ORDERS = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")
PARTITION = SourcePartition(topic="orders", topic_id="id", partition=0)


def snapshot(table: str, number: int, start: int, end: int, rows: int) -> PublishedSnapshot:
    return PublishedSnapshot(
        table=table,
        snapshot_id=number,
        commit_id=CYCLE,
        coverage=Coverage.of([(PARTITION, OffsetRange(start, end))]),
        rows=rows,
        files=1,
        counts=Counts(landed=end - start),
    )


@pytest.mark.parametrize(
    ("states", "groups"),
    [
        ({"land.write_0": "success", "land.write_1": "failed", "land.plan": "success"}, {0: "success", 1: "failed"}),
        ({"land.write": "skipped"}, {0: "skipped"}),
        ({"land.write": "upstream_failed", "land.write_up": "success"}, {0: "upstream_failed"}),
        ({"land.plan": "failed"}, {}),
    ],
)
def test_groups_are_found_by_their_map_index(states: dict[str, str | None], groups: dict[int, str]) -> None:
    assert _groups(states, "land.write") == groups


STATES = {
    "land.write_0": "failed",
    "land.write_1": "success",
    "land.write_2": "failed",
    "land.write_replica_1_0": "success",
    "land.write_replica_1_1": "failed",
    "land.write_replica_1_2": "upstream_failed",
}


def test_a_group_is_done_where_one_of_its_replicas_is_and_has_failed_where_all_have() -> None:
    groups = [_groups(STATES, task) for task in ("land.write", "land.write_replica_1")]
    assert _best(groups) == {0: "success", 1: "success", 2: "failed"}
    assert _best(groups[:1]) == groups[0]


def test_the_last_line_reports_rows_ranges_snapshot_freshness_and_what_is_left() -> None:
    closed = Closed(
        commit_id=CYCLE,
        published=(snapshot("shop.orders", 7, 0, 5, 5),),
        missing=("orders-1[0, 3)",),
        left=12,
        valid_through=datetime(2026, 1, 2, tzinfo=UTC),
    )
    line = _line(closed)
    assert "5 rows of" in line
    assert "in shop.orders snapshot 7" in line
    assert "valid through 2026-01-02T00:00:00+00:00" in line
    assert "left over: 12 records not planned, 1 slices must be read again" in line


def test_the_last_line_of_an_idle_cycle_reports_it() -> None:
    line = _line(Closed(commit_id=CYCLE, reason="nothing new", valid_through=datetime(2026, 1, 2, tzinfo=UTC)))
    assert "nothing published (nothing new)" in line
    assert line.endswith("left over: nothing")


def test_the_last_line_of_a_cleared_run_reports_where_its_window_is() -> None:
    assert "its window is there" in _line(Closed(commit_id=CYCLE, finished=True, note="its window is there"))


def test_the_note_of_a_run_that_published_for_another_one_reports_that_its_own_window_waits() -> None:
    staged = "shop.orders: orders[0] [9, 12) is staged behind offset 5"
    done = Closed(commit_id=CYCLE, published=(snapshot("shop.orders", 7, 0, 5, 5),), waiting=(staged,))
    assert landed_line(done).endswith(f"snapshot 7; 1 slices wait, {staged}")
    # Where nothing is published the outcome says it.
    assert landed_line(Closed(commit_id=CYCLE, waiting=(staged,))) == ""


def test_the_window_of_a_cleared_run_is_reported_by_where_it_is() -> None:
    plan = SimpleNamespace(window_id=CYCLE, reason=None, left=0)
    ticket = SimpleNamespace(landing="orders", commit_id=CYCLE)
    values: dict[str, Any] = {"ticket": ticket, "plan": plan, "slices": (), "groups": (), "note": "it is there"}

    def run(*, finished: bool) -> Any:
        return SimpleNamespace(**values, finished=finished)

    assert {"window_id": None, "reason": "it is there"}.items() <= _window(run(finished=True)).items()
    assert _window(run(finished=False))["window_id"] == str(CYCLE)


def test_an_event_names_the_newest_snapshot_of_the_data_table_and_all_that_was_published() -> None:
    published = (
        snapshot("shop.orders", 7, 0, 5, 5),
        snapshot("shop.orders", 8, 5, 9, 4),
        snapshot("shop.orders_dead", 3, 0, 9, 1),
    )
    extra = event_extra(ORDERS, Closed(commit_id=CYCLE, published=published))
    assert extra["snapshot_id"] == 8
    assert extra["commit_id"] == str(CYCLE)
    assert extra["rows"] == 9
    assert [s["snapshot_id"] for s in extra["snapshots"]] == [7, 8, 3]
    assert extra["counts"]["landed"] == 9
    assert extra["offsets"] == {"orders[0]": [[0, 9]]}


def test_an_event_for_dead_letters_alone_names_no_snapshot_of_the_data_table() -> None:
    extra = event_extra(ORDERS, Closed(commit_id=CYCLE, published=(snapshot("shop.orders_dead", 3, 0, 9, 1),)))
    assert extra["snapshot_id"] is None
    assert extra["rows"] == 0
    assert extra["snapshots"][0]["table"] == "shop.orders_dead"
