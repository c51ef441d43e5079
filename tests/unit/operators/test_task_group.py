# SPDX-License-Identifier: Apache-2.0
"""What a DAG author's defaults may change in the tasks of a landing, and what they may not."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk import DAG

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.verify import VerifyOperator
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from tests.support.declared import landing_of

TWICE = landing_of(name="twice", topics="orders", table="shop.orders", replicas=2)
ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
SHOP = LandingSet(name="shop", topics_pattern=r"shop\..*", table="lake.{topic}")


@pytest.mark.parametrize("rule", ["all_success", "none_failed", "one_success"])
def test_a_default_trigger_rule_cannot_keep_a_run_from_being_closed_and_evaluated(rule: str) -> None:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1), default_args={"trigger_rule": rule}) as made:
        KafkaToIcebergTaskGroup("land", landing=ORDERS)
    rules = {task.task_id: task.trigger_rule for task in made.tasks}
    assert (rules["land.commit"], rules["land.outcome"]) == ("all_done", "all_done")


def test_other_defaults_reach_every_task() -> None:
    defaults = {"retries": 2, "pool": "landings", "execution_timeout": timedelta(minutes=5)}
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as made:
        KafkaToIcebergTaskGroup("land", landing=ORDERS, max_active_groups=3, default_args=defaults)
    write = made.get_task("land.write")
    assert write.max_active_tis_per_dagrun == 3
    for name in ("plan", "write", "commit", "outcome"):
        task = made.get_task(f"land.{name}")
        assert (task.retries, task.pool, task.execution_timeout) == (2, "landings", timedelta(minutes=5))


def test_each_replica_is_a_task_next_to_the_original_and_on_its_own_queue() -> None:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as made:
        KafkaToIcebergTaskGroup("land", landing=TWICE, replica_queues=["elsewhere"], default_args={"queue": "here"})
    write, replica = made.get_task("land.write"), made.get_task("land.write_replica_1")
    assert (write.queue, replica.queue) == ("here", "elsewhere")
    assert replica.partial_kwargs["replica"] == 1  # type: ignore[union-attr]
    assert made.get_task("land.commit").upstream_task_ids >= {"land.write", "land.write_replica_1"}
    assert [task.task_id for task in made.leaves] == ["land.outcome"]


def test_without_replicas_the_tasks_are_what_they_were() -> None:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as made:
        KafkaToIcebergTaskGroup("land", landing=ORDERS)
    assert {task.task_id for task in made.tasks} == {"land.plan", "land.write", "land.commit", "land.outcome"}


def test_queues_that_are_not_as_many_as_replicas_are_refused() -> None:
    made = DAG("made", schedule=None, start_date=datetime(2026, 1, 1))
    with made, pytest.raises(SpecError, match="LC8707"):
        KafkaToIcebergTaskGroup("land", landing=TWICE, replica_queues=["a", "b"])


@pytest.mark.parametrize("by_path", [False, True])
def test_a_set_has_the_tasks_of_a_landing(tmp_path: Path, by_path: bool) -> None:
    spec = tmp_path / "shop.yaml"
    spec.write_text("{name: shop, topics_pattern: 'shop\\..*', table: 'lake.{topic}'}")
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as made:
        group = KafkaToIcebergTaskGroup("land", landing=spec if by_path else SHOP, tasks=2)
    assert group.landing == SHOP
    assert {task.task_id for task in made.tasks} == {"land.plan", "land.write", "land.commit", "land.outcome"}
    assert [str(each.name) for each in made.get_task("land.commit").outlets] == ["lakecommit/shop"]
    assert "a set of landings" in str(made.get_task("land.plan").doc_md)


@pytest.mark.parametrize(
    ("landing", "wrong", "message"),
    [
        (SHOP, {"hourly": True}, "`hourly` is for a single landing.*LC8309"),
        (SHOP, {"replica_queues": ["a"]}, "1 replicas.*LC8707"),
        (SHOP, {"tasks": 0}, "tasks=0: use a number of at least 1.*LC8345"),
        (ORDERS, {"tasks": 2}, "`tasks` is for a landing set.*LC8344"),
    ],
)
def test_what_is_for_the_other_of_the_two_is_refused(landing: object, wrong: dict[str, object], message: str) -> None:
    made = DAG("made", schedule=None, start_date=datetime(2026, 1, 1))
    with made, pytest.raises(SpecError, match=message):
        KafkaToIcebergTaskGroup("land", landing=landing, **wrong)  # type: ignore[arg-type]


def test_a_set_is_planned_once_in_a_dag_and_is_no_landing() -> None:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)):
        PlanWindowOperator(task_id="plan", landing=SHOP)
        with pytest.raises(SpecError, match="LC8307"):
            KafkaToIcebergOperator(task_id="one", landing=SHOP)
    with pytest.raises(SpecError, match="LC8306"):
        VerifyOperator(task_id="v", landing=SHOP)
    with pytest.raises(SpecError, match="LC8332"):
        KafkaToIcebergOperator(task_id="one", landing=SHOP, follow_for="15m")
