# SPDX-License-Identifier: Apache-2.0
"""A real Airflow of one directory, with the questions that tests ask it and the buttons that they press."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dev.airflow_client import AirflowClient
from dev.airflow_stack import PARTS, Airflow
from dev.paths import CHECKOUT
from dev.processes import Children, living
from tests.airflow import stand_in
from tests.airflow.faults import FOLDER, Faults
from tests.fixtures.kafka import unique
from tests.support import waiting
from tests.support.airflow_dags import CREATE, Lake, bundles, connections, write_dag

__all__ = ["RUN_SECONDS", "Live", "live_airflow", "orders", "until", "until_its_job_has_ended"]

RUN_SECONDS = 600.0
POLL_SECONDS = 0.2
PATIENT = {
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "240",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "100",
    "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
    "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "300",
}
"""By default Airflow fails a task whose first words to the API server are not answered within seconds."""
PATIENT_PLUGIN = """
from airflow.sdk.execution_time.supervisor import WatchedSubprocess

number, _, force = WatchedSubprocess.kill.__defaults__
WatchedSubprocess.kill.__defaults__ = number, 240.0, force

from airflow_provider_lakecommit.hooks import run_note

run_note.SECONDS = 240.0
"""
"""A task that is reported to stop is killed when it has not ended within five seconds, which Airflow lets nobody set.
So is a note let go that a busy machine has not taken by then.
"""
STAND_IN = "stand_in"
"""Connection whose spark-submit is :mod:`tests.airflow.stand_in`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """A running Airflow and the lake that its landings land in."""

    airflow: Airflow
    client: AirflowClient
    folder: Path
    lake: Lake

    def declare(self, name: str, topic: str, *, options: dict[str, Any] | None = None, **fields: Any) -> None:
        """A DAG with a landing, and the DAG that follows its asset; returns when both are known.

        :param options: of the task group
        """
        landing = {"name": name, "topics": topic, "table": f"shop.{name}", "create": CREATE, **fields}
        write_dag(self.folder, name, landing, **(options or {}))
        self.client.await_dag(name, RUN_SECONDS)
        self.client.await_dag(f"{name}_downstream", RUN_SECONDS)

    def armed(
        self,
        name: str,
        topic: str,
        *,
        dag: str | None = None,
        dag_options: dict[str, Any] | None = None,
        options: dict[str, Any] | None = None,
        **fields: Any,
    ) -> Faults:
        """A DAG whose tasks can be held and killed, on the stand-in for spark-submit."""
        landing = {"name": name, "topics": topic, "table": f"shop.{name}", "create": CREATE, **fields}
        values = {"max_active_runs": 4, **(dag_options or {})}
        engine = {"spark_conn_id": STAND_IN, **(options or {})}
        write_dag(self.folder, dag or name, landing, dag_options=values, armed=True, **engine)
        self.client.await_dag(dag or name, RUN_SECONDS)
        return self.faults(name)

    def faults(self, name: str) -> Faults:
        """The places of a landing; they may be set before its DAG is there."""
        return Faults(self.folder.parent / "faults", name)

    def run(self, name: str, run: str) -> tuple[str, dict[str, str | None]]:
        """Trigger a run; its state and those of its tasks."""
        self.client.trigger(name, run)
        return self.ended(name, run)

    def ended(self, name: str, run: str) -> tuple[str, dict[str, str | None]]:
        """The state of a run and those of its tasks, when it has ended."""
        return self.client.await_run(name, run, RUN_SECONDS), self.states(name, run)

    def states(self, name: str, run: str) -> dict[str, str | None]:
        return {
            t.task.removeprefix("land.") + (f"[{t.map_index}]" if t.map_index >= 0 else ""): t.state
            for t in self.client.tasks(name, run)
        }

    def await_state(self, name: str, run: str, task: str, *expected: str | None) -> None:
        """Wait until a task is in one of these states."""
        until(f"{task} of {run}: {expected}", lambda: self.states(name, run).get(task, "-") in expected)

    def runs(self, name: str) -> list[str]:
        """States of all runs of a DAG."""
        return list(self.client.runs(name).values())

    def log(self, name: str, run: str, task: str) -> str:
        """What the attempts of a task have logged so far."""
        found = (self.airflow.home / "logs").glob(f"dag_id={name}/run_id={run}/task_id=land.{task}/**/*.log")
        return "\n".join(path.read_text(errors="replace") for path in sorted(found))

    def printed(self, name: str, run: str, text: str, task: str = "outcome") -> bool:
        """Does the log of a task hold a text?"""
        return text in self.log(name, run, task)


@contextmanager
def live_airflow(
    home: Path, bootstrap: str, parts: tuple[str, ...] = PARTS, more: Mapping[str, str] | None = None, path: str = ""
) -> Iterator[Live]:
    """An Airflow of these parts that runs until the end of the block.

    :param more: settings of it, over those that all have
    :param path: below which it is
    """
    for folder in ("warehouse", "dags", "faults"):
        (home / folder).mkdir()
    place = {"uri": f"sqlite:///{home}/catalog.db", "warehouse": f"file://{home}/warehouse"}
    lake = Lake(properties={"name": "lake", "type": "sql", **place})
    settings = {
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundles(home / "dags"),
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
        # Other tests want the processor that a scheduler takes which looks ten times a second.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.4",
        "AIRFLOW__LAKECOMMIT__CONTROL_TOPIC": unique("control"),
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        **PATIENT,
        "AIRFLOW__CORE__PARALLELISM": "8",
        "PATH": stand_in.install(home / "bin"),
        "PYTHONPATH": str(CHECKOUT),
        FOLDER: str(home / "faults"),
        **(more or {}),
    }
    plugins = home / "airflow" / "plugins"
    plugins.mkdir(parents=True)
    (plugins / "patient.py").write_text(PATIENT_PLUGIN)
    known = connections(bootstrap, lake)
    children = Children(home)
    airflow = Airflow(
        home / "airflow",
        children,
        connections={**known, STAND_IN: {"conn_type": "spark", "host": stand_in.MASTER}},
        settings=settings,
        deployment="live-test",
        parts=parts,
        path=path,
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
    """Wait as long as a run may take."""
    waiting.until(holds, RUN_SECONDS, what, POLL_SECONDS)


def until_its_job_has_ended(landing: str) -> None:
    """What a killed task leaves running for a while would be one more attempt at what the next one does."""
    until("the end of its job", lambda: not any(f"lakecommit-{landing}-" in p.command for p in living().values()))
