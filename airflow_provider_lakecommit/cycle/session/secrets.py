# SPDX-License-Identifier: Apache-2.0
"""What the tasks of window jobs are given to reach brokers and storage, made when the jobs begin.

Contract: the catalog is asked for nothing but tables with which it handed out storage properties when the window was
planned, as the plan says; these are loaded once more, because keys expire between a plan and its jobs. So where a
catalog hands out no keys, it may be away while a window is written. A job gets the storage of the tables that it
writes, and of no others.

Failure story: a catalog that is away and has to hand out keys is a :class:`CatalogError`, and so are keys that are
about to expire: no job is begun that could only fail. The next attempt asks again. Where it handed out other settings
only, such as a region, the tasks go on with those of the connection.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from airflow_provider_lakecommit.exceptions import CatalogError
from airflow_provider_lakecommit.iceberg import Tables, TableStorage, clock
from airflow_provider_lakecommit.spark import Secrets, WindowJob

__all__ = ["LEAST_SECONDS", "secrets_for", "storage_for", "vended_of"]

LEAST_SECONDS = 60.0
"""For how long keys must hold for a job to begin with them."""


def vended_of(tables: Tables, names: Iterable[str]) -> dict[str, bool]:
    """With which of these tables the catalog handed out storage properties when it was last asked for them, and whether
    keys were among them; it is not asked here.
    """
    known = ((name, tables.known_storage(name)) for name in names)
    return {name: storage.has_keys for name, storage in known if storage is not None and storage.handed_out}


def secrets_for(
    tables: Tables, kafka: Mapping[str, Any], jobs: Iterable[WindowJob], *, log: Callable[[str], None]
) -> Secrets:
    """Connection settings for these jobs, as fresh as this call.

    :param log: gets what the tasks have to do without
    :raises CatalogError: the catalog is away, or its keys are about to expire
    :raises TableError: a table is gone
    """
    written = ((name, job.plan.vended) for job in jobs for s in job.plan.slices for name in s.tables)
    wanted = {name: vended[name] for name, vended in written if name in vended}
    storage = {}
    for name, with_keys in sorted(wanted.items()):
        try:
            storage[name] = storage_for(tables, name, time.time())
        except CatalogError as e:
            if with_keys:
                raise
            log(f"table {name} is written with only the storage properties of the connection: {e}")
    return Secrets(kafka=kafka, io=tables.io_properties(), tables=storage)


def storage_for(tables: Tables, name: str, now: float) -> TableStorage:
    """The storage of a table as its catalog hands it out now.

    :raises CatalogError: the catalog is away, or the keys that it hands out are about to expire
    :raises TableError: the table is gone
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
