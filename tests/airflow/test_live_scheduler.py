# SPDX-License-Identifier: Apache-2.0
"""A real scheduler, Dag processor and API server run landings: states, asset events, a cleared run, a killed task."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dev.airflow_client import AirflowClient
from dev.airflow_stack import Airflow
from dev.processes import Children
from tests.airflow.support import CREATE, Lake, bundles, connections, write_dag
from tests.fixtures.kafka import unique

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.timeout(900)]

RUN_SECONDS = 240.0
LOOK_SECONDS = 0.2

Produce = Callable[..., list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A running Airflow and the lake that its landings land in."""

    airflow: Airflow
    client: AirflowClient
    folder: Path
    lake: Lake

    def declare(self, name: str, topic: str, **fields: Any) -> None:
        """A DAG with a landing, and the DAG that follows its asset; returns when both are known."""
        landing = {"name": name, "topics": topic, "table": f"shop.{name}", "create": CREATE, **fields}
        write_dag(self.folder, name, landing)
        self.client.await_dag(name, RUN_SECONDS)
        self.client.await_dag(f"{name}_downstream", RUN_SECONDS)

    def run(self, name: str, run: str) -> tuple[str, dict[str, str | None]]:
        """Trigger a run; its state and those of its tasks."""
        self.client.trigger(name, run)
        return self.client.await_run(name, run, RUN_SECONDS), self.states(name, run)

    def states(self, name: str, run: str) -> dict[str, str | None]:
        return {
            t.task.removeprefix("land.") + (f"[{t.map_index}]" if t.map_index >= 0 else ""): t.state
            for t in self.client.tasks(name, run)
        }

    def runs(self, name: str) -> list[str]:
        """States of all runs of a DAG."""
        return [r["state"] for r in self.client._ask("GET", f"/dags/{name}/dagRuns")["dag_runs"]]

    def log(self, name: str, run: str, task: str) -> str:
        """What the attempts of a task have logged so far."""
        found = (self.airflow.home / "logs").glob(f"dag_id={name}/run_id={run}/task_id=land.{task}/**/*.log")
        return "\n".join(path.read_text(errors="replace") for path in sorted(found))


@pytest.fixture(scope="module")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    home = tmp_path_factory.mktemp("live")
    (home / "warehouse").mkdir()
    (home / "dags").mkdir()
    place = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
    lake = Lake(properties={"name": "lake", "type": "sql", **place})
    settings = {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundles(home / "dags"),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
        "AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": unique("control"),
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
    }
    children = Children(home)
    airflow = Airflow(
        home / "airflow",
        children,
        connections=connections(bootstrap, lake),
        settings=settings,
        deployment="live-test",
    )
    try:
        airflow.migrate()
        airflow.start()
        yield Live(airflow=airflow, client=airflow.client, folder=home / "dags", lake=lake)
    finally:
        children.stop()


def orders(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "note": f"order {number}"} for number in ids]


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + RUN_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            pytest.fail(f"{what}: not within {RUN_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def test_a_scheduled_landing_starts_who_follows_it_once_per_snapshot_and_a_cleared_run_does_nothing(
    live: Live, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(2)
    live.declare("followed", topic)
    produce(topic, orders(*range(10)), 0)
    produce(topic, orders(*range(10, 15)), 1)

    state, tasks = live.run("followed", "first")
    assert tasks == {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
    assert state == "success"
    assert live.lake.ids("shop.followed") == list(range(15))
    until("the run that follows the asset", lambda: live.runs("followed_downstream") == ["success"])

    head = live.lake.head("shop.followed")
    state, tasks = live.run("followed", "idle")
    assert tasks == {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}
    assert state == "success"

    produce(topic, orders(15), 0)
    live.client._ask("POST", "/dags/followed/dagRuns/first/clear", {"dry_run": False})
    until("the cleared run's begin", lambda: live.states("followed", "first")["plan"] != "success")
    assert live.client.await_run("followed", "first", RUN_SECONDS) == "success"
    tasks = live.states("followed", "first")
    assert tasks["plan"] == "success"
    assert tasks["commit"] == tasks["outcome"] == "skipped"
    assert "was closed at offset" in live.log("followed", "first", "plan")
    assert live.lake.head("shop.followed") == head
    assert live.runs("followed_downstream") == ["success"]


def test_a_task_that_is_killed_says_what_is_saved_and_the_next_run_lands_the_rest_once(
    live: Live, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(1)
    live.declare("killed", topic, slice_records=1)
    produce(topic, orders(*range(200)))
    live.client.trigger("killed", "broken")
    until("the first finished slice", lambda: ": done in" in live.log("killed", "broken", "write"))
    live.client._ask(
        "PATCH", "/dags/killed/dagRuns/broken/taskInstances/land.write/0", {"new_state": "failed", "note": "enough"}
    )
    assert live.client.await_run("killed", "broken", RUN_SECONDS) == "failed"
    tasks = live.states("killed", "broken")
    assert tasks == {"plan": "success", "write[0]": "failed", "commit": "success", "outcome": "failed"}
    saved = live.lake.ids("shop.killed")
    assert 0 < len(saved) < 200
    told = live.log("killed", "broken", "write")
    assert "is told to stop" in told
    assert re.search(r"are reported and will not be read again; to be read again in \d+ slices: ", told)

    state, tasks = live.run("killed", "mended")
    assert state == "success"
    assert live.lake.ids("shop.killed") == list(range(200))
