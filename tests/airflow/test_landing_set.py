# SPDX-License-Identifier: Apache-2.0
"""A landing set in a DAG, run by `dag.test()` on a real broker, a real spark-submit and a real catalog."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.operators import commit, outcome, plan
from airflow_provider_lakecommit.telemetry.metrics import LAG, ROWS, RUNS, Sample
from dev.paths import CHECKOUT
from tests.fixtures.kafka import unique
from tests.support.airflow_dags import CREATE, Lake, bundles, connections

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.long,
    # `dag.test()` runs Airflow's own server in this process, which warns of what it uses itself.
    pytest.mark.filterwarnings("default"),
]

DAG_FILE = """
import datetime

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

with DAG({dag!r}, schedule=None, start_date=datetime.datetime(2026, 1, 1), catchup=False):
    declared = LandingSet(**{declared!r})
    {land}
"""
GROUP = 'KafkaToIcebergTaskGroup("land", landing=declared, tasks=2)'
ONE_TASK = 'KafkaToIcebergOperator(task_id="land", landing=declared)'
DEADLY = """
import os

import pyarrow.json

read = pyarrow.json.read_json


def reading(source, *args, **options):
    if b"poison" in source.read_buffer().to_pybytes():
        os.kill(os.getpid(), 9)
    source.seek(0)
    return read(source, *args, **options)


pyarrow.json.read_json = reading
"""
"""Of every Python that Spark starts: one record kills the process that reads it."""
Tasks = dict[str, str]
Events = dict[str, dict[str, Any]]


@pytest.fixture
def run_set(
    airflow_db: Path,
    bootstrap: str,
    catalog_properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[dict[str, Any]], tuple[str, Tasks, Events]]:
    """`run_set(fields) -> state, states of the tasks, asset events by landing`."""
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    monkeypatch.setenv("AIRFLOW__LAKECOMMIT__CONTROL_TOPIC", unique("control"))
    for conn_id, fields in connections(bootstrap, Lake(properties={**catalog_properties, "name": "lake"})).items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))
    name = unique("set").replace("-", "_")
    (tmp_path / "dags").mkdir()

    def run(declared: dict[str, Any], land: str = GROUP) -> tuple[str, Tasks, Events]:
        from airflow.dag_processing.dagbag import DagBag

        text = DAG_FILE.format(dag=name, declared={"name": name, **declared}, land=land)
        (tmp_path / "dags" / f"{name}.py").write_text(text)
        bag = DagBag(tmp_path / "dags")
        assert bag.import_errors == {}
        done = bag.dags[name].test()
        tasks = {
            ti.task_id.removeprefix("land.") + (f"[{ti.map_index}]" if ti.map_index >= 0 else ""): str(ti.state)
            for ti in done.get_task_instances()
        }
        return str(done.state), tasks, events_of(name, done.run_id)

    return run


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Sample]:
    """The metrics that the tasks of a set send."""
    samples: list[Sample] = []
    for module in (plan, commit, outcome):
        monkeypatch.setattr(module, "send", samples.extend)
    return samples


def events_of(dag: str, run_id: str) -> Events:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    expected = (
        select(AssetModel.name, AssetEvent.extra)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetEvent.source_dag_id == dag, AssetEvent.source_run_id == run_id)
    )
    with create_session() as session:
        return {name.rpartition("/")[2]: dict(extra) for name, extra in session.execute(expected)}


@pytest.mark.heavy
def test_one_run_lands_all_topics_by_a_few_tasks_and_a_broken_table_stops_none(
    run_set: Callable[[dict[str, Any]], tuple[str, Tasks, Events]],
    make_topic: Callable[..., str],
    produce: Callable[..., Any],
    catalog_properties: dict[str, str],
    sent: list[Sample],
) -> None:
    lake = Lake(properties={**catalog_properties, "name": "lake"})
    topics = [make_topic(2) for _ in range(4)]
    for n, topic in enumerate(topics):
        produce(topic, [{"id": i} for i in range(n + 2)], 0)
    rules = [{"topics": topic, "table": f"shop.t{n}"} for n, topic in enumerate(topics)]
    declared = {"topics": topics, "rules": rules, "missing_table": "create", "defaults": {"create": CREATE}}
    state, tasks, events = run_set({**declared, "topics": topics[:3]})
    assert state == "success"
    assert tasks == dict.fromkeys(["plan", "write[0]", "write[1]", "commit", "outcome"], "success")
    assert [lake.ids(f"shop.t{n}") for n in range(3)] == [list(range(n + 2)) for n in range(3)]
    assert {name.rpartition(".")[2]: extra["rows"] for name, extra in events.items()} == {"t0": 2, "t1": 3, "t2": 4}

    # Each landing by its own name.
    rows = {sample.tags[0].rpartition(".")[2]: sample.value for sample in sent if sample.metric is ROWS}
    assert rows == {"t0": 2, "t1": 3, "t2": 4}
    runs = {(sample.tags[0].rpartition(".")[2], sample.tags[1]) for sample in sent if sample.metric is RUNS}
    assert runs == {("t0", "success"), ("t1", "success"), ("t2", "success")}
    assert {sample.tags[0].rpartition(".")[2] for sample in sent if sample.metric is LAG} == {"t0", "t1", "t2"}
    sent.clear()

    lake.open().drop_table("shop.t1")
    produce(topics[0], [{"id": 10}], 1)
    produce(topics[1], [{"id": 10}], 1)
    state, tasks, events = run_set(declared)
    assert (state, tasks["plan"], tasks["commit"], tasks["outcome"]) == ("failed", "success", "success", "failed")
    assert lake.ids("shop.t0") == [0, 1, 10]
    assert lake.ids("shop.t3") == [0, 1, 2, 3, 4]
    assert {name.rpartition(".")[2] for name in events} == {"t0", "t3"}
    failed = [sample.tags[0].rpartition(".")[2] for sample in sent if sample.metric is RUNS and "failed" in sample.tags]
    assert failed == ["t1"]

    state, tasks, events = run_set({**declared, "exclude": [topics[1]]})
    assert tasks == {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}
    assert events == {}


@pytest.mark.heavy
def test_one_task_lands_all_topics_until_nothing_is_left_and_a_broken_table_stops_none(
    run_set: Callable[..., tuple[str, Tasks, Events]],
    make_topic: Callable[..., str],
    produce: Callable[..., Any],
    catalog_properties: dict[str, str],
) -> None:
    lake = Lake(properties={**catalog_properties, "name": "lake"})
    topics = [make_topic(1) for _ in range(3)]
    for n, topic in enumerate(topics):
        produce(topic, [{"id": i} for i in range(n + 4)], 0)
    rules = [{"topics": topic, "table": f"one.t{n}"} for n, topic in enumerate(topics)]
    # Windows that are smaller than what there is: it takes several rounds.
    defaults = {"create": CREATE, "window": {"max_records": 3}}
    declared = {"topics": topics, "rules": rules, "missing_table": "create", "defaults": defaults}
    state, tasks, events = run_set(declared, ONE_TASK)
    assert (state, tasks) == ("success", {"land": "success"})
    assert [lake.ids(f"one.t{n}") for n in range(3)] == [list(range(n + 4)) for n in range(3)]
    assert {name.rpartition(".")[2] for name in events} == {"t0", "t1", "t2"}

    assert run_set(declared, ONE_TASK) == ("success", {"land": "skipped"}, {})

    lake.open().drop_table("one.t1")
    for topic in topics[:2]:
        produce(topic, [{"id": 10}], 0)
    state, tasks, _ = run_set(declared, ONE_TASK)
    assert (state, tasks) == ("failed", {"land": "failed"})
    assert lake.ids("one.t0") == [0, 1, 2, 3, 10]


@pytest.mark.heavy
def test_a_record_that_kills_its_process_costs_its_slice_and_none_of_the_bundle(
    run_set: Callable[[dict[str, Any]], tuple[str, Tasks, Events]],
    make_topic: Callable[..., str],
    produce: Callable[..., Any],
    catalog_properties: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "deadly").mkdir()
    (tmp_path / "deadly" / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "deadly"), str(CHECKOUT)]))
    lake = Lake(properties={**catalog_properties, "name": "lake"})
    topics = [make_topic(1) for _ in range(4)]
    for topic in topics:
        produce(topic, [{"id": i} for i in range(6)], 0)
    produce(topics[2], [{"id": 6, "note": "poison"}, {"id": 7}], 0)
    rules = [{"topics": topic, "table": f"deadly.t{n}"} for n, topic in enumerate(topics)]
    state, tasks, events = run_set(
        {"topics": topics, "rules": rules, "missing_table": "create", "defaults": {"create": CREATE}}
    )
    assert (state, tasks["commit"], tasks["outcome"]) == ("failed", "success", "failed")
    assert [lake.ids(f"deadly.t{n}") for n in range(4)] == [list(range(6))] * 4
    assert len(events) == 4


@pytest.mark.heavy
def test_a_topic_that_never_had_a_record_fails_no_run_and_its_table_is_made_with_the_first(
    run_set: Callable[[dict[str, Any]], tuple[str, Tasks, Events]],
    make_topic: Callable[..., str],
    produce: Callable[..., Any],
    catalog_properties: dict[str, str],
) -> None:
    lake = Lake(properties={**catalog_properties, "name": "lake"})
    empty = make_topic(2)
    declared = {"topics": [empty], "rules": [{"topics": empty, "table": "empty.t"}], "missing_table": "create"}
    nothing = {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}
    assert run_set(declared) == ("success", nothing, {})
    produce(empty, [{"id": 1}], 0)
    state, _, events = run_set(declared)
    assert (state, len(events)) == ("success", 1)
    assert lake.ids("empty.t") == [1]
