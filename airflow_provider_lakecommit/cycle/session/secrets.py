# SPDX-License-Identifier: Apache-2.0
"""The tasks' connection settings for brokers and storage, made when the jobs begin.

Contract: the catalog is asked only for tables with their own storage properties at planning time; these are loaded
again, because keys expire between a plan and its jobs. So a catalog that hands out no keys may be unavailable while a
window is written. A job gets only the storage of the tables that it writes.

Failure story: an unavailable catalog that must hand out keys is a :class:`CatalogError`, and so are keys that are about
to expire: no job is begun that could only fail. The next attempt asks again. If it handed out only other settings, such
as a region, the tasks use those of the connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg import Tables, TableStorage, clock
from airflow_provider_lakecommit.spark import Secrets, WindowJob

LEAST_SECONDS = 60.0
"""Least seconds of validity of keys for a job to begin."""


def vended_of(tables: Tables, names: Iterable[str]) -> dict[str, bool]:
    """Return which of these tables had storage properties of their own when the catalog last returned them, and whether
    keys were among them; it is not asked again.
    """
    known = ((name, tables.known_storage(name)) for name in names)
    return {name: storage.has_keys for name, storage in known if storage is not None and storage.handed_out}


def secrets_for(
    tables: Tables, kafka: Mapping[str, Any], jobs: Iterable[WindowJob], *, log: Callable[[str], None]
) -> Secrets:
    """Return connection settings for these jobs, as fresh as this call.

    :param log: takes lines about missing settings
    :raises CatalogError: the catalog is unavailable, or its keys are about to expire
    :raises TableError: a table is missing
    """
    written = ((name, job.plan.vended) for job in jobs for s in job.plan.slices for name in s.tables)
    needed = {name: vended[name] for name, vended in written if name in vended}
    storage = {}
    for name, with_keys in sorted(needed.items()):
        try:
            storage[name] = storage_for(tables, name, time.time())
        except CatalogError as e:
            if with_keys:
                raise
            log(f"table {name} is written with only the storage properties of the connection: {e}")
    return Secrets(kafka=kafka, io=tables.io_properties(), tables=storage)


def storage_for(tables: Tables, name: str, now: float) -> TableStorage:
    """Return the storage of a table as its catalog hands it out now.

    :raises CatalogError: the catalog is unavailable, or its keys are about to expire
    :raises TableError: the table is missing
    """
    storage = tables.storage(name)
    left = storage.left(now)
    if left is not None and left < LEAST_SECONDS:
        raise CatalogError(
            "LC6222",
            f"catalog {tables.name} hands out storage credentials of table {name} that expire at {clock(now + left)}, "
            f"in {left:.0f} s: a job needs at least {LEAST_SECONDS:.0f} s. The next attempt asks again; have "
            "the catalog hand out credentials that last as long as a window takes to write, and check that its clock "
            "and the local one agree",
        )
    return storage
