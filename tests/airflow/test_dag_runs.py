# SPDX-License-Identifier: Apache-2.0
"""Whole runs by `dag.test()` on a real broker, a real spark-submit and a real catalog: the states tell the truth."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operations.decisions.audit_decision import audit_preview, decide_audit
from dev.servers.server import free_port
from tests.fixtures.kafka import unique
from tests.support.airflow_dags import CREATE, Lake, bundles, connections, write_dag

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    # `dag.test()` runs Airflow's own server in this process, which warns of what it uses itself.
    pytest.mark.filterwarnings("default"),
]

Produce = Callable[..., list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How a run ended."""

    state: str
    tasks: dict[str, str]
    events: list[dict[str, Any]]


class Runner:
    """A DAG with one landing, and its runs."""

    def __init__(self, folder: Path, name: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.name, self.topic = folder, name, topic
        self.control_topic = unique("control")
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("AIRFLOW__LAKECOMMIT__CONTROL_TOPIC", self.control_topic)

    def connect(self, found: dict[str, dict[str, Any]]) -> None:
        for conn_id, fields in found.items():
            self._monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))

    def declare(self, options: dict[str, Any] | None = None, **fields: Any) -> None:
        """Write the DAG file."""
        landing = {
            "name": self.name,
            "topics": self.topic,
            "table": "shop.orders",
            "dead_letter_table": "shop.orders_dead",
            "create": CREATE,
            **fields,
        }
        write_dag(self.folder, self.name, landing, **(options or {}))

    def run(self, **conf: Any) -> Run:
        """One run, to its end."""
        from airflow.dag_processing.dagbag import DagBag

        bag = DagBag(self.folder)
        assert bag.import_errors == {}
        done = bag.dags[self.name].test(run_conf=conf)
        tasks = {
            ti.task_id.removeprefix("land.") + (f"[{ti.map_index}]" if ti.map_index >= 0 else ""): str(ti.state)
            for ti in done.get_task_instances()
        }
        return Run(state=str(done.state), tasks=tasks, events=self._events(done.run_id))

    def _events(self, run_id: str) -> list[dict[str, Any]]:
        from airflow.models.asset import AssetEvent
        from airflow.utils.session import create_session
        from sqlalchemy import select

        events = select(AssetEvent).where(AssetEvent.source_dag_id == self.name, AssetEvent.source_run_id == run_id)
        with create_session() as session:
            return [dict(event.extra) for event in session.scalars(events)]


@pytest.fixture
def lake(catalog_properties: dict[str, str]) -> Lake:
    return Lake(properties={**catalog_properties, "name": "lake"})


@pytest.fixture
def runner(
    airflow_db: Path,
    bootstrap: str,
    lake: Lake,
    make_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Runner:
    """A landing of a topic with two partitions, with a control topic and a DAG folder of its own."""
    monkeypatch.setenv("AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST", bundles(tmp_path / "dags"))
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "spark"))
    made = Runner(tmp_path / "dags", unique("landing").replace("-", "_"), make_topic(2), monkeypatch)
    made.connect(connections(bootstrap, lake))
    return made


CANARY = "canary-4711-of-a-run"
KEY_OF_STORAGE = "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net"


def planted(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The same connections with secrets that nothing needs here."""
    extra = {
        "kafka_default": {"lakecommit.signing.key": CANARY * 2},
        "iceberg_default": {"adls.account-key": CANARY, "credential": f"me:{CANARY}", "s3.session-token": CANARY},
    }
    return {
        conn_id: {**fields, "extra": {**fields["extra"], **extra[conn_id]}} if conn_id in extra else fields
        for conn_id, fields in found.items()
    }


@contextmanager
def processes_watched() -> Iterator[set[str]]:
    """The arguments of processes of this machine that show a canary, in this block."""
    observed, over = set[str](), threading.Event()

    def scan() -> None:
        while not over.wait(0.2):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with suppress(OSError):
                    if CANARY in (words := path.read_bytes().decode(errors="replace")):
                        observed.add(words)

    thread = threading.Thread(target=scan)
    thread.start()
    try:
        yield observed
    finally:
        over.set()
        thread.join()


def _no_canary_in(lake: Lake, bootstrap: str, runner: Runner, *folders: Path) -> None:
    """Of the database with its XComs and rendered fields, logs, work folders, metadata and control records."""
    spec = runner.folder / f"{runner.name}.py"
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file() and path.stat().st_size]
    # The DAG states it, and Airflow keeps DAGs as they are.
    kept = {spec, *runner.folder.rglob("*.pyc"), *(p for f in folders for p in f.glob("airflow.db*"))}
    assert [path for path in files if path not in kept and CANARY.encode() in path.read_bytes()] == []
    assert _in_the_database() == []
    with ControlTopic(runner.control_topic, {"bootstrap.servers": bootstrap}) as control:
        records = list(control.read_all())
    assert records
    assert [r for r in records if CANARY in repr((r.key, r.value, r.headers))] == []
    for name in ("shop.orders", "shop.orders_dead"):
        assert CANARY not in lake.open().load_table(name).metadata.model_dump_json()


def _in_the_database() -> list[str]:
    """Tables of Airflow's database that show a canary, but for the DAG itself."""
    from airflow.utils.session import create_session
    from sqlalchemy import MetaData

    of_the_dag = {"serialized_dag", "dag_code"}
    found = []
    with create_session() as session:
        schema = MetaData()
        schema.reflect(session.connection())
        for name, table in schema.tables.items():
            rows = session.execute(table.select()).all()
            if name not in of_the_dag and any(CANARY in repr(tuple(row)) for row in rows):
                found.append(name)
    return found


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "note": f"order {number}"} for number in ids]


def test_a_run_lands_what_is_new_and_the_next_one_that_finds_nothing_is_green_and_sends_no_event(
    runner: Runner,
    lake: Lake,
    produce: Produce,
    bootstrap: str,
    airflow_home: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And no secret of its connections or settings is in anything that it leaves or shows."""
    runner.connect(planted(connections(bootstrap, lake)))
    runner.declare({"spark_conf": {KEY_OF_STORAGE: CANARY}})
    produce(runner.topic, orders(*range(20)), 0)
    produce(runner.topic, [*orders(*range(20, 30)), "no json", None], 1)

    with processes_watched() as observed:
        first = runner.run()
    assert observed == set()
    shown = "".join(capfd.readouterr())
    assert "--properties-file" in shown
    assert CANARY not in shown
    _no_canary_in(lake, bootstrap, runner, airflow_home, tmp_path)
    assert first.tasks == {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
    assert first.state == "success"
    assert lake.ids("shop.orders") == list(range(30))
    assert lake.count("shop.orders_dead") == 1
    [event] = first.events
    assert event["snapshot_id"] == lake.head("shop.orders")
    assert event["rows"] == 30
    assert event["counts"] == {"landed": 30, "rejected": 1, "filtered": 1, "gaps": 0, "skipped": 0}
    assert event["valid_through"] is not None

    before = lake.head("shop.orders")
    second = runner.run()
    assert second.tasks == {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}
    assert second.state == "success"
    assert second.events == []
    assert lake.head("shop.orders") == before


@pytest.mark.heavy
def test_a_failed_group_fails_the_run_and_publishes_the_others_and_the_next_run_lands_the_rest(
    runner: Runner, lake: Lake, produce: Produce
) -> None:
    python = f"{{{{ '/nowhere/python' if dag_run.conf.get('broken') == task.group.group else '{sys.executable}' }}}}"
    runner.declare({"spark_conf": {"spark.pyspark.driver.python": python}}, groups=2)
    produce(runner.topic, orders(*range(10)), 0)
    produce(runner.topic, orders(*range(10, 20)), 1)

    broken = runner.run(broken=1)
    assert broken.tasks == {
        "plan": "success",
        "write[0]": "success",
        "write[1]": "failed",
        "commit": "success",
        "outcome": "failed",
    }
    assert broken.state == "failed"
    assert lake.ids("shop.orders") == list(range(10))
    assert [event["rows"] for event in broken.events] == [10]

    fixed = runner.run()
    assert fixed.tasks == {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
    assert lake.ids("shop.orders") == list(range(20))


def test_a_plan_that_fails_fails_the_run_and_the_commit_task_still_reports_the_control_topic(
    runner: Runner, lake: Lake, bootstrap: str
) -> None:
    runner.topic = unique("never-made")
    runner.declare(dead_letter_table=None, create=None)
    catalog = lake.open()
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", pa.schema([pa.field("id", pa.int64())]))
    run = runner.run()
    assert run.tasks == {"plan": "failed", "write": "upstream_failed", "commit": "skipped", "outcome": "failed"}
    assert run.state == "failed"
    assert run.events == []
    with ControlTopic(runner.control_topic, {"bootstrap.servers": bootstrap}) as control:
        kinds = [type(entry).__name__ for r in control.read_all() if (entry := read_entry(r, runner.name, LIVE))]
    assert kinds == ["CycleOpened", "CycleClosed"]


@pytest.mark.heavy
def test_a_catalog_that_is_away_fails_the_commit_and_the_run(
    runner: Runner, lake: Lake, bootstrap: str, produce: Produce
) -> None:
    away = Lake(properties={"name": "lake", "type": "rest", "uri": f"http://127.0.0.1:{free_port()}"})
    runner.connect(connections(bootstrap, away))
    runner.declare()
    produce(runner.topic, orders(1), 0)
    # An address that never answered is the plan's to tell, and one red task of its cause.
    first = runner.run()
    assert first.tasks == {"plan": "failed", "write": "upstream_failed", "commit": "skipped", "outcome": "failed"}
    assert first.state == "failed"

    runner.connect(connections(bootstrap, lake))
    assert runner.run().state == "success"
    assert lake.ids("shop.orders") == [1]

    runner.connect(connections(bootstrap, away))
    run = runner.run()
    assert run.tasks == {"plan": "success", "write": "skipped", "commit": "failed", "outcome": "failed"}
    assert run.state == "failed"


@pytest.mark.heavy
def test_a_range_over_its_budget_needs_a_hand_and_stops_no_other_partition(
    runner: Runner, lake: Lake, produce: Produce
) -> None:
    runner.declare(dead_letter_table=None)
    produce(runner.topic, ["no json", *orders(1)], 0)
    produce(runner.topic, orders(2, 3), 1)
    # The first slice held both partitions; it is cut anew per partition before anything of it is blocked.
    assert runner.run().tasks["outcome"] == "failed"
    second = runner.run()
    assert second.tasks["outcome"] == "failed"
    assert second.state == "failed"
    assert lake.ids("shop.orders") == [2, 3]
    assert [event["rows"] for event in second.events] == [2]


def test_refused_rows_send_no_asset_event_until_they_are_released(
    runner: Runner, lake: Lake, produce: Produce, bootstrap: str
) -> None:
    fields = {"publish": {"checks": ["SELECT id FROM added_rows WHERE id = 13"]}, "dead_letter_table": None}
    runner.declare(**fields)
    produce(runner.topic, orders(1), 0)
    assert [event["rows"] for event in runner.run().events] == [1]
    produce(runner.topic, orders(13), 0)
    refused = runner.run()
    assert (refused.state, refused.tasks["commit"], refused.events) == ("failed", "failed", [])
    assert lake.ids("shop.orders") == [1]
    declared = Landing(
        name=runner.name,
        topics=runner.topic,
        table="shop.orders",
        create=CREATE,
        connections={"control_topic": runner.control_topic},
        **fields,
    )
    decision = Decision(command="reset blocked", actor="ana", host="here", at="2026-11-28T00:00:00")
    with LandingSession.connect(declared, {"bootstrap.servers": bootstrap}, lake.properties, log=print) as session:
        decide_audit(session, audit_preview(session, drop=False), decision, drop=False)
    assert lake.ids("shop.orders") == [1]
    released = runner.run()
    assert [event["rows"] for event in released.events] == [1]
    assert released.state == "success"
    assert lake.ids("shop.orders") == [1, 13]


@pytest.mark.heavy
def test_a_replica_that_fails_is_red_and_its_run_is_green_where_the_other_one_has_done_the_group(
    runner: Runner, lake: Lake, produce: Produce
) -> None:
    broken = "task.replica in dag_run.conf.get('broken', [])"
    python = f"{{{{ '/nowhere/python' if {broken} else '{sys.executable}' }}}}"
    runner.declare({"spark_conf": {"spark.pyspark.driver.python": python}}, replicas=2)

    for number, dead, state in ((0, [0], "success"), (1, [1], "success"), (2, [0, 1], "failed"), (3, [], "success")):
        produce(runner.topic, orders(*range(number * 10, number * 10 + 10)), 0)
        run = runner.run(broken=dead)
        assert run.state == run.tasks["outcome"] == state, (dead, run)
        failed = {name for name, each in run.tasks.items() if each == "failed"} - {"outcome"}
        broken_ones = {("write[0]", "write_replica_1[0]")[each] for each in dead}
        # Tasks run one after the other here, in any order: one that comes after another finds nothing to do.
        assert failed == broken_ones if len(dead) == 2 else failed <= broken_ones
        assert [event["rows"] for event in run.events] == {2: [], 3: [20]}.get(number, [10])
    assert lake.ids("shop.orders") == list(range(40))


@pytest.mark.heavy
def test_a_write_task_that_would_do_slow_slices_again_runs_its_job_and_ends_as_ever(
    runner: Runner, lake: Lake, produce: Produce
) -> None:
    """Its Spark job is run next to the task's own thread."""
    python = f"{{{{ '/nowhere/python' if dag_run.conf.get('broken') else '{sys.executable}' }}}}"
    runner.declare({"spark_conf": {"spark.pyspark.driver.python": python}}, speculation=2)
    produce(runner.topic, orders(*range(10)), 0)
    broken = runner.run(broken=True)
    assert (broken.tasks["write[0]"], broken.state) == ("failed", "failed")
    fixed = runner.run()
    assert (fixed.tasks["write[0]"], fixed.state) == ("success", "success")
    assert lake.ids("shop.orders") == list(range(10))
