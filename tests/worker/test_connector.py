# SPDX-License-Identifier: Apache-2.0
"""A real Kafka Connect worker with the Iceberg sink: what the operators do to it, and a rescue of what it announced."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import ConnectError, ConnectorError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.operations.kafka_connect.connector import check_stopped
from airflow_provider_lakecommit.operations.kafka_connect.disposition import Disposition
from airflow_provider_lakecommit.operations.kafka_connect.rescue import Rescue, RescueReport
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectRest
from airflow_provider_lakecommit.operators.kafka_connect import KafkaConnectOperator
from dev.record_traces import CONFLICT, REFUSAL, TRIGGER, Lake, Scene
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from tests.support.waiting import until

pytestmark = pytest.mark.worker

WAIT = timedelta(minutes=4)


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("worker"), broker.bootstrap, flush=0.5, heap="512m") as running:
        yield running


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


@pytest.fixture
def scene(
    broker: Broker, worker: ConnectWorker, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Scene]:
    """A connector that commits every two seconds, and a source that is written to all the time."""
    monkeypatch.setenv(
        "AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", json.dumps({"conn_type": "http", "host": worker.url.rstrip("/")})
    )
    made = Scene("guarded", {"bootstrap.servers": broker.bootstrap}, lake, [worker])
    yield made
    made.write(tmp_path)


def done(scene: Scene, action: str, **options: Any) -> dict[str, Any]:
    task = KafkaConnectOperator(
        task_id="task", connector=scene.connector, action=action, arguments={"wait": WAIT, **options}
    )
    status: dict[str, Any] = task.execute({})  # type: ignore[arg-type]
    return status


def table(scene: Scene) -> Table:
    return scene.lake.catalog.load_table(scene.table)


def ids(scene: Scene) -> list[int]:
    return sorted(table(scene).scan().to_arrow()["id"].to_pylist())


def waiting(scene: Scene, kafka: dict[str, Any]) -> int:
    with_tables = Tables({}, connect=lambda *_, **__: scene.lake.catalog)
    reports = Rescue(kafka, with_tables, control_topic=scene.control, connector=scene.connector).check()
    return sum(len(report.of(Disposition.WAITING)) for report in reports)


def test_a_paused_connector_goes_on_committing_and_comes_back(scene: Scene, bootstrap: str) -> None:
    kafka = {"bootstrap.servers": bootstrap}
    scene.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    scene.lake.execute(TRIGGER.format(CONFLICT))
    until(lambda: waiting(scene, kafka) >= 4, what="files that wait")
    for _ in range(2):
        answer = done(scene, "pause")
        assert (answer["connector"], set(answer["tasks"].values())) == ("PAUSED", {"PAUSED"})
    before = scene.lake.commits(scene.table)
    scene.lake.execute("drop trigger outage")
    until(lambda: scene.lake.commits(scene.table) > before, what="a commit of a paused connector")
    until(lambda: waiting(scene, kafka) == 0, what="all that was announced to be committed")
    for _ in range(2):
        answer = done(scene, "resume", jitter=timedelta(milliseconds=50))
        assert set(answer["tasks"].values()) == {"RUNNING"}
    scene.landed()


def test_a_dead_connector_is_restarted_until_it_stays(scene: Scene) -> None:
    scene.begin()
    scene.lake.execute(TRIGGER.format(REFUSAL))
    scene.wait(scene.failed)
    with pytest.raises(ConnectError, match="LC8327") as dead:
        done(scene, "restart", stays=WAIT)
    assert scene.connector in str(dead.value)
    scene.lake.execute("drop trigger outage")
    answer = done(scene, "restart")
    assert (set(answer["tasks"].values()), answer["dead"]) == ({"RUNNING"}, {})
    scene.landed()


def test_a_connector_that_is_not_there(scene: Scene, worker: ConnectWorker) -> None:
    rest = ConnectRest(url=worker.url)
    with pytest.raises(ConnectorError, match=r"no connector 'nobody'.*LC7520"):
        rest.status("nobody")
    assert "nobody" not in rest.connectors()


def test_a_rescue_and_the_connector_after_it_double_and_lose_nothing(
    scene: Scene, worker: ConnectWorker, bootstrap: str
) -> None:
    kafka, rest = {"bootstrap.servers": bootstrap}, ConnectRest(url=worker.url)
    scene.begin(**{"iceberg.control.commit.max-consecutive-failures": "1000"})
    scene.lake.execute(TRIGGER.format(CONFLICT))
    until(lambda: waiting(scene, kafka) >= 4, what="files that wait")
    for state in ("RUNNING", "PAUSED"):
        with pytest.raises(ConnectorError, match=rf"is {state}.*LC7525"):
            check_stopped(kafka, scene.connector, rest)
        with pytest.raises(ConnectorError, match="LC7524"):
            check_stopped(kafka, scene.connector, None, stated_gone=True)
        done(scene, "pause")
    rest.stop(scene.connector)
    rest.wait_for(scene.connector, lambda s: s.is_stopped, WAIT.total_seconds(), "stopped")
    until(lambda: stopped(kafka, scene.connector, rest), what="the groups to be empty")
    scene.lake.execute("drop trigger outage")
    before = ids(scene)
    report = rescued(scene, kafka)
    after = ids(scene)
    assert len(after) - len(before) == report.to_dict()["committed"]["rows"] > 0
    assert len(set(after)) == len(after)
    assert rescued(scene, kafka).committed == ()
    rest.resume(scene.connector)
    last = scene.close_source()
    until(lambda: len(ids(scene)) >= last, what="all records to land")
    assert ids(scene) == list(range(1, last + 1))


def stopped(kafka: dict[str, Any], connector: str, rest: ConnectRest) -> bool:
    try:
        check_stopped(kafka, connector, rest)
    except ConnectorError:
        return False
    return True


def rescued(scene: Scene, kafka: dict[str, Any]) -> RescueReport:
    tables = Tables({}, connect=lambda *_, **__: scene.lake.catalog)
    (report,) = Rescue(kafka, tables, control_topic=scene.control, connector=scene.connector).commit()
    return report
