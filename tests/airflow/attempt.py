# SPDX-License-Identifier: Apache-2.0
"""One attempt of the operator that lands alone, with a stand-in for what Airflow gives to a task.

Broker, catalog and Spark Connect server are real; a test says which attempt of which run it is, and how other runs have
ended. As a process of its own (`python -m tests.airflow.attempt JSON`) an attempt can be killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.replay import ReplayOperator
from tests.support.airflow_events import stored_events
from tests.support.declared import landing_of
from tests.support.gate import Gate

__all__ = ["AttemptRequest", "Ended", "attempt", "begin", "killed_in_its_second_slice"]

TASK = "land"
KINDS = {"land": KafkaToIcebergOperator, "backfill": BackfillOperator, "replay": ReplayOperator}
SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequest:
    """Which attempt it is. ``first`` is the number of the first attempt since the last clear; ``states`` are those of
    the task in other runs; ``gate`` is the folder of a gate before each slice; ``events`` are the extras of the asset
    events that Airflow has.
    """

    landing: dict[str, Any]
    run: str
    number: int = 1
    first: int = 1
    options: dict[str, Any] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)
    gate: str | None = None
    events: list[dict[str, Any]] = field(default_factory=list)
    kind: str = "land"

    def operator(self) -> KafkaToIcebergOperator:
        options = {"spark_conn_id": "spark_connect_default", "retries": 2, **self.options}
        declared = LandingSet(**self.landing) if "rules" in self.landing else landing_of(**self.landing)
        return KINDS[self.kind](task_id=TASK, landing=declared, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How it ended, as Airflow would see it: ``event`` is the extra of the asset event that it sends; those of the
    landings of a set are in ``events``, by asset.
    """

    state: str
    reason: str
    event: dict[str, Any] | None
    log: list[str]
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def printed(self, text: str) -> bool:
        return any(text in line for line in self.log)


@dataclass(slots=True)
class _Log:
    lines: list[str]

    def info(self, text: str, *values: object) -> None:
        self.lines.append(text % values)

    warning = error = info


@dataclass(slots=True)
class _Events:
    """What a task sends for one of its outlets."""

    extra: dict[str, Any] | None = None
    added: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def add(self, asset: Any, *, extra: dict[str, Any]) -> None:
        self.added.setdefault(asset.name, []).append(extra)


class _Ti:
    """The task instance as far as the operator asks it."""

    dag_id, task_id, map_index = "dag", TASK, -1

    def __init__(self, request: AttemptRequest) -> None:
        self.run_id, self.try_number = request.run, request.number
        self.max_tries = request.first + 1
        self._states = request.states
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))

    def get_task_states(self, dag_id: str, run_ids: list[str]) -> dict[str, dict[str, str]]:
        assert dag_id == self.dag_id
        return {run: {TASK: self._states[run]} for run in run_ids if run in self._states}


def attempt(
    request: AttemptRequest, started: Callable[[KafkaToIcebergOperator, list[str]], None] = lambda _o, _l: None
) -> Ended:
    """Run one attempt in this process; ``started`` gets the operator and its log before."""
    lines: list[str] = []
    operator, ti = request.operator(), _Ti(request)
    operator._cached_logger = _Log(lines)  # type: ignore[assignment]
    accessor = _Events()
    dag_run = SimpleNamespace(run_type="manual", run_after=datetime.now(UTC))
    context: Any = {"ti": ti, "dag_run": dag_run, "outlet_events": {operator.asset: accessor}}
    started(operator, lines)
    try:
        with stored_events(request.events):
            operator.execute(context)
    except AirflowSkipException as e:
        return Ended(state="skipped", reason=str(e), event=None, log=lines)
    except AirflowFailException as e:
        return Ended(state="failed", reason=str(e), event=None, log=lines)
    except Exception as e:
        return Ended(state="up_for_retry", reason=f"{type(e).__name__}: {e}", event=None, log=lines)
    return Ended(state="success", reason="", event=accessor.extra, log=lines, events=accessor.added)


def begin(request: AttemptRequest, environment: Mapping[str, str]) -> subprocess.Popen[str]:
    """Run one attempt in a process of its own."""
    command = [sys.executable, "-m", "tests.airflow.attempt", json.dumps(asdict(request))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})


def kill(process: subprocess.Popen[str]) -> None:
    """As a machine that is missing does: without a word."""
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=SECONDS)


def killed_in_its_second_slice(request: AttemptRequest, folder: Path, environment: Mapping[str, str]) -> AttemptRequest:
    """An attempt that dies when one slice is done; return the request of the next attempt."""
    folder.mkdir()
    gate = Gate(folder, request.landing["name"])
    gate.let_pass(0)
    process = begin(replace(request, gate=str(gate.base)), environment)
    try:
        gate.await_begun(1, by=process)
    finally:
        kill(process)
        gate.let_pass()
    return replace(request, number=request.number + 1)


def _main(text: str) -> None:
    request = AttemptRequest(**json.loads(text))
    if request.gate is not None:
        Gate(Path(request.gate)).put(pytest.MonkeyPatch())
    print(json.dumps(asdict(attempt(request))))


if __name__ == "__main__":
    _main(sys.argv[1])
