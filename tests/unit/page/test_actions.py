# SPDX-License-Identifier: Apache-2.0
"""What the page offers to do about a landing, to whom, and in what words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_lakecommit.core.commands import PUBLISH_NOW, RESET_BLOCKED, RESET_OFFSETS, spoken
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.operators.verify import VerifyOperator
from airflow_provider_lakecommit.page.actions import ActionAnswer, Right, actions
from airflow_provider_lakecommit.page.landings import LandingRow
from airflow_provider_lakecommit.page.operations import KnownDag, Operation, operations_in
from airflow_provider_lakecommit.page.partitions import PagePartition
from airflow_provider_lakecommit.stall.group_state import State
from tests.unit.page.test_landings import row

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
CLICKS = Landing(name="clicks", topics="clicks", table="shop.clicks")
ALL: dict[str, Right] = {"reads": lambda _: True, "triggers": lambda _: True, "edits": lambda _: True}
HOW = {"how": Param("raise", enum=["raise", "retry", "skip"])}


def stored(dag: DAG) -> Any:
    return DagSerialization.to_dict(dag)


def dag_of(*tasks: Any, **options: Any) -> DAG:
    with DAG("ops", schedule=None, **options) as dag:
        for task in tasks:
            task()
    return dag


def task_of(name: str, task_id: str, landing: Landing, **arguments: Any) -> Any:
    return lambda: LandingOperationOperator(
        task_id=task_id, landing=landing, operation=spoken(name), arguments=arguments
    )


def unblock(how: str) -> Any:
    return task_of(RESET_BLOCKED, "unblock", ORDERS, how=how, budget="{{ params.budget }}")


@pytest.mark.parametrize(
    ("tasks", "params", "found"),
    [
        ([task_of(PUBLISH_NOW, "p", ORDERS)], {}, [("publish_now", "orders", {})]),
        ([lambda: VerifyOperator(task_id="v", landing=ORDERS)], {}, [("verify", "orders", {})]),
        (
            [
                lambda: VerifyOperator(task_id="v", landing=ORDERS),
                lambda: VerifyOperator(task_id="w", landing=CLICKS),
                lambda: EmptyOperator(task_id="after"),
            ],
            {},
            [("verify", "orders", {}), ("verify", "clicks", {})],
        ),
        ([unblock("retry")], {}, [("retry_blocked", "orders", {})]),
        ([unblock("{{ params.how }}")], HOW, [("retry_blocked", "orders", {"how": "retry"})]),
        ([unblock("{{ params['how'] }}")], HOW, [("retry_blocked", "orders", {"how": "retry"})]),
        # It does something else, or what it does is not known before it runs.
        ([unblock("skip")], {}, []),
        ([unblock("{{ params.how }}")], {"how": Param("raise", enum=["raise", "skip"])}, []),
        ([unblock("{{ dag_run.conf.how }}")], HOW, []),
        ([task_of(RESET_OFFSETS, "init", ORDERS, start="latest")], {}, []),
        ([lambda: EmptyOperator(task_id="e")], {}, []),
        (
            [unblock("{{ params.how }}"), task_of(RESET_BLOCKED, "other", CLICKS, how="{{ params.other }}")],
            HOW | {"other": Param("skip", enum=["skip", "retry"])},
            [("retry_blocked", name, {"how": "retry", "other": "retry"}) for name in ("orders", "clicks")],
        ),
        # Who runs it to verify would decide what becomes of records.
        ([lambda: VerifyOperator(task_id="v", landing=ORDERS), unblock("skip")], {}, []),
        ([lambda: VerifyOperator(task_id="v", landing=ORDERS), unblock("{{ params.how }}")], HOW, []),
        (
            [
                lambda: VerifyOperator(task_id="v", landing=ORDERS),
                task_of(RESET_OFFSETS, "init", ORDERS, start="latest"),
            ],
            {},
            [],
        ),
        ([unblock("retry"), task_of(RESET_BLOCKED, "other", CLICKS, how="skip")], {}, []),
        # Who runs it to verify would land.
        (
            [
                lambda: KafkaToIcebergOperator(task_id="land", landing=CLICKS),
                lambda: VerifyOperator(task_id="v", landing=ORDERS),
            ],
            {},
            [],
        ),
    ],
)
def test_what_a_dag_is_for(
    tasks: list[Any], params: dict[str, Any], found: list[tuple[str, str, dict[str, str]]]
) -> None:
    operations = operations_in("ops", stored(dag_of(*tasks, params=params)))
    assert [(o.kind, o.landing, o.conf) for o in operations] == found
    assert all(o.dag == "ops" and not o.asks for o in operations)


def test_a_dag_that_asks_a_user_says_so() -> None:
    approval = lambda: ApprovalOperator(task_id="approve", subject="Do it?")  # noqa: E731
    (operation,) = operations_in("ops", stored(dag_of(unblock("retry"), approval)))
    assert operation.asks


@pytest.mark.parametrize(
    "junk", [None, {}, {"dag": {}}, {"dag": {"tasks": [3]}}, {"dag": {"tasks": [{"__var": []}]}}, []]
)
def test_what_is_stored_in_another_form_is_for_nothing(junk: Any) -> None:
    assert operations_in("ops", junk) == ()


def offered(found: LandingRow, dags: dict[str, KnownDag] | None = None, **rights: Right) -> dict[str, ActionAnswer]:
    return {a.kind: a for a in actions(found, DAGS if dags is None else dags, **{**ALL, **rights})}


def operation(kind: str, dag: str = "ops", landing: str = "orders") -> Operation:
    return Operation(kind=kind, landing=landing, dag=dag)


DAGS = {
    "land_orders": KnownDag(paused=False),
    "ops": KnownDag(paused=False, operations=tuple(map(operation, ("publish_now", "retry_blocked", "verify")))),
}
ROW = row("orders", dags=("land_orders",))
BLOCKED = Coverage.of([(SourcePartition("orders", 0, "t"), OffsetRange(5, 9))])


def test_an_idle_landing_can_be_verified_suspended_and_drained_and_there_is_nothing_to_publish_or_to_retry() -> None:
    found = offered(ROW)
    assert list(found) == ["publish_now", "retry_blocked", "verify", "drain", "suspend"]
    assert {kind for kind, a in found.items() if not a.hindrance} == {"verify", "drain", "suspend"}
    assert found["publish_now"].hindrance == "there is nothing to publish"
    assert (found["drain"].pauses, found["drain"].dag) == (["land_orders"], "")


def test_reported_records_of_ended_windows_can_be_published_and_are_counted() -> None:
    waits = PagePartition(topic="orders", partition=0, reported=30, published=10, end=90)
    found = offered(replace(ROW, partitions=(waits,)))
    assert found["publish_now"].hindrance == ""
    assert found["publish_now"].now == "no window is open; 20 reported records of ended ones wait"
    assert (found["drain"].pauses, found["drain"].dag) == (["land_orders"], "ops")


def test_blocked_ranges_are_counted_before_they_are_tried_again() -> None:
    blocked = replace(ROW, state=State(landing=True, blocked=((BLOCKED, "too many rejects", 0.0),)))
    retry = offered(blocked)["retry_blocked"]
    assert (retry.hindrance, retry.now) == ("", "4 offsets in 1 range blocked")


def test_a_landing_whose_dag_is_paused_can_be_resumed() -> None:
    found = offered(ROW, {"land_orders": KnownDag(paused=True)})
    assert list(found) == ["resume"]
    assert found["resume"].unpauses == ["land_orders"]


def test_a_missing_right_is_reported_and_nothing_of_unreadable_dags() -> None:
    none: dict[str, Right] = {"triggers": lambda _: False, "edits": lambda _: False}
    found = offered(ROW, **none)
    assert found["verify"].hindrance == "you may not trigger runs of DAG ops"
    assert found["suspend"].hindrance == "you may not pause DAG land_orders"
    assert all(a.hindrance for a in found.values())
    assert list(offered(ROW, **none, reads=lambda dag: dag == "land_orders")) == ["suspend"]
    assert offered(ROW, **none, reads=lambda _: False) == {}


def test_each_right_is_requested_once_for_a_dag() -> None:
    requests: list[tuple[str, str]] = []

    def granted(right: str) -> Callable[[str], bool]:
        return lambda dag: requests.append((right, dag)) is None

    found = offered(ROW, triggers=granted("trigger"), edits=granted("edit"))
    assert {"publish_now", "verify", "drain", "suspend"} <= set(found)
    assert sorted(requests) == [("edit", "land_orders"), ("trigger", "ops")]


def test_a_paused_dag_does_nothing_now_and_others_landings_are_others() -> None:
    paused = {
        "ops": KnownDag(paused=True, operations=(operation("verify"), operation("publish_now", landing="clicks")))
    }
    found = offered(ROW, paused)
    assert list(found) == ["verify"]
    assert found["verify"].hindrance == "DAG ops is paused: its runs would wait"


def test_of_dags_that_do_the_same_one_is_taken_that_the_user_may_run_now() -> None:
    does = (operation("verify", "a"), operation("verify", "b"), operation("verify", "c"))
    dags = {o.dag: KnownDag(paused=o.dag == "b", operations=(o,)) for o in does}
    assert offered(ROW, dags)["verify"].dag == "a"
    requests: list[str] = []

    def triggers(dag: str) -> bool:
        requests.append(dag)
        return dag != "a"

    found = offered(ROW, {**dags, "other": KnownDag(paused=False)}, triggers=triggers)["verify"]
    assert (found.dag, found.hindrance) == ("c", "")
    assert "other" not in requests, "each question is one to the auth manager"


def test_a_connector_has_no_actions() -> None:
    assert offered(row("connect-sink", state=State())) == {}
