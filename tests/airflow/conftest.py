# SPDX-License-Identifier: Apache-2.0
"""One live Airflow for all tests of this folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dev.servers.connect import ConnectServer
from tests.airflow.live import Live, live_airflow
from tests.support.airflow_dags import Lake, connections


@pytest.fixture(autouse=True)
def own_signals() -> Iterator[None]:
    """Airflow's task runner, run in this process, leaves its handler behind."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="package")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """Scheduler, DAG processor and API server; every test has DAGs, topics and tables of its own."""
    with live_airflow(tmp_path_factory.mktemp("live"), bootstrap) as running:
        yield running


@pytest.fixture
def warm_lake(
    bootstrap: str, catalog_properties: dict[str, str], connect_server: ConnectServer, monkeypatch: pytest.MonkeyPatch
) -> Lake:
    """A catalog of the test's own, with connections to it, to the broker and to a warm Spark."""
    found = Lake(properties={**catalog_properties, "name": "lake"})
    spark = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": connect_server.port}
    stated: dict[str, dict[str, Any]] = {**connections(bootstrap, found), "spark_connect_default": spark}
    for conn_id, fields in stated.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    return found
