# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments of operators, sensors and task groups, told when a DAG is parsed."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.kafka_connect import PauseConnectorOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.rescue import RescueOperator
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger

ORDERS = Landing(name="orders", topics="orders", table="shop.orders")
TICKETS = {"plan_task_id": "p", "write_task_id": "w", "commit_task_id": "c"}


@pytest.mark.parametrize(
    ("make", "arguments", "wrong", "meant"),
    [
        (KafkaToIcebergOperator, {"landing": ORDERS}, "spark_con_id", "spark_conn_id"),
        (PlanWindowOperator, {"landing": ORDERS}, "retry", "retries"),
        (LakeCommitOperator, {"landing": ORDERS, "plan_task_id": "p"}, "outlet", "outlets"),
        (OutcomeOperator, TICKETS, "trigger_rules", "trigger_rule"),
        (PauseConnectorOperator, {"connector": "c"}, "kafka_connect_con_id", "kafka_connect_conn_id"),
        (RescueOperator, {"connector": "c"}, "table", "tables"),
        (StalledCommitSensor, {"landing": "orders"}, "max_valid_trough_age", "max_valid_through_age"),
    ],
)
def test_an_unknown_argument_is_told_with_the_one_that_may_be_meant(
    make: Any, arguments: dict[str, Any], wrong: str, meant: str
) -> None:
    make(task_id="a", pool="default_pool", **arguments)
    with pytest.raises(SpecError, match=rf"'a': unknown argument '{wrong}' \(did you mean '{meant}'\?\)"):
        make(task_id="a", **arguments, **{wrong: None})


def test_all_unknown_arguments_of_a_group_are_told_together() -> None:
    with DAG("d", schedule=None, start_date=datetime(2026, 1, 1)):
        KafkaToIcebergTaskGroup("well", landing=ORDERS, default_args={"retries": 1}, prefix_group_id=True)
        with pytest.raises(SpecError, match=r"'max_active_group' .*'max_active_groups'.*'spark'"):
            KafkaToIcebergTaskGroup("land", landing=ORDERS, max_active_group=2, spark=1)


@pytest.mark.parametrize("told", ["1h30m", 5400, timedelta(minutes=90)])
def test_times_may_be_told_in_many_ways(told: Any) -> None:
    guard = StalledCommitSensor(task_id="a", landing="orders", max_valid_through_age=told, fail_after=told)
    assert guard._target().guard.max_age == guard._target().guard.fail_after == 5400.0
    assert PauseConnectorOperator(task_id="a", connector="c", wait=told).wait == timedelta(minutes=90)
    assert BacklogTrigger(landing=ORDERS, age=told).limits.age == 5400.0


def test_a_text_that_is_no_time_is_named() -> None:
    with pytest.raises(ValueError, match="max_valid_through_age=soon: a positive duration"):
        StalledCommitSensor(task_id="a", landing="orders", max_valid_through_age="soon")
    with pytest.raises(SpecError, match="wait='soon' is not a duration"):
        PauseConnectorOperator(task_id="a", connector="c", wait="soon")


WRONG = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

create = {"schema": [{"name": "id", "type": "bigint"}], "partition_by": ["day(ts)"]}
with DAG("wrong", schedule=None, start_date=datetime(2026, 1, 1)):
    KafkaToIcebergTaskGroup("land", landing=Landing(name="o", topic="o", table="shop.o", create=create))
"""


def test_a_dag_with_a_wrong_landing_is_an_import_error_that_tells_all_of_it(tmp_path: Path) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(WRONG)
    with pytest.raises(SpecError) as refused:
        exec(compile(file.read_text(), str(file), "exec"), {})
    for said in ("did you mean 'topics'?", "column id: 'bigint'", "did you mean 'long'?", "no column 'ts'"):
        assert said in str(refused.value)
