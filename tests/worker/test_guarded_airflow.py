# SPDX-License-Identifier: Apache-2.0
"""An Airflow without Spark and Java guards a live connector: the example DAG and the sensors, through two outages."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dev.record_traces import CONFLICT, REFUSAL, TRIGGER, Lake, Scene
from dev.servers.kafka import Broker
from dev.servers.kafka_connect import ConnectWorker
from tests.support.waiting import until
from tests.worker.guarded import ABSENT, Bare, bare_airflow, scaled_example

pytestmark = pytest.mark.worker

GUARDS = """
import datetime
from pathlib import Path

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider_lakecommit.notifications.commits import CommitsRecoveredNotifier, CommitsStalledNotifier
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.stall.policy import StallPolicy
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger


def tells(what):
    def send(context):
        with Path({told!r}).open("a") as file:
            print(f"{{context['ti'].dag_id}} {{what}}: {{context['reason']}}", file=file)

    return send


for on_stall in ("skip", "fail", "wait"):
    stalled, recovered = CommitsStalledNotifier(tells("stalled")), CommitsRecoveredNotifier(tells("recovered"))
    with DAG(
        {prefix!r} + on_stall, schedule=None, start_date=datetime.datetime(2026, 1, 1), catchup=False
    ) as dag:

        @task
        def work():
            pass

        sensor = StalledCommitSensor(
            task_id="guard",
            connector={connector!r},
            on_stall=on_stall,
            # What is silent may only be slow on a machine that has much to do.
            policy=StallPolicy(hold_on=["stalled"], on_wait_callback=stalled),
            on_skipped_callback=stalled,
            on_failure_callback=stalled,
            on_success_callback=recovered,
        )
        sensor >> work()
    globals()[dag.dag_id] = dag

unplanned = Asset(
    {prefix!r} + "backlog",
    watchers=[
        AssetWatcher(
            name={prefix!r} + "backlog",
            trigger=BacklogTrigger(
                landing="nobody", topics=[{source!r}], control_topic="control-of-nobody", rows=50, interval=1.0
            ),
        )
    ],
)
with DAG({prefix!r} + "backlog", schedule=[unplanned], start_date=datetime.datetime(2026, 1, 1), catchup=False):

    @task
    def land():
        pass

    land()
"""
WAYS = ("skip", "fail", "wait")
CALMER = {"iceberg.control.commit.interval-ms": "4000"}
"""Three of them without a word are silence, also where a slow machine needs seconds for each."""


@pytest.fixture(scope="module")
def worker(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectWorker]:
    with ConnectWorker(tmp_path_factory.mktemp("worker"), broker.bootstrap, flush=0.5, heap="512m") as running:
        yield running


@pytest.fixture(scope="module")
def bare(broker: Broker, worker: ConnectWorker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bare]:
    known: dict[str, dict[str, object]] = {
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": broker.bootstrap}},
        "kafka_connect_default": {"conn_type": "http", "host": worker.url},
    }
    with bare_airflow(tmp_path_factory.mktemp("bare"), known) as running:
        yield running


@pytest.fixture
def scene(broker: Broker, worker: ConnectWorker, tmp_path: Path) -> Iterator[Scene]:
    """A connector, and a source that is written to all the time."""
    made = Scene("guarded", {"bootstrap.servers": broker.bootstrap}, Lake(tmp_path), [worker])
    yield made
    made.write(tmp_path)


def watch(bare: Bare, scene: Scene) -> str:
    """The example DAG for this connector, with seconds for minutes; its name."""
    dag = f"look_after_{scene.connector}"
    changes = {
        "example_lakecommit_guard_connector": dag,
        "payments-sink-commits-guarded": f"{scene.connector}-guarded",
        "payments-sink-guarded": scene.connector,
        # Longer than it is, so that a slow machine is not taken for silence.
        '"payments-sink", timedelta(minutes=5)': f'"{scene.connector}", timedelta(seconds=5)',
        "control-iceberg": scene.control,
        '"jitter": "2m"': '"jitter": "2s"',
        '"retry_delay": timedelta(minutes=1)': '"retry_delay": timedelta(seconds=1)',
        "retry_delay=timedelta(minutes=2)": "retry_delay=timedelta(seconds=2)",
        "(INTERVAL + timedelta(minutes=1)).total_seconds()": "20",
    }
    bare.add(dag, scaled_example("example_lakecommit_guard_connector", changes), dag)
    return dag


def guards(bare: Bare, scene: Scene, marker: Path) -> str:
    """Three DAGs whose work a sensor guards, one for each way, and one that a backlog starts; how their names begin."""
    prefix = f"{scene.connector}-"
    text = GUARDS.format(told=str(marker), prefix=prefix, connector=scene.connector, source=scene.source)
    bare.add(prefix, text, *(f"{prefix}{what}" for what in (*WAYS, "backlog")))
    return prefix


def page(bare: Bare, scene: Scene) -> str:
    """The example DAG that reports each transition; its name."""
    changes = {"payments-sink": scene.connector, "control-iceberg": scene.control, "interval=300.0": "interval=5.0"}
    dag = "example_lakecommit_guard_page"
    bare.add("example_lakecommit_guard", scaled_example("example_lakecommit_guard", changes), dag)
    return dag


def state_of(scene: Scene) -> str:
    return str((scene.rest("GET", "/status") or {}).get("connector", {}).get("state"))


def landed_once(scene: Scene) -> None:
    """All records are in the table, each once."""
    last = scene.close_source()

    def ids() -> list[int]:
        return sorted(scene.lake.catalog.load_table(scene.table).scan().to_arrow()["id"].to_pylist())

    until(lambda: len(ids()) >= last, what="all records to land")
    assert ids() == list(range(1, last + 1))


def test_there_is_neither_spark_nor_java(bare: Bare) -> None:
    environment = bare.airflow.environment
    assert shutil.which("java", path=environment["PATH"]) is None
    for name in ABSENT:
        done = subprocess.run(
            [sys.executable, "-c", f"import {name}"], env=environment, capture_output=True, text=True, check=False
        )
        assert "absent in this Airflow" in done.stderr


def test_a_stall_is_paused_waited_for_and_resumed(bare: Bare, scene: Scene, tmp_path: Path) -> None:
    marker = tmp_path / "told"
    scene.begin(**CALMER, **{"iceberg.control.commit.max-consecutive-failures": "1000"})
    prefix, dag, paged = guards(bare, scene, marker), watch(bare, scene), page(bare, scene)
    for way in WAYS:
        assert bare.run(f"{prefix}{way}", "before") == ("success", {"guard": "success", "work": "success"})

    scene.lake.execute(TRIGGER.format(CONFLICT))
    run = bare.await_run_with(dag, "wait", "deferred")
    assert bare.states(dag, run)["pause"] == "success"
    until(lambda: state_of(scene) == "PAUSED", what="a paused connector")
    for again in ("stalled", "stalled_again"):
        bare.client.trigger(f"{prefix}wait", again)
        assert bare.run(f"{prefix}skip", again) == ("success", {"guard": "skipped", "work": "skipped"})
        assert bare.run(f"{prefix}fail", again) == ("failed", {"guard": "failed", "work": "upstream_failed"})
        bare.await_state(f"{prefix}wait", again, "guard", "deferred")
    bare.kill_triggerer()
    bare.airflow.start()
    assert bare.states(f"{prefix}wait", "stalled") == {"guard": "deferred", "work": None}

    scene.lake.execute("drop trigger outage")
    for again in ("stalled", "stalled_again"):
        assert bare.ended(f"{prefix}wait", again) == ("success", {"guard": "success", "work": "success"})
    # Of the waits themselves: the looks after them would tell it too.
    until(lambda: f"{prefix}wait recovered: " in marker.read_text(), what="word of the recovery")
    state, states = bare.ended(dag, run)
    assert (state, states["wait"], states["resume"], states["restart"]) == ("success", "success", "success", "skipped")
    until(lambda: state_of(scene) == "RUNNING", what="a running connector")
    for way in WAYS:
        assert bare.run(f"{prefix}{way}", "after") == ("success", {"guard": "success", "work": "success"})
    bare.await_all_runs(dag)
    landed_once(scene)
    for way in WAYS:
        text = [line.split()[1] for line in marker.read_text().splitlines() if line.startswith(f"{prefix}{way} ")]
        # Two that are let go at the same moment may both tell it.
        heard = list(dict.fromkeys(text)) if way == "wait" else text
        assert heard == ["stalled:", "recovered:"], way
    until(lambda: "is recovered (was " in bare.log(paged, "*", "tell"), what="a page of the recovery")
    assert "is stalled (was " in bare.log(paged, "*", "tell")
    bare.await_success(f"{prefix}backlog")


def test_a_paused_connector_whose_coordinator_sleeps_is_resumed(bare: Bare, scene: Scene) -> None:
    scene.begin(**CALMER, **{"iceberg.control.commit.max-consecutive-failures": "1000"})
    dag = watch(bare, scene)
    scene.lake.execute(TRIGGER.format(CONFLICT))
    run = bare.await_run_with(dag, "wait", "deferred")
    # As a worker that comes or goes does: its tasks begin anew, and a paused one only when it is resumed.
    scene.rest("POST", "/restart?includeTasks=true")
    bare.await_state(dag, run, "resume", "success")
    scene.lake.execute("drop trigger outage")
    landed_once(scene)
    bare.await_all_runs(dag)


def test_a_dead_coordinator_is_restarted_until_it_stays(bare: Bare, scene: Scene) -> None:
    scene.begin(**CALMER)
    dag = watch(bare, scene)
    scene.lake.execute(TRIGGER.format(REFUSAL))
    run = bare.await_run_with(dag, "restart", "up_for_retry")
    assert "LC8327" in bare.log(dag, run, "restart")
    scene.lake.execute("drop trigger outage")
    state, states = bare.ended(dag, run)
    assert (state, states["restart"], states["pause"]) == ("success", "success", "skipped")
    bare.await_all_runs(dag)
    landed_once(scene)
