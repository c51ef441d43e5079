# SPDX-License-Identifier: Apache-2.0
"""The example of a table that follows its topic, by `dag.test()` on a real broker, spark-submit and catalog."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fixtures.kafka import unique
from tests.support.airflow_dags import Lake, bundles, connections
from tests.support.world import own_columns

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.heavy,
    # `dag.test()` runs Airflow's own server in this process, which warns of what it uses itself.
    pytest.mark.filterwarnings("default"),
]

DAG = "example_lakecommit_evolve"
EXAMPLE = (Path(__file__).resolve().parents[2] / "docs" / "examples" / "evolve_dag.py").read_text()


@pytest.fixture
def lake(catalog_properties: dict[str, str]) -> Lake:
    return Lake(properties={**catalog_properties, "name": "lake"})


@pytest.fixture
def run(
    airflow_db: Path, bootstrap: str, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], dict[str, str]]:
    """`run(topic)`: a run of the example, the states of its tasks and of itself."""
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    monkeypatch.setenv("AIRFLOW__LAKECOMMIT__CONTROL_TOPIC", unique("control"))
    for conn_id, fields in connections(bootstrap, lake).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    (tmp_path / "dags").mkdir()

    def once(topic: str) -> dict[str, str]:
        from airflow.dag_processing.dagbag import DagBag

        (tmp_path / "dags" / f"{DAG}.py").write_text(EXAMPLE.replace('topics="carts"', f'topics="{topic}"'))
        bag = DagBag(tmp_path / "dags")
        assert bag.import_errors == {}
        done = bag.dags[DAG].test()
        states = {ti.task_id.removeprefix("land."): str(ti.state) for ti in done.get_task_instances()}
        return {**states, "run": str(done.state)}

    return once


def test_the_example_widens_its_table_and_stops_before_what_does_not_fit(
    run: Callable[[str], dict[str, str]],
    lake: Lake,
    make_topic: Callable[..., str],
    produce: Callable[..., Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = make_topic(1)
    produce(topic, [{"id": 1, "items": 3}], 0)
    assert run(topic)["run"] == "success"
    produce(topic, [{"id": 2, "items": 4, "paid": {"by": "card", "cents": 1250}}], 0)
    assert run(topic)["run"] == "success"
    table = lake.open().load_table("shop.carts")
    columns = tuple(f.name for f in own_columns(table.schema()))
    assert columns == ("id", "items", "paid")
    rows = {row["id"]: row for row in table.scan(selected_fields=columns).to_arrow().to_pylist()}
    assert rows[1] == {"id": 1, "items": 3, "paid": None}
    assert rows[2] == {"id": 2, "items": 4, "paid": {"by": "card", "cents": 1250}}

    produce(topic, [{"id": 3, "items": "three"}], 0)
    capfd.readouterr()
    stopped = run(topic)
    assert (stopped["outcome"], stopped["run"]) == ("failed", "failed")
    assert "column items is long in the table and a text in 1" in "".join(capfd.readouterr())
    assert lake.count("shop.carts") == 2
