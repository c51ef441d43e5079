# SPDX-License-Identifier: Apache-2.0
"""Events of single tables: one per table of rows of a landing that has several, never without a snapshot of it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from airflow_provider_lakecommit.assets import asset_of, table_assets_of
from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.page.declared_landings import SCHEME
from tests.unit.operators.test_hourly import Outlets

ORDERS, REFUNDS = "shop.orders", "shop.refunds"
EVENTS = Landing(
    name="events",
    topics="events",
    table=ORDERS,
    route={"field": "type", "tables": {"order": ORDERS, "refund": REFUNDS}},
)
SINGLE = Landing(name="single", topics="events", table=ORDERS)


def snapshot(table: str, number: int) -> PublishedSnapshot:
    return PublishedSnapshot(
        table=table,
        snapshot_id=number,
        commit_id=UUID(int=1),
        coverage=Coverage(),
        rows=number,
        files=1,
        counts=Counts(landed=9),
    )


def test_a_landing_of_one_table_has_its_own_asset_alone() -> None:
    assert table_assets_of(SINGLE) == {}
    assert list(LakeCommitOperator(task_id="commit", landing=SINGLE, plan_task_id="plan").outlets) == [asset_of(SINGLE)]


def test_each_table_has_an_asset_that_is_none_of_a_landing() -> None:
    found = EVENTS.table_assets
    assert list(found) == [ORDERS, REFUNDS]
    assert len({a.uri for a in (*found.values(), EVENTS.asset)}) == 3
    # The page takes what says "landing" under its scheme as a landing.
    assert all(a.uri.startswith(SCHEME) and "landing" not in a.extra for a in found.values())


@pytest.mark.parametrize("kind", ["commit", "land"])
def test_the_tables_with_a_snapshot_are_reported_with_their_own_rows(kind: str) -> None:
    made: Any = (
        LakeCommitOperator(task_id="commit", landing=EVENTS, plan_task_id="plan")
        if kind == "commit"
        else KafkaToIcebergOperator(task_id="land", landing=EVENTS)
    )
    tables = table_assets_of(EVENTS)
    assert list(made.outlets) == [asset_of(EVENTS), *tables.values()]
    context: Any = {"outlet_events": Outlets()}
    closed = Closed(commit_id=UUID(int=1), table=ORDERS, published=(snapshot(REFUNDS, 5), snapshot(REFUNDS, 7)))
    made.send_events(context, closed)
    assert list(made.outlets) == [asset_of(EVENTS), tables[REFUNDS]]
    extra = context["outlet_events"][tables[REFUNDS]].extra
    assert (extra["table"], extra["snapshot_id"], extra["rows"]) == (REFUNDS, 7, 12)


def test_rows_of_a_cycle_are_those_of_all_data_tables() -> None:
    published = (snapshot(ORDERS, 5), snapshot(REFUNDS, 7), snapshot("shop.dead", 9))
    assert Closed(commit_id=UUID(int=1), table=ORDERS, other_tables=(REFUNDS,), published=published).rows == 12
