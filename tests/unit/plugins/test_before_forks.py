# SPDX-License-Identifier: Apache-2.0
"""Which Airflow processes load the libraries when they start: schedulers that fork tasks, and no other."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from airflow_provider_lakecommit.plugins.before_forks import forks_tasks

pytestmark = pytest.mark.airflow

PROGRAM = """
import json, os, sys
from multiprocessing import Pipe

from airflow.configuration import conf
from airflow.listeners.listener import get_listener_manager

manager = get_listener_manager()
found = ["pyiceberg" in sys.modules]
for command, executor, preload in json.loads(sys.argv[1]):
    here, there = Pipe()
    if os.fork() == 0:
        sys.argv = command
        conf.set("core", "executor", executor)
        conf.set("lakecommit", "preload", preload)
        manager.hook.on_starting(component=None)
        there.send("pyiceberg" in sys.modules)
        os._exit(0)
    found.append(here.recv())
    os.wait()
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("command", "executors", "expected"),
    [
        (["/usr/bin/airflow", "scheduler"], "LocalExecutor", True),
        (["/usr/bin/airflow", "scheduler", "--daemon"], "CeleryExecutor,LocalExecutor", True),
        (
            ["/site-packages/airflow/__main__.py", "scheduler"],
            "team=airflow.executors.local_executor.LocalExecutor",
            True,
        ),
        (["/usr/bin/airflow", "scheduler"], "CeleryExecutor", False),
        (["/usr/bin/airflow", "triggerer"], "LocalExecutor", False),
        (["/usr/bin/airflow", "dags", "scheduler"], "LocalExecutor", False),
        (["/usr/bin/airflow"], "LocalExecutor", False),
        ([], "LocalExecutor", False),
    ],
)
def test_who_forks_tasks(command: list[str], executors: str, expected: bool) -> None:
    assert forks_tasks(command, executors) is expected


@pytest.mark.heavy
def test_airflow_calls_it_by_itself_and_only_a_scheduler_that_forks_loads_the_libraries() -> None:
    scheduler, triggerer = ["airflow", "scheduler"], ["airflow", "triggerer"]
    cases = [
        (scheduler, "LocalExecutor", "True"),
        (scheduler, "LocalExecutor", "False"),
        (scheduler, "CeleryExecutor", "True"),
        (triggerer, "LocalExecutor", "True"),
    ]
    command = [sys.executable, "-c", PROGRAM, json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [False, True, False, False, False]
