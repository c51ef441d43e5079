# SPDX-License-Identifier: Apache-2.0
"""Landings and connections from an Airflow deployment, in place of a spec and its sections."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_lakecommit.cli import from_airflow
from airflow_provider_lakecommit.cli import main as face
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing

DAGS = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_lakecommit.landing import Connections, Landing, Window
from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

print("a DAG file prints this")
orders = Landing(name="orders", topics="orders", table="shop.orders", connections=Connections(kafka="brokers"))
own = Connections(control_topic="own")
clicks = Landing(name="clicks", topics="clicks", table="web.clicks", connections=own, window=Window(groups=2))
"""
TWO = (
    DAGS
    + """
with DAG("two", schedule=None, start_date=datetime(2026, 1, 1), params={"spark": "warm"}):
    KafkaToIcebergTaskGroup("land", landing=orders, spark_conn_id="{{ params.spark }}")
    KafkaToIcebergOperator(task_id="clicks", landing=clicks, spark_conn_id="cluster")
with DAG("one", schedule=None, start_date=datetime(2026, 1, 1)):
    KafkaToIcebergTaskGroup("land", landing=orders, prefix_group_id=False)
    LandingOperationOperator(task_id="unblock", landing=orders, operation="reset blocked", arguments={"how": "skip"})
with DAG("torn", schedule=None, start_date=datetime(2026, 1, 1)):
    KafkaToIcebergTaskGroup("a", landing=orders)
    other = Landing(name="orders", topics="orders", table="shop.other")
    LandingOperationOperator(task_id="b", landing=other, operation="reset blocked", arguments={"how": "skip"})
with DAG("none", schedule=None, start_date=datetime(2026, 1, 1)):
    pass
with DAG("committed", schedule=None, start_date=datetime(2026, 1, 1)):
    LakeCommitOperator(task_id="commit", landing=clicks, plan_task_id="plan")
with DAG("many", schedule=None, start_date=datetime(2026, 1, 1)):
    KafkaToIcebergTaskGroup("land", landing=LandingSet(name="shop", topics_pattern=".*", table="lake.{topic}"))
with DAG("sets", schedule=None, start_date=datetime(2026, 1, 1)):
    for name in "ab":
        own = {"connections": {"control_topic": "own"}} if name == "b" else {}
        every = LandingSet(name=name, topics_pattern=".*", table="lake.{topic}", defaults=own)
        KafkaToIcebergTaskGroup(name, landing=every)
"""
)
CONNECTIONS: Mapping[str, Mapping[str, Any]] = {
    "brokers": {"conn_type": "kafka", "extra": {"bootstrap.servers": "b:1", "sasl.password": "hunter-one"}},
    "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": "default:1"}},
    "iceberg_default": {"conn_type": "iceberg", "host": "http://rest", "login": "me", "password": "hunter-two"},
    "warm": {"conn_type": "spark_connect", "host": "server", "port": 15002, "password": "hunter-three"},
    "cluster": {"conn_type": "spark", "host": "yarn"},
    "standalone": {"conn_type": "spark", "host": "spark://m", "port": 7077},
    "spark_default": {"conn_type": "spark", "host": "local[2]"},
}
QUERY = """
import json, sys
from argparse import Namespace
from airflow_provider_lakecommit.cli import from_airflow
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.exceptions import SpecError
base = dict(dag=None, task_group=None, landing=None, kafka_conn_id=None, iceberg_conn_id=None, spark_conn_id=None,
            wants_spark=True, wants_catalog=True, verbose=False)
out = Output()
for asked in json.loads(sys.argv[1]):
    options = Namespace(**{**base, **asked})
    try:
        if (of_set := from_airflow.load_dag_set(options, out)) is not None:
            specs = [of_set.of(of_set.landing_set.with_defaults(of_set.landing_set.name))]
        else:
            specs = from_airflow.load_dag(options, out)
        found = [{"name": s.landing.name, "control": s.landing.connections.control_topic, "kafka": s.kafka,
                  "catalog": s.catalog, "spark": s.spark} for s in specs]
    except SpecError as e:
        found = str(e)
    print(json.dumps(found))
    print(out.clean("hunter-one hunter-two hunter-three"))
"""


@pytest.fixture(scope="module")
def run_queries(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`ask({...}, …)`: what each comes to, in one process with an Airflow of its own without a database."""
    home = tmp_path_factory.mktemp("airflow")
    (home / "dags").mkdir()
    (home / "dags" / "two.py").write_text(TWO)
    (home / "dags" / "broken.py").write_text("from airflow.sdk import DAG\nimport nowhere_to_be_found\n")
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith("AIRFLOW_")},
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": "deployments",
        **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in CONNECTIONS.items()},
    }

    def answers_of(*questions: Mapping[str, Any]) -> list[tuple[Any, str]]:
        command = [sys.executable, "-c", QUERY, json.dumps(questions)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        lines = done.stdout.splitlines()
        assert len(lines) == 2 * len(questions), done.stdout
        return [(json.loads(a), b) for a, b in zip(lines[::2], lines[1::2], strict=True)]

    return answers_of


def test_landings_of_dags_and_their_connections(run_queries: Any) -> None:
    """One process for all questions: it takes seconds to begin."""
    questions = [
        {"dag": "two"},
        {"dag": "two", "task_group": "land"},
        {"dag": "two", "landing": "clicks", "spark_conn_id": "spark_default", "kafka_conn_id": "brokers"},
        {"dag": "one", "task_group": "land", "wants_catalog": False, "wants_spark": False},
        {"dag": "two", "task_group": "lend"},
        {"dag": "twoo"},
        {"dag": "none"},
        {"dag": "torn"},
        {"dag": "committed", "wants_spark": False},
        {"dag": "two", "iceberg_conn_id": "nowhere"},
        {"dag": "one", "spark_conn_id": "cluster"},
        {"dag": "one", "spark_conn_id": "standalone"},
        {"dag": "many", "spark_conn_id": "spark_default"},
        {"dag": "sets", "wants_spark": False},
        {"dag": "sets", "wants_spark": False, "task_group": "b"},
    ]
    *answers, many, two_sets, one_of_two = run_queries(*questions)
    both, group, clicks, one, lend, twoo, none, torn, committed, nowhere, cluster, standalone = answers
    (shop,), sets, (b,) = (found for found, _ in (many, two_sets, one_of_two))
    assert (shop["name"], shop["control"], shop["spark"]) == ("shop", "deployments", {"master": "local[2]"})
    assert shop["catalog"]["credential"] == "me:hunter-two"
    assert sets == "DAG 'sets' has 2 landing sets, a, b: choose one by --task-group [LC8008]"
    assert (b["name"], b["control"]) == ("b", "own")
    assert "submits to yarn, which the command line cannot do" in both[0]
    (orders,), struck = group
    assert (orders["name"], orders["control"]) == ("orders", "deployments")
    kafka = {"bootstrap.servers": "b:1", "sasl.password": "hunter-one"}
    assert {name: orders["kafka"][name] for name in kafka} == kafka
    assert orders["catalog"]["credential"] == "me:hunter-two"
    assert orders["spark"]["remote"].startswith("sc://server:15002/")
    assert struck == "*** *** ***", "secrets of connections are known to the output"
    assert [(s["name"], s["control"], s["spark"]) for s in clicks[0]] == [("clicks", "own", {"master": "local[2]"})]
    assert clicks[0][0]["kafka"]["bootstrap.servers"] == "b:1"
    assert [(s["name"], s["catalog"], s["spark"]) for s in one[0]] == [("orders", {}, {})]
    assert lend[0] == "DAG 'two' has no task group 'lend'; it has orders (land); clicks (clicks) [LC8007]"
    assert twoo[0].startswith("Airflow has no DAG 'twoo' (did you mean 'two'")
    assert "broken.py: ModuleNotFoundError: No module named 'nowhere_to_be_found'" in twoo[0]
    assert none[0] == "DAG 'none' has no task of a landing [LC8006]"
    assert "declares landing 'orders' in two ways" in torn[0]
    assert [s["name"] for s in committed[0]] == ["clicks"]
    assert "connection 'nowhere' does not exist" in nowhere[0]
    assert "submits to yarn" in cluster[0]
    assert standalone[0][0]["spark"]["master"] == "spark://m:7077"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status"], "give SPEC, or --dag DAG"),
        (["status", "a.yaml", "--dag", "x"], "give either SPEC or --dag"),
        (["status", "a.yaml", "--task-group", "x"], "choose among the landings of --dag"),
        (["land", "--landing", "x"], "choose among the landings of --dag"),
        (["land"], "give SPEC, or --dag DAG"),
        (["infer-schema"], "give a topic, SPEC, or --dag"),
        (["status", "--dag", "x", "--spark-conn-id", "y"], "unrecognized arguments: --spark-conn-id"),
    ],
    ids=str,
)
def test_a_landing_comes_from_one_place(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        face.main(arguments)
    assert left.value.code == 2
    assert message in capsys.readouterr().err


class FakeDeployment:
    """Connections by id."""

    kafka_of = staticmethod(lambda conn_id: {"bootstrap.servers": conn_id, "sasl.password": "hunter-one"})
    catalog_of = staticmethod(lambda conn_id: {"type": "rest", "uri": conn_id})
    spark_of = staticmethod(lambda conn_id, conf=None: {"remote": conn_id})
    complete = staticmethod(lambda landing: landing)
    set_of = staticmethod(lambda dag, **_: None)

    @staticmethod
    def landings_of(dag: str, **_: object) -> list[Any]:
        landings = [Landing(name=n, topics=n, table=f"a.{n}") for n in ("orders", "clicks")]
        return [SimpleNamespace(of=each, spark_conn_id="", spark_conf=None) for each in landings]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> Any:
    from contextlib import contextmanager

    @contextmanager
    def opened(*_: object) -> Any:
        yield FakeDeployment

    monkeypatch.setattr(from_airflow, "opened", opened)

    def made(**stated: Any) -> Any:
        names = ("dag", "task_group", "landing", "kafka_conn_id", "iceberg_conn_id", "spark_conn_id", "spec")
        return SimpleNamespace(**{**dict.fromkeys(names), "wants_spark": False, "wants_catalog": True, **stated})

    return made


def test_connections_replace_sections_of_a_spec(tmp_path: Path, options: Any) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text("name: orders\ntopics: orders\ntable: shop.orders\nkafka: {sasl.password: '${NOT_SET_HERE}'}\n")
    output = Output()
    stated = {"spec": str(path), "kafka_conn_id": "k", "spark_conn_id": "s"}
    with pytest.raises(SpecError, match="LC8015"):
        from_airflow.load(options(**stated), output)
    spec = from_airflow.load(options(**stated, iceberg_conn_id="i"), output)
    assert (spec.kafka["bootstrap.servers"], spec.catalog["uri"], spec.spark) == ("k", "i", {"remote": "s"})
    assert output.clean("hunter-one") == "***"


def test_which_landing_is_meant_has_to_be_reported(options: Any) -> None:
    with pytest.raises(SpecError, match="LC8013"):
        from_airflow.load(options(dag="two"), Output())
