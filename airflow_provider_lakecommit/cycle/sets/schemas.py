# SPDX-License-Identifier: Apache-2.0
"""Missing tables of a set without a stated schema: created from a sample of their topics.

Contract: only if the set has ``missing_table: create``, and only for a landing without ``create``. The sample is JSON;
every column is optional, since later records may lack it. An existing table is unchanged.

Failure story: topics without a record, or with records without columns, are a :class:`TableError` of that landing
alone: the next run samples again.
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

RECORDS = 1000
SECONDS = 10.0


def with_schema(declared: LandingSet, landing: Landing, kafka: Mapping[str, Any], tables: Tables) -> Landing:
    """Return the landing as it can make its table, if the table is missing.

    :raises TableError: its columns cannot be determined
    :raises CatalogError: the catalog is unavailable
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
