# SPDX-License-Identifier: Apache-2.0
"""The few questions that the local stack asks Airflow's REST interface, and what a user does by its buttons.

Failure story: a question that met a locked database is asked again; any other answer that is no success is an
:class:`AirflowAnswerError` with what Airflow said; a Dag that does not appear is one with the import error of its file.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

ANSWER_SECONDS = 240.0
LOOK_SECONDS = 0.2
FINISHED = frozenset({"success", "failed"})
WATCHED = frozenset({"scheduler", "dag-processor"})
"""Parts whose health Airflow tells, and that every one needs which has them."""
BUSY, TRIES = '"Database error"', 5
"""What Airflow says of a SQLite database that stayed locked; it has changed nothing then."""


class AirflowAnswerError(RuntimeError):
    """Airflow refused, or did not do in time what it was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskState:
    """One task instance of a run."""

    task: str
    map_index: int
    state: str | None


class AirflowClient:
    """A logged-in client; logs in at its first question."""

    def __init__(self, url: str, user: str, password: str) -> None:
        self._url = url
        self._login = {"username": user, "password": password}
        self._token: str | None = None

    def health(self, parts: Collection[str] = ("scheduler", "dag-processor")) -> str:
        """`healthy`, or what of these parts is not."""
        try:
            told = self._send("GET", "/api/v2/monitor/health", None)
        except (OSError, AirflowAnswerError) as error:
            return str(error)
        wanted = ("metadatabase", *(part.replace("-", "_") for part in parts if part in WATCHED))
        sick = [name for name in wanted if (told.get(name) or {}).get("status") != "healthy"]
        return f"not healthy: {', '.join(sick)}" if sick else "healthy"

    def await_dag(self, dag: str, timeout: float) -> None:
        """Wait until a Dag is parsed, and let its runs go.

        :raises AirflowAnswerError: it does not appear
        """
        deadline = time.monotonic() + timeout
        while not any(d["dag_id"] == dag for d in self._ask("GET", f"/dags?dag_id_pattern={dag}")["dags"]):
            errors = self._ask("GET", "/importErrors")["import_errors"]
            if time.monotonic() > deadline or errors:
                told = "; ".join(f"{e['filename']}: {e['stack_trace'].strip().splitlines()[-1]}" for e in errors)
                raise AirflowAnswerError(f"the Dag {dag} did not appear: {told or f'not parsed in {timeout:.0f} s'}")
            time.sleep(LOOK_SECONDS)
        self._ask("PATCH", f"/dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, run: str) -> None:
        """Start a run under an id of our own."""
        self._ask("POST", f"/dags/{dag}/dagRuns", {"dag_run_id": run, "logical_date": None})

    def run(self, dag: str, run: str) -> dict[str, Any]:
        """All that Airflow tells of a run."""
        return self._ask("GET", f"/dags/{dag}/dagRuns/{run}")

    def told(self, path: str) -> dict[str, Any]:
        """What Airflow answers to any other question."""
        return self._ask("GET", path)

    def page(self, path: str) -> dict[str, Any]:
        """What an application of a plugin answers to a path below Airflow's address."""
        _ = self.token
        return self._send("GET", path, None)

    def run_state(self, dag: str, run: str) -> str:
        """State of a run."""
        return str(self.run(dag, run)["state"])

    def await_run(self, dag: str, run: str, timeout: float, meanwhile: Callable[[], None] = lambda: None) -> str:
        """Wait for the end of a run and tell its state.

        :param meanwhile: is called between two looks
        :raises AirflowAnswerError: no end in time
        """
        deadline = time.monotonic() + timeout
        while (state := self.run_state(dag, run)) not in FINISHED:
            if time.monotonic() > deadline:
                tasks = ", ".join(f"{t.task}={t.state}" for t in self.tasks(dag, run))
                raise AirflowAnswerError(f"run {run} of {dag} did not end in {timeout:.0f} s: {state} ({tasks})")
            meanwhile()
            time.sleep(LOOK_SECONDS)
        return state

    def tasks(self, dag: str, run: str) -> list[TaskState]:
        """The task instances of a run."""
        told = self._ask("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return [TaskState(task=t["task_id"], map_index=t["map_index"], state=t["state"]) for t in told]

    def seconds(self, dag: str, run: str) -> dict[str, float]:
        """How long the tasks of a run took."""
        told = self._ask("GET", f"/dags/{dag}/dagRuns/{run}/taskInstances")["task_instances"]
        return {t["task_id"]: float(t["duration"] or 0.0) for t in told}

    # -- the buttons --------------------------------------------------------------------------------------------------

    def clear(self, dag: str, run: str, *tasks: str) -> None:
        """Clear tasks of a run and all that follow them, or the whole run."""
        wanted: dict[str, Any] = {"task_ids": list(tasks), "include_downstream": True} if tasks else {}
        body = {"dry_run": False, "dag_run_id": run, "only_failed": False, "reset_dag_runs": True, **wanted}
        self._ask("POST", f"/dags/{dag}/clearTaskInstances", body)

    def mark_run(self, dag: str, run: str, state: str) -> None:
        """Mark success or failed: all of its tasks end so."""
        self._ask("PATCH", f"/dags/{dag}/dagRuns/{run}", {"state": state})

    def mark_task(self, dag: str, run: str, task: str, state: str) -> None:
        """Mark a task success or failed; a mapped one as ``task/index``."""
        self._ask("PATCH", f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}", {"new_state": state})

    def answer(self, dag: str, run: str, task: str, option: str, given: Mapping[str, object]) -> None:
        """Answer what a task of a run asks a user under *Required Actions*."""
        body = {"chosen_options": [option], "params_input": given}
        self._ask("PATCH", f"/dags/{dag}/dagRuns/{run}/taskInstances/{task}/-1/hitlDetails", body)

    def delete_run(self, dag: str, run: str) -> None:
        """Delete a run that is not running."""
        self._ask("DELETE", f"/dags/{dag}/dagRuns/{run}")

    def pause(self, dag: str, *, paused: bool) -> None:
        """Pause a Dag, or let its runs go on."""
        self._ask("PATCH", f"/dags/{dag}", {"is_paused": paused})

    def make_pool(self, name: str, slots: int) -> None:
        """A pool for so many tasks at once."""
        self._ask("POST", "/pools", {"name": name, "slots": slots})

    def put_connections(self, connections: Mapping[str, Mapping[str, object]]) -> None:
        """Have these connections, in place of any of their ids."""
        entities = [
            {**fields, "connection_id": name, "extra": json.dumps(fields["extra"]) if "extra" in fields else None}
            for name, fields in connections.items()
        ]
        action = {"action": "create", "entities": entities, "action_on_existence": "overwrite"}
        told = self._ask("PATCH", "/connections", {"actions": [action]})
        if errors := (told.get("create") or {}).get("errors"):
            raise AirflowAnswerError(f"connections: {errors}")

    def backfill(self, dag: str, first: str, last: str, again: str = "none") -> int:
        """Run a Dag for past dates.

        :param again: what is done for dates that have a run: `none`, `failed` or `completed` are run again
        """
        body = {"dag_id": dag, "from_date": first, "to_date": last, "reprocess_behavior": again, "max_active_runs": 4}
        return int(self._ask("POST", "/backfills", body)["id"])

    def backfill_ended(self, backfill: int) -> bool:
        """Whether the scheduler has noticed its end: until then there can be no other of the same Dag."""
        return self._ask("GET", f"/backfills/{backfill}")["completed_at"] is not None

    def runs(self, dag: str) -> dict[str, str]:
        """All runs of a Dag, oldest first, with their states."""
        told = self._ask("GET", f"/dags/{dag}/dagRuns?limit=100&order_by=run_after")["dag_runs"]
        return {r["dag_run_id"]: r["state"] for r in told}

    @property
    def token(self) -> str:
        """By which it is logged in."""
        if self._token is None:
            self._token = str(self._send("POST", "/auth/token", self._login)["access_token"])
        return self._token

    def _ask(self, verb: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        _ = self.token
        tries = TRIES
        while True:
            try:
                return self._send(verb, f"/api/v2{path}", body)
            except AirflowAnswerError as error:
                tries -= 1
                if BUSY not in str(error) or not tries:
                    raise
            time.sleep(LOOK_SECONDS)

    def _send(self, verb: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._url}{path}", data=data, method=verb)
        request.add_header("Content-Type", "application/json")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
                told: dict[str, Any] = json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")[:500]
            raise AirflowAnswerError(f"{verb} {path}: {error.code} {said}") from error
        return told
