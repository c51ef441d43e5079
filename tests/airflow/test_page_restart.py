# SPDX-License-Identifier: Apache-2.0
"""An API server that is ended as usual keeps what its page knows, and the next one shows it, read again or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from confluent_kafka.admin import AdminClient

from dev.airflow_stack import Airflow
from dev.paths import CHECKOUT
from dev.processes import Children
from tests.fixtures.kafka import create_topic, unique
from tests.support import waiting
from tests.support.narrator import Narrator

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

READY_SECONDS, END_SECONDS = 120.0, 60.0


def server(home: Path, children: Children, bootstrap: str, control: str) -> Airflow:
    return Airflow(
        home / "airflow",
        children,
        connections={"kafka_default": {"conn_type": "kafka", "extra": json.dumps({"bootstrap.servers": bootstrap})}},
        settings={"AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": control, "PYTHONPATH": str(CHECKOUT)},
        deployment="live-test",
        parts=("api-server",),
    )


def orders(airflow: Airflow) -> dict[str, Any]:
    """The landing's own page, once it is there."""
    login = {"Authorization": f"Bearer {airflow.client.token}"}

    def ask(path: str) -> Any:
        answer = httpx.get(f"{airflow.url}/lakecommit/api/v1/landings{path}", headers=login, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()

    waiting.until(lambda: ask("")["total"] == 1, READY_SECONDS, "the landing")
    found: dict[str, Any] = ask(f"/{ask('')['landings'][0]['id']}")
    return found


def test_what_the_page_knows_outlives_its_api_server(bootstrap: str, admin: AdminClient, tmp_path: Path) -> None:
    control, kept = unique("control"), tmp_path / "airflow" / "lakecommit-page"
    create_topic(admin, control, 1)
    told = Narrator({"bootstrap.servers": bootstrap}, control, "orders", "land", "another-airflow")
    told.lands("first")
    shown = []
    for start in range(2):
        children = Children(tmp_path)
        airflow = server(tmp_path, children, bootstrap, control)
        try:
            if not start:
                airflow.migrate()
            airflow.start()
            shown.append(orders(airflow))
            children.stop(grace=END_SECONDS)
        finally:
            children.stop()
        (file,) = kept.glob("*.json.gz")
        assert [oct(path.stat().st_mode & 0o777) for path in (kept, file)] == ["0o700", "0o600"]
        # So that nothing of it can be read again.
        for future in admin.delete_records([TopicPartition(control, 0, OFFSET_END)]).values():
            future.result(READY_SECONDS)
    first, second = shown
    for same in ("history", "partitions", "dags", "verdict", "last_commit", "tables"):
        assert second[same] == first[same]
    assert [c["outcome"] for c in second["history"]] == ["complete"]
