# SPDX-License-Identifier: Apache-2.0
"""Tables of a set that are not there and whose schema nobody stated: made by what a sample of their topics holds.

Contract: only where the set says ``missing_table: create``, and only for a landing without ``create``. What was sampled
is JSON; every column is optional, as a record that lacks it may come tomorrow. A table that is there is left as it is.

Failure story: topics without a record, or whose records tell no column, are :class:`TableError` of that landing alone:
the next run looks again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.formats import sample_values
from airflow_provider_lakecommit.formats.infer import infer
from airflow_provider_lakecommit.iceberg import Tables
from airflow_provider_lakecommit.kafka.sample import sample
from airflow_provider_lakecommit.landing import Landing, LandingSet

__all__ = ["with_schema"]

RECORDS = 1000
SECONDS = 10.0


def with_schema(declared: LandingSet, landing: Landing, kafka: Mapping[str, Any], tables: Tables) -> Landing:
    """The landing as it can make its table, if that has to be made.

    :raises TableError: nobody can say what it is to look like
    :raises CatalogError: the catalog is away
    """
    stated = declared.missing_table != "create" or landing.create is not None
    if stated or tables.find(landing.table) is not None:
        return landing
    found = sample_values(sample(kafka, landing.topic_names, RECORDS, seconds=SECONDS))
    columns = [c for c in infer(found) if c.type is not None]
    if not columns:
        raise TableError(
            "LC6231",
            f"there is no table {landing.table}, and {found.values} records of {', '.join(landing.topic_names)} show "
            "no columns: it is created once there are records that do; or state `create` in `defaults` or `overrides`",
        )
    return replace(landing, create={"schema": [{"name": c.name, "type": c.type} for c in columns]})
