# SPDX-License-Identifier: Apache-2.0
"""Landings that DAGs declare are rows too, as long as nothing was seen of them."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_lakecommit.core.budgets import PendingBudget
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.page.answers import landing_of
from airflow_provider_lakecommit.page.declared_landings import DeclaredLanding, DeclaredRows, declared_in
from airflow_provider_lakecommit.page.landings import Board, LandingRow, TopicReading
from airflow_provider_lakecommit.stall.group_state import State
from airflow_provider_lakecommit.stall.verdict import Verdict
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from tests.support.declared import nested
from tests.unit.page.test_landings import PLACE, row

READ = (TopicReading(control_topic=PLACE, as_of=1.0),)
ORDERS = DeclaredLanding("orders", "shop.orders", "land_orders", False)


def board(*rows: LandingRow, topics: tuple[TopicReading, ...] = READ) -> Board:
    return Board(rows={r.key: r for r in rows}, topics=topics)


def test_one_that_never_ran_is_before_the_healthy_ones_and_reports_it() -> None:
    rows = DeclaredRows(lambda: (ORDERS,))
    found = list(rows(board(row("late", Verdict.STALLED, 1.0), row("clicks"))).values())
    assert [r.name for r in found] == ["late", "orders", "clicks"]
    answer = landing_of(found[1], (), 0.0)
    assert (answer.never_ran, answer.verdict, answer.dags, answer.tables) == (
        True,
        "unknown",
        ["land_orders"],
        ["shop.orders"],
    )
    assert (answer.last_commit, answer.read_lag, answer.control_topic) == (None, None, "")
    assert "never ran" in answer.reason


@pytest.mark.parametrize(
    ("observed", "expected"),
    [
        (row("orders", dags=("land_orders",)), 1),
        (row("orders", dags=("another", "land_orders")), 1),
        (row("orders", dags=()), 1),
        (row("orders", dags=("another",)), 2),
        (row("lakecommit-orders", dags=(), state=State()), 2),
    ],
    ids=["by it", "by several", "by a command", "by another DAG", "a connector of that name"],
)
def test_one_that_was_observed_is_not_printed_twice(observed: LandingRow, expected: int) -> None:
    assert len(DeclaredRows(lambda: (ORDERS,))(board(observed))) == expected


def test_a_landing_that_has_or_may_have_run_is_not_reported_as_never_run() -> None:
    ran = DeclaredLanding("clicks", "shop.clicks", "land_clicks", True)
    reasons = {r.name: (r.never_ran, r.found.reason) for r in DeclaredRows(lambda: (ran, ORDERS))(board()).values()}
    assert reasons["clicks"][0] is False
    assert "page_topics" in reasons["clicks"][1]
    unread = (*READ, TopicReading(control_topic=PLACE))
    for found in DeclaredRows(lambda: (ran, ORDERS))(board(topics=unread)).values():
        assert not found.never_ran
        assert "not all control topics have been read" in found.found.reason


def test_what_has_not_changed_is_the_same_and_what_was_observed_since_is_taken_out() -> None:
    declared = (ORDERS,)
    rows, observed = DeclaredRows(lambda: declared), board(row("clicks"))
    assert rows(observed) is rows(observed)
    (own,) = (r for r in rows(observed).values() if r.never_ran)
    later = board(row("clicks"), row("late"))
    assert own in rows(later).values()
    assert [r.never_ran for r in rows(board(row("orders", dags=("land_orders",)))).values()] == [False]


def test_its_address_leads_to_the_landing_after_it_was_observed() -> None:
    rows = DeclaredRows(lambda: (ORDERS,))
    (never,) = rows(board()).values()
    observed = row("orders", dags=("land_orders",))
    assert rows.find(board(), never.key) == never
    assert rows.find(board(observed), never.key) == observed
    assert rows.find(board(observed), observed.key) == observed
    assert rows.find(board(row("orders", dags=("another",))), "0123") is None


def parsed(**fields: Any) -> Any:
    """Airflow's JSON of a DAG with a landing."""
    with DAG("land_orders", schedule=None) as dag:
        KafkaToIcebergTaskGroup(
            "land", landing=Landing(name="orders", topics="orders", table="shop.orders", **nested(**fields))
        )
        KafkaToIcebergOperator(task_id="other", landing=Landing(name="clicks", topics="clicks", table="shop.clicks"))
    return DagSerialization.to_dict(dag)


def test_a_budget_is_printed_to_who_may_read_the_dag_that_declares_and_runs_the_landing() -> None:
    few, many = PendingBudget(files=9), PendingBudget(files=99)
    declared = (
        DeclaredLanding("orders", "shop.orders", "a", True),
        DeclaredLanding("orders", "shop.orders", "b", True, few),
        DeclaredLanding("orders", "shop.orders", "c", True, many),
    )
    rows, observed = DeclaredRows(lambda: declared), row("orders", dags=("c", "b", "a"))
    answer = landing_of(observed, (), 0.0, rows.budget(observed, {"a", "b", "c"}))
    assert answer.budget is not None
    assert (answer.budget.files, answer.budget.slices) == (9, None)
    assert rows.budget(observed, {"c"}) == many
    assert rows.budget(observed, {"a"}) is None, "its tasks do not have the declaration whole"
    assert rows.budget(observed, set()) is None
    assert rows.budget(row("orders", dags=("d",)), {"b", "d"}) is None, "that DAG does not run it"
    assert rows.budget(row("orders", dags=("b",), state=State()), {"b"}) is None, "a connector of that name"


def test_what_a_landing_declares_is_what_the_tasks_of_its_dag_have() -> None:
    found = declared_in(
        "land_orders", parsed(dead_letter_table="shop.dead", max_pending_files=7, iceberg_conn_id="lake")
    )
    assert set(found) == {"orders", "clicks"}
    orders = found["orders"]
    assert (orders.dead_letter_table, orders.connections.iceberg, orders.pending_budget.files) == (
        "shop.dead",
        "lake",
        7,
    )
    assert found["clicks"].dead_letter_table is None


def test_a_declaration_that_airflow_cuts_is_known_but_for_its_schema() -> None:
    schema = [{"name": f"column_{n}", "type": "string"} for n in range(500)]
    found = declared_in("land_orders", parsed(dead_letter_table="shop.dead", create={"schema": schema}))
    assert (found["orders"].dead_letter_table, found["orders"].create) == ("shop.dead", None)


@pytest.mark.parametrize(
    "stored",
    [
        None,
        {"dag": {"tasks": [7]}},
        {"dag": {"tasks": [{"__var": {"_task_module": "airflow_provider_lakecommit.x", "declared": "{"}}]}},
        {"dag": {"tasks": [{"__var": {"_task_module": "airflow_provider_lakecommit.x", "declared": '{"nme": 1}'}}]}},
        {"dag": {"tasks": [{"__var": {"_task_module": "elsewhere", "declared": '{"name": "a"}'}}]}},
    ],
)
def test_a_dag_that_is_stored_otherwise_declares_nothing_more(stored: Any) -> None:
    assert declared_in("land", stored) == {}
