# SPDX-License-Identifier: Apache-2.0
"""A live Airflow in which neither Spark nor Java nor Iceberg's libraries can be reached, next to a live connector."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dev.airflow_client import FINISHED, AirflowClient
from dev.airflow_stack import WITH_TRIGGERER, Airflow
from dev.paths import CHECKOUT
from dev.processes import Children, kill_all
from tests.support.airflow_dags import bundles
from tests.support.waiting import until

__all__ = ["ABSENT", "Bare", "bare_airflow", "scaled_example"]

ABSENT = ("pyspark", "py4j", "pyarrow", "pyiceberg", "pandas", "numpy", "grpc")
"""What an Airflow that only guards does not install."""

BLOCK = '''
"""Read by every Python of this Airflow before anything else."""
import sys


class Absent:
    """Finds nothing, with the error of what is not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError("No module named %r (absent in this Airflow)" % name, name=name)
        return None


sys.meta_path.insert(0, Absent())
'''
PATIENCE = 600.0
POLL_SECONDS = 0.5
EXAMPLES = CHECKOUT / "dags"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """The running Airflow."""

    airflow: Airflow
    client: AirflowClient
    children: Children
    folder: Path

    def add(self, name: str, text: str, *dags: str) -> None:
        """A DAG file; returns when its DAGs are known and unpaused."""
        made = self.folder / f"{name}.new"
        made.write_text(text)
        made.replace(self.folder / f"{name}.py")
        for dag in dags:
            self.client.await_dag(dag, PATIENCE)

    def states(self, dag: str, run: str) -> dict[str, str | None]:
        return {task.task: task.state for task in self.client.tasks(dag, run)}

    def ended(self, dag: str, run: str) -> tuple[str, dict[str, str | None]]:
        """State of a run and those of its tasks, when it has ended."""
        self._until(lambda: self.client.run_state(dag, run) in FINISHED, f"the end of {run} of {dag}")
        return self.client.run_state(dag, run), self.states(dag, run)

    def run(self, dag: str, run: str) -> tuple[str, dict[str, str | None]]:
        """Trigger a run and wait for its end."""
        self.client.trigger(dag, run)
        return self.ended(dag, run)

    def await_state(self, dag: str, run: str, task: str, *expected: str) -> None:
        self._until(lambda: self.states(dag, run).get(task) in expected, f"{task} of {run}: {expected}")

    def await_run_with(self, dag: str, task: str, *expected: str) -> str:
        """The first run of a DAG in which a task comes into one of these states."""
        found: list[str] = []

        def check() -> bool:
            found[:] = [run for run in self.client.runs(dag) if self.states(dag, run).get(task) in expected]
            return bool(found)

        self._until(check, f"a run of {dag} with {task}: {expected}")
        return found[0]

    def await_all_runs(self, dag: str) -> None:
        """Wait until no run of a DAG is under way."""
        self._until(lambda: set(self.client.runs(dag).values()) <= FINISHED, f"the end of all runs of {dag}")

    def await_success(self, dag: str) -> None:
        """Wait until a run of a DAG was successful."""
        self._until(lambda: "success" in self.client.runs(dag).values(), f"a run of {dag}")

    def log(self, dag: str, run: str, task: str) -> str:
        """What the attempts of a task, and its trigger, have logged so far."""
        found = (self.airflow.home / "logs").glob(f"dag_id={dag}/run_id={run}/task_id={task}/**/*.log*")
        return "\n".join(path.read_text(errors="replace") for path in sorted(found))

    @staticmethod
    def _until(holds: Callable[[], bool], what: str) -> None:
        """An API server that has much to do may not answer in time: it is asked again."""

        def holds_now() -> bool:
            try:
                return holds()
            except OSError:
                return False

        until(holds_now, PATIENCE, what, POLL_SECONDS)

    def kill_triggerer(self) -> None:
        """SIGKILL for the triggerer and all that it has started; returns when they are missing."""
        kill_all(self.children.family("triggerer"))
        until(lambda: not self.children.family("triggerer"), what="the end of the triggerer")


@contextmanager
def bare_airflow(home: Path, connections: dict[str, dict[str, object]], **settings: str) -> Iterator[Bare]:
    """Scheduler, DAG processor, API server and triggerer, until the end of the block."""
    for folder in ("dags", "site", "programs"):
        (home / folder).mkdir(parents=True)
    (home / "site" / "sitecustomize.py").write_text(BLOCK.format(absent=set(ABSENT)))
    children = Children(home)
    airflow = Airflow(
        home / "airflow",
        children,
        connections=connections,
        settings={
            "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": bundles(home / "dags"),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "1",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__CORE__PARALLELISM": "8",
            # A machine that has much to do fails no task by being slow.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRIES": "5",
            "AIRFLOW__CORE__DEFAULT_TASK_RETRY_DELAY": "1",
            # Nothing is on the search path: Airflow's parts start one another by the path of their Python.
            "PATH": str(home / "programs"),
            "JAVA_HOME": str(home / "programs"),
            "PYTHONPATH": f"{home / 'site'}:{CHECKOUT}",
            **settings,
        },
        deployment="guards",
        parts=WITH_TRIGGERER,
    )
    try:
        airflow.migrate()
        airflow.start()
        yield Bare(airflow=airflow, client=airflow.client, children=children, folder=home / "dags")
    finally:
        children.stop()


def scaled_example(name: str, changes: dict[str, str]) -> str:
    """An example DAG with other names and times. Each change is of a text that is there."""
    text = (EXAMPLES / f"{name}.py").read_text()
    for old, new in changes.items():
        assert old in text, f"{old!r} is not in {name}.py any more"
        text = text.replace(old, new)
    return text
