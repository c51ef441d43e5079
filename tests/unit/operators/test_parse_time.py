# SPDX-License-Identifier: Apache-2.0
"""Parsing a DAG of landings: light, without I/O, and the same DAG after a serialization round trip."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, dag, task
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from tests.support.declared import landing_of
from tests.support.forks import Forks

CHECKOUT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted(path.name for path in (CHECKOUT / "dags").glob("example_*.py"))
ORDERS = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

FORKS = Forks(("airflow.sdk.configuration", "tests.unit.operators.parse_dag"))


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_is_parsed_without_io_and_without_heavy_libraries(example: str) -> None:
    done = FORKS.run("tests.unit.operators.parse_dag:main", str(CHECKOUT / "dags" / example), timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "[]"


def made(**options: Any) -> DAG:
    with DAG("made", schedule=None, start_date=datetime(2026, 1, 1)) as made_dag:
        KafkaToIcebergTaskGroup("land", landing=ORDERS, **options)
    return made_dag


def serialized(of: DAG) -> dict[str, Any]:
    """The DAG as the scheduler gets it: through JSON."""
    return json.loads(json.dumps(DagSerialization.serialize_dag(of)))  # type: ignore[no-any-return]


def test_the_group_is_plan_write_commit_outcome_and_outcome_is_the_only_leaf() -> None:
    of = DagSerialization.deserialize_dag(serialized(made()))
    edges = {t: sorted(of.get_task(t).downstream_task_ids) for t in of.task_ids}
    assert edges == {
        "land.plan": ["land.write"],
        "land.write": ["land.commit"],
        "land.commit": ["land.outcome"],
        "land.outcome": [],
    }


def test_what_must_run_in_every_run_does() -> None:
    of = DagSerialization.deserialize_dag(serialized(made()))
    assert {t: str(of.get_task(t).trigger_rule) for t in of.task_ids} == {
        "land.plan": "all_success",
        "land.write": "all_success",
        "land.commit": "all_done",
        "land.outcome": "all_done",
    }


def test_the_commit_task_and_no_other_has_the_asset_of_the_landing_as_outlet() -> None:
    outlets = {t.task_id: [o.name for o in t.outlets] for t in made().tasks if getattr(t, "outlets", None)}
    assert outlets == {"land.commit": [asset_of(ORDERS).name]}


def test_settings_of_the_group_reach_its_write_tasks() -> None:
    of = made(spark_conn_id="warehouse", spark_conf={"spark.driver.memory": "3g"}, max_active_groups=2)
    partial = of.get_task("land.write").partial_kwargs
    assert partial["spark_conn_id"] == "warehouse"
    assert partial["spark_conf"] == {"spark.driver.memory": "3g"}
    assert partial["max_active_tis_per_dagrun"] == 2


def test_default_args_of_the_group_reach_all_of_its_tasks() -> None:
    of = made(default_args={"retries": 4})
    assert {t.task_id: t.retries for t in of.tasks} == dict.fromkeys(of.task_ids, 4)


def test_the_group_works_in_a_decorated_dag_next_to_other_tasks() -> None:
    @dag("decorated", schedule=None, start_date=datetime(2026, 1, 1))
    def declared() -> None:
        @task
        def after() -> None: ...

        KafkaToIcebergTaskGroup("land", landing=ORDERS) >> after()

    of = DagSerialization.deserialize_dag(serialized(declared()))
    assert of.get_task("land.outcome").downstream_task_ids == {"after"}


def test_two_landings_in_one_dag_are_two_groups_with_two_assets() -> None:
    with DAG("two", schedule=None, start_date=datetime(2026, 1, 1)) as of:
        KafkaToIcebergTaskGroup("a", landing=ORDERS)
        KafkaToIcebergTaskGroup("b", landing=Landing(name="other", topics="other", table="shop.orders"))
    names = {o.name for t in of.tasks for o in t.outlets}
    assert names == {"lakecommit/orders", "lakecommit/other"}


def test_equal_declarations_have_equal_assets() -> None:
    again = Landing(name="orders", topics=["elsewhere"], table="shop.orders")
    assert asset_of(again) == asset_of(ORDERS)


def test_an_asset_can_be_made_of_odd_names() -> None:
    odd = landing_of(name="odd", topics="t", table="Ünïcode.tä/ble", iceberg_conn_id="a b")
    assert asset_of(odd).uri == "lakecommit://a%20b/%C3%9Cn%C3%AFcode.t%C3%A4%2Fble/odd"


def test_a_landing_may_be_the_path_of_a_spec(tmp_path: Path) -> None:
    spec = tmp_path / "orders.yaml"
    spec.write_text("name: orders\ntopics: orders\ntable: shop.orders\nkafka: {bootstrap.servers: 'unused:1'}\n")
    assert PlanWindowOperator(task_id="plan", landing=spec).landing.table == "shop.orders"


def test_a_wrong_spec_is_reported_when_the_dag_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="LC8304"):
        LakeCommitOperator(task_id="commit", landing=tmp_path / "nowhere.yaml", plan_task_id="plan")


def test_the_commit_task_keeps_the_outlets_it_was_given() -> None:
    other = asset_of(Landing(name="other", topics="t", table="a.b"))
    commit = LakeCommitOperator(task_id="commit", landing=ORDERS, plan_task_id="plan", outlets=[other])
    assert commit.outlets == [other, asset_of(ORDERS)]


def test_a_landing_as_one_task_has_its_asset_and_comes_through_serialization() -> None:
    other = asset_of(Landing(name="other", topics="t", table="a.b"))
    with DAG("alone", schedule=None, start_date=datetime(2026, 1, 1)) as of:
        KafkaToIcebergOperator(
            task_id="land",
            landing=ORDERS,
            spark_conn_id="{{ params.spark }}",
            max_cycles=3,
            outlets=[other],
            retries=4,
            pool="kafka",
        )
    land = DagSerialization.deserialize_dag(serialized(of)).get_task("land")
    assert [o.name for o in land.outlets] == ["lakecommit/other", "lakecommit/orders"]
    assert (land.retries, land.pool, land.trigger_rule) == (4, "kafka", "all_success")
    assert set(land.template_fields) == {"spark_conn_id", "spark_conf", "declared", "result"}


def test_a_landing_as_one_task_takes_at_least_one_cycle() -> None:
    with pytest.raises(ValueError, match="LC8333"):
        KafkaToIcebergOperator(task_id="land", landing=ORDERS, max_cycles=0)
