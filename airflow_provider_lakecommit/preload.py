# SPDX-License-Identifier: Apache-2.0
"""Libraries loaded once, before tasks are forked: most of the time of a plan or a commit is the import of pyiceberg.

Contract: :func:`preload` runs in the process that forks tasks: automatically in a scheduler with a LocalExecutor (see
:mod:`~airflow_provider_lakecommit.plugins.before_forks`), elsewhere by a call, for example from
``airflow_local_settings.py`` of Celery workers. It opens nothing, starts no thread and imports nothing of Airflow, so
it may run while Airflow itself is being loaded, and forking after it is safe. Without it everything works the same,
about a second later per task.

Failure story: a failed import is left to the task that needs it, which reports it.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

MODULES = (
    "confluent_kafka.admin",
    "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.fsspec",
    "airflow_provider_lakecommit.cycle.commit.close",
    "airflow_provider_lakecommit.cycle.run.loop",
    "airflow_provider_lakecommit.cycle.plan.open",
    "airflow_provider_lakecommit.cycle.jobs.write",
    "airflow_provider_lakecommit.spark.launch.connect",
    "airflow_provider_lakecommit.spark.launch.connect_task",
)
"""The imports of a landing's tasks, and everything that those import."""


def preload() -> None:
    """Import :data:`MODULES`."""
    for name in MODULES:
        with suppress(ImportError):
            import_module(name)
