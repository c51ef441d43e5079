# SPDX-License-Identifier: Apache-2.0
"""The sensor by `dag.test()`, on a real broker: what it does of each verdict, and how a wait ends."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.fixtures.kafka import unique
from tests.support.airflow_dags import bundles
from tests.support.coordinator import Coordinator, write_guard
from tests.support.waiting import until

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    # `dag.test()` runs Airflow's own server in this process, which warns of what it uses itself.
    pytest.mark.filterwarnings("default"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarded:
    """A DAG folder, and a connector's control topic."""

    folder: Path
    connector: Coordinator

    def run(self, recovers: UUID | None = None, **options: Any) -> dict[str, str]:
        """States of the tasks of one run. A cycle that ``recovers`` completes as soon as the sensor waits."""
        from airflow.dag_processing.dagbag import DagBag

        dag, known = unique("guard").replace("-", "_"), {}
        if "landing" not in options and "connector" not in options:
            known = {"control_topic": self.connector.topic, "control_group_id": self.connector.group}
        waits = write_guard(self.folder, dag, **{**known, **options})
        bag = DagBag(self.folder)
        assert bag.import_errors == {}

        def recover() -> None:
            assert recovers is not None
            until(waits.exists)
            self.connector.complete(recovers)

        later = threading.Thread(target=recover)
        if recovers:
            later.start()
        states = {ti.task_id: str(ti.state) for ti in bag.dags[dag].test().get_task_instances()}
        if recovers:
            later.join()
        return states


@pytest.fixture
def guarded(
    airflow_db: Path, bootstrap: str, make_topic: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Guarded:
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    return Guarded(folder=tmp_path / "dags", connector=Coordinator(bootstrap, make_topic(2)))


def test_it_succeeds_while_commits_are_healthy(guarded: Guarded) -> None:
    guarded.connector.healthy()
    assert guarded.run() == {"guard": "success", "work": "success"}


@pytest.mark.heavy(but=("fail-*",))
@pytest.mark.parametrize(
    ("on_stall", "state", "behind"), [("skip", "skipped", "skipped"), ("fail", "failed", "upstream_failed")]
)
def test_a_stall_is_decided_by_the_first_check(guarded: Guarded, on_stall: str, state: str, behind: str) -> None:
    guarded.connector.stall()
    assert guarded.run(on_stall=on_stall, retries=3) == {"guard": state, "work": behind}


@pytest.mark.heavy(but=("options0",))
@pytest.mark.parametrize("options", [{}, {"deferrable": False, "poke_interval": 0.5}])
def test_a_wait_ends_when_a_cycle_completes(guarded: Guarded, options: dict[str, Any]) -> None:
    last = guarded.connector.stall()
    assert guarded.run(last, on_stall="wait", timeout=240.0, **options) == {"guard": "success", "work": "success"}


@pytest.mark.airflow_long
@pytest.mark.parametrize(("soft_fail", "state"), [(False, "failed"), (True, "skipped")])
def test_a_wait_ends_at_its_timeout(guarded: Guarded, soft_fail: bool, state: str) -> None:
    guarded.connector.stall()
    assert guarded.run(on_stall="wait", timeout=1.0, soft_fail=soft_fail)["guard"] == state


@pytest.mark.airflow_long
def test_what_cannot_be_evaluated_passes_or_holds_as_configured(guarded: Guarded) -> None:
    guarded.connector.start()
    assert guarded.run(on_unknown="pass")["guard"] == "success"
    assert guarded.run(on_unknown="stall")["guard"] == "skipped"


@pytest.mark.airflow_long
def test_a_table_that_is_too_old_is_kept(guarded: Guarded) -> None:
    guarded.connector.healthy(age=3600.0)
    assert guarded.run(max_valid_through_age=timedelta(hours=2))["guard"] == "success"
    assert guarded.run(max_valid_through_age=timedelta(minutes=30))["guard"] == "skipped"


@pytest.mark.airflow_long
def test_a_stall_that_lasts_turns_red(guarded: Guarded) -> None:
    guarded.connector.stall(every=600.0)
    assert guarded.run(fail_after=timedelta(hours=1))["guard"] == "skipped"
    assert guarded.run(fail_after=timedelta(minutes=10))["guard"] == "failed"


@contextmanager
def connect_worker(config: dict[str, str]) -> Iterator[int]:
    """What a worker answers to a request for the configuration of `orders`; return its port."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.path == "/connectors/orders/config"
            self.send_response(200 if known else 404)
            self.end_headers()
            self.wfile.write(json.dumps(config if known else {}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_connector_is_found_by_its_name(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    guarded.connector.stall()
    config = {
        "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
        "iceberg.control.topic": guarded.connector.topic,
        "iceberg.control.commit.interval-ms": "60000",
    }
    with connect_worker(config) as port:
        worker = {"conn_type": "http", "host": "127.0.0.1", "port": port}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_CONNECT_DEFAULT", json.dumps(worker))
        assert guarded.run(connector="orders")["guard"] == "skipped"
        assert guarded.run(connector="other")["guard"] == "failed"
