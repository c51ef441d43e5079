# SPDX-License-Identifier: Apache-2.0
"""A real Airflow of one directory: its own home, database (SQLite), users and ports, on 127.0.0.1 only.

Contract: :meth:`Airflow.start` returns when scheduler, Dag processor and API server say that they are healthy. The
parts run one by one instead of `airflow standalone`, which leaves workers behind when it ends. Connections come from
the environment, so nothing has to be written to the database first; or from the database, where people see and change
them.

The password and the keys are random, made once per home, and in a file for the owner's eyes only.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from dev.airflow_client import AirflowClient
from dev.paths import CHECKOUT
from dev.processes import ChildError, Children, Process, kill_all
from dev.servers.server import free_port

MIGRATE_SECONDS = 600.0
READY_SECONDS = 600.0
LOOK_SECONDS = 0.2
ERROR_LENGTH = 500
USER = "admin"
DAGS_FOLDER = CHECKOUT / "dags"
REFRESH_SECONDS = 30
"""How often Airflow looks for new files there."""
PARTS = ("api-server", "scheduler", "dag-processor")
WITH_TRIGGERER = (*PARTS, "triggerer")
LOG_SERVERS = ("scheduler", "triggerer")
"""Parts that would serve logs to API servers of other machines, on every address of this one. Ours reads the files."""


class Airflow:
    """One Airflow home and its processes, which are children of *children*.

    :param connections: id of a connection to its fields, as in Airflow's JSON form
    :param settings: further environment of all parts
    :param visible: have the connections in the database, and so in the user interface
    :param path: below which all of it is, as behind a proxy: ``/airflow``
    """

    def __init__(
        self,
        home: Path,
        children: Children,
        *,
        connections: Mapping[str, Mapping[str, object]],
        settings: Mapping[str, str],
        deployment: str,
        port: int | None = None,
        parts: tuple[str, ...] = PARTS,
        visible: bool = False,
        path: str = "",
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self._children = children
        self._parts = parts
        self._kept = _kept(home, port)
        self._path = path
        self._visible = connections if visible else {}
        hidden = {} if visible else connections
        self._environment = {
            **_inherited(),
            **_settings(home, self._kept, self.url),
            "AIRFLOW__LAKECOMMIT__DEPLOYMENT_ID": deployment,
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in hidden.items()},
            **settings,
        }

    @property
    def url(self) -> str:
        """Where the user interface is."""
        return f"http://127.0.0.1:{self._kept['port']}{self._path}"

    @property
    def password(self) -> str:
        """Of the user `admin`."""
        return str(self._kept["password"])

    @property
    def environment(self) -> dict[str, str]:
        """What a command of this Airflow must run with."""
        return dict(self._environment)

    @property
    def database(self) -> Path:
        """The metadata database."""
        return self.home / "airflow.db"

    @property
    def is_running(self) -> bool:
        """Whether all its processes live."""
        return all(self._children.pid(part) is not None for part in self._parts)

    @property
    def client(self) -> AirflowClient:
        """Its REST interface."""
        return AirflowClient(self.url, USER, self.password)

    def migrate(self) -> None:
        """Make or upgrade the metadata database."""
        self._children.run(
            "airflow-migrate", _airflow("db", "migrate"), env=self._environment, cwd=self.home, timeout=MIGRATE_SECONDS
        )

    def start(self) -> None:
        """Start what does not run, and wait until all is healthy."""
        for part in self._parts:
            if self._children.pid(part) is None:
                local = ["--skip-serve-logs"] if part in LOG_SERVERS else []
                self._children.start(part, _airflow(part, *local), env=self._environment, cwd=self.home)
        self._await_health()
        if self._visible:
            self.client.put_connections(self._visible)

    def kill(self, part: str, *, alone: bool = False) -> list[Process]:
        """SIGKILL for a part and all that it runs, as when its machine is gone, or for it alone; returns what it ran.
        :meth:`start` starts it again.
        """
        pid, family = self._children.pid(part), self._children.family(part)
        kill_all(p for p in family if p.pid == pid or not alone)
        while self._children.pid(part) is not None:
            time.sleep(LOOK_SECONDS)
        return [p for p in family if p.pid != pid]

    def _await_health(self) -> None:
        client, told = self.client, "no answer"
        deadline = time.monotonic() + READY_SECONDS
        while time.monotonic() < deadline:
            self._children.expect_alive(*self._parts)
            told = client.health(self._parts)
            if told == "healthy":
                return
            time.sleep(LOOK_SECONDS)
        raise ChildError(
            f"Airflow at {self.url} is not healthy after {READY_SECONDS:.0f} s ({told}); {self._children.logs}"
        )


def task_errors(logs: Path) -> list[str]:
    """What tasks failed with, oldest first, from their logs: one JSON object a line."""
    paths = sorted(logs.rglob("attempt=*.log"), key=lambda p: p.stat().st_mtime)
    return [text for path in paths for line in path.read_text(errors="replace").splitlines() for text in _errors(line)]


def _errors(line: str) -> list[str]:
    try:
        said = json.loads(line)
    except ValueError:
        return []
    if not isinstance(said, dict) or said.get("level") != "error":
        return []
    where = f"{said.get('run_id', '')} {said.get('task_id', '')}".strip()
    # Of a chain of causes only the last is the task's own word; what was the output of a process is in the log.
    return [
        f"{where}: {e.get('exc_type')}: {e.get('exc_value')}"[:ERROR_LENGTH] for e in said.get("error_detail", [])[:1]
    ]


def _airflow(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _inherited() -> dict[str, str]:
    """Our environment without another Airflow's settings, with our Python's programs first on the search path."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "SPARK_", "PYTHONPATH"))}
    kept["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    return kept


def _settings(home: Path, kept: Mapping[str, str | int], url: str) -> dict[str, str]:
    scratch = home / "tmp"
    scratch.mkdir(exist_ok=True)
    return {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS_FOLDER),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__FERNET_KEY": str(kept["fernet_key"]),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
        # The tasks' own way to the API server follows its port only when told so.
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "AIRFLOW__API__BASE_URL": url,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(kept["port"]),
        "AIRFLOW__API__WORKERS": "1",
        # The first task on a busy machine waits longer than the 5 s after which Airflow would fail it without a word.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__API__SECRET_KEY": str(kept["secret_key"]),
        "AIRFLOW__API_AUTH__JWT_SECRET": str(kept["jwt_secret"]),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home / "logs"),
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(kept["worker_log_port"]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(kept["trigger_log_port"]),
        # By default a run waits a second between any two of its stages.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.1",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": str(REFRESH_SECONDS),
        # What a killed Spark leaves behind goes with the directory.
        "TMPDIR": str(scratch),
        "SPARK_LOCAL_DIRS": str(scratch),
        "SPARK_SUBMIT_OPTS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} -Djava.io.tmpdir={scratch}".lstrip(),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _kept(home: Path, port: int | None) -> dict[str, str | int]:
    """Ports and keys of a home: chosen once, so that a restart finds its sessions and its address again."""
    path = home / "keys.json"
    if path.exists():
        kept: dict[str, str | int] = json.loads(path.read_text())
    else:
        kept = {
            "port": free_port(),
            "worker_log_port": free_port(),
            "trigger_log_port": free_port(),
            "password": secrets.token_urlsafe(9),
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "secret_key": secrets.token_urlsafe(24),
            "jwt_secret": secrets.token_urlsafe(48),
        }
    kept["port"] = port or kept["port"]
    _write_private(path, kept)
    _write_private(home / "passwords.json", {USER: kept["password"]})
    return kept


def _write_private(path: Path, values: Mapping[str, str | int]) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(values, file)
