# SPDX-License-Identifier: Apache-2.0
"""`VerifyOperator(source=True)` by `dag.test()`, with spark-submit, which returns no results to its task."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.airflow_dags import Lake, bundles, connections
from tests.support.messes import table_of
from tests.support.world import World, records

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.airflow_long,
    pytest.mark.filterwarnings("default"),
]

DAG = """
from airflow.sdk import DAG
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.verify import VerifyOperator

with DAG("proof", schedule=None):
    VerifyOperator(task_id="verify", landing=Landing.from_flat(LANDING), source=True, sample="100%")
"""


def test_a_difference_fails_the_task_and_is_in_its_xcom(
    airflow_db: Path,
    make_world: Callable[..., World],
    produce: Callable[..., object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(1, metadata_columns=True)
    produce(world.landing.topic_names[0], records(0, 50))
    world.settle()
    (tmp_path / "dags").mkdir()
    text = DAG.replace("LANDING", repr(world.landing.to_flat()))
    (tmp_path / "dags" / "proof.py").write_text(text)
    from airflow.dag_processing.dagbag import DagBag

    for conn_id, fields in connections(world.kafka["bootstrap.servers"], Lake(properties={**world.catalog})).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    bag = DagBag(tmp_path / "dags")
    assert bag.import_errors == {}
    (good,) = bag.dags["proof"].test().get_task_instances()
    assert str(good.state) == "success"
    result = good.xcom_pull(task_ids="verify")
    assert (result["ok"], result["source"]["records"]) == (True, 50)
    table_of(world).delete("id = 7")
    (bad,) = bag.dags["proof"].test().get_task_instances()
    assert str(bad.state) == "failed"
    result = bad.xcom_pull(task_ids="verify")
    assert result["ok"] is False
    assert [e["offset"] for e in result["source"]["tables"][0]["examples"]] == [7]
