# SPDX-License-Identifier: Apache-2.0
"""What the operators on a connector do, and what they leave alone; on a real worker in `tests/worker`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_lakecommit.exceptions import ConnectError
from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator
from tests.fakes.connect_worker import Worker, serving, status


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    with serving() as made:
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", json.dumps({"conn_type": "http", "host": made.url}))
        yield made


def run(action: str, **arguments: Any) -> dict[str, Any]:
    task = KafkaConnectOperator(task_id="task", connector="sink", action=action, arguments=arguments)
    done: dict[str, Any] = task.execute({})  # type: ignore[arg-type]
    return done


ORDERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "pause": ("/connectors/sink/pause", ("PAUSED", "PAUSED")),
    "resume": ("/connectors/sink/resume", ("RUNNING", "RUNNING")),
    "restart": ("/connectors/sink/restart?includeTasks=true&onlyFailed=true", ("RUNNING", "RUNNING")),
}


@pytest.mark.parametrize("kind", ORDERS)
def test_an_order_is_given_once_and_its_end_waited_for(worker: Worker, kind: str) -> None:
    path, end = ORDERS[kind]
    worker.answers = [(200, status("RUNNING", "RUNNING")), (202, None), (200, status(*end))]
    assert run(kind)["connector"] == end[0]
    assert [request for request in worker.requests if request[0] != "GET"] == [
        ("POST" if "restart" in path else "PUT", path)
    ]


@pytest.mark.parametrize("kind", ORDERS)
def test_a_connector_that_a_user_stopped_is_left_alone(worker: Worker, kind: str) -> None:
    worker.answers = [(200, status("STOPPED"))]
    with pytest.raises(AirflowFailException, match=r"sink is STOPPED .*: a user stopped it"):
        run(kind)
    assert {method for method, _ in worker.requests} == {"GET"}


def test_a_stopped_connector_is_started_where_that_is_meant(worker: Worker) -> None:
    worker.answers = [(202, None), (200, status("RUNNING", "RUNNING"))]
    assert run("resume", stopped_too=True)["tasks"] == {"sink-0": "RUNNING"}


@pytest.mark.parametrize("kind", ORDERS)
def test_a_connector_that_is_not_there_is_not_tried_again(worker: Worker, kind: str) -> None:
    worker.answers = [(404, {"message": "No status found for connector sink"})]
    with pytest.raises(AirflowFailException, match="has no connector 'sink'"):
        run(kind)


def test_a_task_that_fails_again_is_named_with_its_cause(worker: Worker) -> None:
    running = (200, status("RUNNING", "RUNNING", "RUNNING"))
    worker.answers = [running, (202, None), running, (200, status("RUNNING", "RUNNING", "FAILED"))]
    with pytest.raises(ConnectError, match="LC8327"):
        run("restart", stays=timedelta(minutes=5))


def test_a_restart_of_a_paused_connector_ends_when_it_is_paused_again(worker: Worker) -> None:
    worker.answers = [(200, status("PAUSED", "FAILED")), (202, None), (200, status("PAUSED", "PAUSED"))]
    assert run("restart")["tasks"] == {"sink-0": "PAUSED"}


def test_a_paused_connector_is_not_alive(worker: Worker) -> None:
    worker.answers = [(200, status("PAUSED", "FAILED")), (202, None), (200, status("PAUSED", "PAUSED"))]
    with pytest.raises(ConnectError, match="LC8326"):
        run("restart", stays=timedelta(minutes=5))


def test_what_does_not_come_about_in_time_is_left_to_the_retries(worker: Worker) -> None:
    worker.answers = [(200, status("RUNNING", "RUNNING"))]
    with pytest.raises(ConnectError, match="LC7518"):
        run("pause", wait=timedelta(0))
