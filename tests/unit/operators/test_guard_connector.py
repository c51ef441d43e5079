# SPDX-License-Identifier: Apache-2.0
"""The example DAG that looks after a connector: what is done after which verdict, and what a rescue task is given."""

from __future__ import annotations

import runpy
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.serialization.serialized_objects import DagSerialization

from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator, Rescue

EXAMPLE = Path(__file__).resolve().parents[3] / "dags" / "example_lakecommit_guard_connector.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.mark.parametrize(
    ("state", "task"),
    [("stalled", "pause"), ("dead", "restart"), ("recovered", None), ("split", None), ("losing", None)],
)
def test_the_verdict_reported_last_decides(example: dict[str, Any], state: str, task: str | None) -> None:
    choose = example["what_to_do"].function
    events = [
        SimpleNamespace(extra={"payload": {"group": "connect-x", "state": reported, "reason": "because"}})
        for reported in ("stalled", state)
    ]
    assert choose(triggering_asset_events={example["commits"]: events}) == task


def test_a_pause_is_always_undone_and_only_a_pause(example: dict[str, Any]) -> None:
    (dag,) = {task.dag for task in (example["pause"], example["resume"], example["restart"])}
    of = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))
    assert {t: sorted(of.get_task(t).downstream_task_ids) for t in of.task_ids} == {
        "what_to_do": ["pause", "restart"],
        "pause": ["wait"],
        "wait": ["resume"],
        "resume": [],
        "restart": [],
    }
    assert str(of.get_task("resume").trigger_rule) == "none_skipped"
    # Two stalls that overlap are two runs: a coordinator that dies while one waits is restarted by the other.
    assert of.max_active_runs > 1


def test_who_pauses_does_not_wait_for_a_coordinator_that_sleeps(example: dict[str, Any]) -> None:
    assert example["wait"].policy.hold_on == ("stalled",)


def test_a_run_that_was_started_by_hand_does_nothing(example: dict[str, Any]) -> None:
    assert example["what_to_do"].function(triggering_asset_events={example["commits"]: []}) is None


def rescue() -> KafkaConnectOperator:
    return KafkaConnectOperator(task_id="rescue", connector="x", action="rescue")


def test_a_rescue_writes_nothing_unless_it_is_instructed_to() -> None:
    assert not Rescue().commit
    assert rescue().kafka_connect_conn_id == "kafka_connect_default"


@pytest.mark.parametrize(
    ("user", "named"), [("carla", "carla by DAG mend, run a, task r"), (None, "nobody by DAG mend, run a, task r")]
)
def test_a_rescue_reports_which_run_it_was_who_triggered_it_and_why(user: str | None, named: str) -> None:
    context: Any = {
        "ti": SimpleNamespace(dag_id="mend", task_id="r"),
        "dag_run": SimpleNamespace(run_id="a", triggering_user_name=user),
    }
    decided_by = rescue()._decision(context, Rescue(reason=" the worker is gone ")).by
    assert f" {named} on {socket.gethostname()}: the worker is gone" in decided_by
    assert decided_by[:4].isdecimal()
    nothing: Any = {}
    assert "nobody by task rescue on " in rescue()._decision(nothing, Rescue()).by
