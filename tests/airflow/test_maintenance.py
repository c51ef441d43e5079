# SPDX-License-Identifier: Apache-2.0
"""The example DAG that keeps tables small, by `dag.test()` on a real broker and catalog."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.test_sweep import age, files, killed_task
from tests.support.airflow_dags import Lake, bundles, connections
from tests.support.world import World, records

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.airflow_long,
    pytest.mark.filterwarnings("default"),
]

EXAMPLE = (Path(__file__).resolve().parents[2] / "dags" / "example_lakecommit_maintenance.py").read_text()


def test_the_example_expires_sweeps_and_checks(
    airflow_db: Path,
    make_world: Callable[..., World],
    produce: Callable[..., object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(1, dead_letter_table=None)
    for turn in range(5):
        produce(world.landing.topic_names[0], records(turn * 10, 10))
        world.settle()
    produce(world.landing.topic_names[0], records(50, 10))
    _, left = killed_task(world, "killed", monkeypatch)
    age(files(world))
    text = EXAMPLE.replace(
        'Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")',
        f"Landing.from_flat({ {k: v for k, v in world.landing.to_flat().items() if k != 'dead_letter_table'}!r})",
    ).replace('snapshots_older_than="30d", keep_snapshots=100', "snapshots_older_than=0.001, keep_snapshots=2")
    assert text != EXAMPLE
    (tmp_path / "dags").mkdir()
    (tmp_path / "dags" / "maintenance.py").write_text(text)
    from airflow.dag_processing.dagbag import DagBag

    for conn_id, fields in connections(world.kafka["bootstrap.servers"], Lake(properties={**world.catalog})).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    bag = DagBag(tmp_path / "dags")
    assert bag.import_errors == {}
    done = bag.dags["example_lakecommit_maintenance"].test()
    states = {ti.task_id: str(ti.state) for ti in done.get_task_instances()}
    assert states == dict.fromkeys(("maintain", "verify"), "success")
    assert not left & files(world)
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        assert len(table.metadata.snapshots) == 2
        # One of each bucket.
        assert table.inspect.data_files().num_rows == 2
    world.settle()
    world.check(Counter(range(60)))
