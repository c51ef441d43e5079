# SPDX-License-Identifier: Apache-2.0
"""A scheduler with a LocalExecutor loads the landings' libraries before it forks the processes that run tasks.

Contract: Airflow calls :func:`on_starting` once in each of its components, in a scheduler before its executors start.
:func:`~.preload.preload` runs only there, only with a LocalExecutor and only while `[lakecommit] preload` is on; all
tasks then share the libraries' memory, and a run of a landing saves their imports. Processes of Celery or Kubernetes
are forked from something else, and load for themselves.

Failure story: Airflow logs exceptions raised here and continues; tasks import what they need, a little later.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from airflow.listeners import hookimpl

from airflow_provider_lakecommit.preload import preload


@hookimpl
def on_starting(component: object) -> None:
    """Load the libraries if tasks will be forked here.

    :param component: the starting component; its role is known only from the command line
    """
    del component
    from airflow.configuration import conf

    if conf.getboolean("lakecommit", "preload") and forks_tasks(sys.argv, conf.get("core", "executor")):
        preload()


def forks_tasks(command: Sequence[str], executors: str) -> bool:
    """Return True if this process will fork those that run tasks.

    :param command: the command of the process, for example ``["/usr/bin/airflow", "scheduler"]``
    :param executors: as in `[core] executor`: one or several, each perhaps with a team and a name of its own
    """
    return "scheduler" in command[1:2] and "LocalExecutor" in executors
