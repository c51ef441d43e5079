# SPDX-License-Identifier: Apache-2.0
"""Libraries loaded once, before tasks are forked: most of what a plan or a commit takes is importing pyiceberg.

Contract: :func:`preload` runs in what forks tasks: by itself in a scheduler with a LocalExecutor (see
:mod:`~airflow_provider_lakecommit.plugins.before_forks`), elsewhere where somebody calls it, such as the
``airflow_local_settings.py`` of Celery workers. It opens nothing, starts no thread and imports nothing of Airflow, so
it may run while Airflow itself is being loaded, and forking after it is safe. Without it everything works the same,
later by that second per task.

Failure story: what cannot be imported is left to the task that needs it, which says so.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

__all__ = ["MODULES", "preload"]

MODULES = (
    "confluent_kafka.admin",
    "pyiceberg.catalog.rest",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.fsspec",
    "airflow_provider_lakecommit.cycle.commit.close",
    "airflow_provider_lakecommit.cycle.run.loop",
    "airflow_provider_lakecommit.cycle.plan.open",
    "airflow_provider_lakecommit.cycle.write.write",
    "airflow_provider_lakecommit.spark.launch.connect",
    "airflow_provider_lakecommit.spark.launch.connect_task",
)
"""What the tasks of a landing import, and all that those import."""


def preload() -> None:
    """Import :data:`MODULES`."""
    for name in MODULES:
        with suppress(ImportError):
            import_module(name)
