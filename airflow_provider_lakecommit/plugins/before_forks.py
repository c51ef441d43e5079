# SPDX-License-Identifier: Apache-2.0
"""A scheduler with a LocalExecutor loads the landings' libraries before it forks the processes that run tasks.

Contract: Airflow calls :func:`on_starting` once in each of its components, in a scheduler before its executors start.
Only there, only with a LocalExecutor and only while `[lakecommit] preload` is on, :func:`~.preload.preload` runs; all
tasks then share the libraries' memory, and a run of a landing is shorter by their imports. Processes that Celery or
Kubernetes starts are forked from something else, and load for themselves.

Failure story: what this raises Airflow logs and goes on without it; tasks import what they need, a little later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from airflow.listeners import hookimpl

from airflow_provider_lakecommit.preload import preload

__all__ = ["forks_tasks", "on_starting"]


@hookimpl
def on_starting(component: object) -> None:
    """Load the libraries where tasks will be forked.

    :param component: what starts; it does not know yet what it will be, the command line does
    """
    del component
    from airflow.configuration import conf

    if conf.getboolean("lakecommit", "preload") and forks_tasks(sys.argv, conf.get("core", "executor")):
        preload()


def forks_tasks(command: Sequence[str], executors: str) -> bool:
    """Whether this process will fork those that run tasks.

    :param command: the process's own, such as ``["/usr/bin/airflow", "scheduler"]``
    :param executors: as in `[core] executor`: one or several, each perhaps with a team and a name of its own
    """
    return "scheduler" in command[1:2] and "LocalExecutor" in executors
