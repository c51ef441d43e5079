# SPDX-License-Identifier: Apache-2.0
"""Events by hour: on an asset of their own, with the hours since the newest one, and never without an hour."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.assets import asset_of, hourly_asset_of
from airflow_provider_lakecommit.cycle.results import Closed
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
CLOSED = Closed(commit_id=UUID(int=1), valid_through=datetime(2026, 1, 2, 3, 20, tzinfo=UTC))


class Newest:
    """The events of an asset that Airflow knows, asked as tasks do."""

    def __init__(self, *extras: dict[str, Any], away: bool = False) -> None:
        self._events = [SimpleNamespace(extra=extra) for extra in extras]
        self._away = away

    def ascending(self, ascending: bool) -> Newest:
        assert not ascending
        return self

    def limit(self, most: int) -> list[SimpleNamespace]:
        if self._away:
            raise RuntimeError("no answer")
        return self._events[-most:]


class Outlets(dict[Any, Any]):
    """The events of this task, as Airflow hands them out."""

    def __missing__(self, asset: Any) -> Any:
        made = SimpleNamespace(extra={}, keys=[])
        made.add_partitions = made.keys.extend
        return self.setdefault(asset, made)


def context(newest: Newest) -> Any:
    return {"inlet_events": {hourly_asset_of(ORDERS): newest}, "outlet_events": Outlets()}


def test_without_hours_a_task_has_the_landings_asset_alone() -> None:
    commit = LakeCommitOperator(task_id="commit", landing=ORDERS, plan_task_id="plan")
    assert list(commit.outlets) == [asset_of(ORDERS)]
    assert list(commit.inlets) == []


@pytest.mark.parametrize("kind", ["commit", "land"])
def test_hours_since_the_newest_event_are_reported_and_the_next_event_goes_on(kind: str) -> None:
    made: Any = (
        LakeCommitOperator(task_id="commit", landing=ORDERS, plan_task_id="plan", hourly=True)
        if kind == "commit"
        else KafkaToIcebergOperator(task_id="land", landing=ORDERS, hourly=True)
    )
    hours = hourly_asset_of(ORDERS)
    given = context(Newest({"hours_through": "2026-01-02T01:00:00+00:00"}))
    made.send_events(given, CLOSED)
    event = given["outlet_events"][hours]
    assert event.keys == ["2026-01-02T01:00:00", "2026-01-02T02:00:00"]
    assert event.extra["landing"] == "orders"
    assert list(made.outlets) == [asset_of(ORDERS), hours]

    by_hand: dict[str, Any] = {"from_rest_api": True}
    again = context(Newest({"hours_through": "2026-01-02T01:00:00+00:00"}, event.extra, by_hand))
    made.send_events(again, CLOSED)
    assert hours not in again["outlet_events"]
    assert list(made.outlets) == [asset_of(ORDERS)]


def test_where_airflow_does_not_answer_no_hour_is_reported_now(caplog: pytest.LogCaptureFixture) -> None:
    made = LakeCommitOperator(task_id="commit", landing=ORDERS, plan_task_id="plan", hourly=True)
    given = context(Newest(away=True))
    made.send_events(given, CLOSED)
    assert hourly_asset_of(ORDERS) not in given["outlet_events"]
    assert list(made.outlets) == [asset_of(ORDERS)]
    assert "cannot report hours now" in caplog.text
