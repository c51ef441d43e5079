# SPDX-License-Identifier: Apache-2.0
"""What tests of whole DAG runs share: a DAG file of their own, its connections, and what a run left behind."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

DAG_FILE = """
import datetime

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

landing = Landing.from_flat({landing!r})

with DAG({dag!r}, **{dag_options!r}) as dag:
    KafkaToIcebergTaskGroup("land", landing=landing, **{options!r})

with DAG(
    {dag!r} + "_downstream",
    schedule=[asset_of(landing)],
    start_date=datetime.datetime(2026, 1, 1),
    catchup=False,
):

    @task
    def follow(*, triggering_asset_events=None):
        return [event.extra for event in triggering_asset_events[asset_of(landing)]]

    follow()
"""

CREATE = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "note", "type": "string"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """The catalog of a test and the rows in it, as an independent reader sees them."""

    properties: dict[str, str]

    def open(self) -> Catalog:
        return load_catalog(**self.properties)

    def ids(self, table: str) -> list[int]:
        """The column `id` of a table, sorted."""
        found = self.open().load_table(table).scan(selected_fields=("id",)).to_arrow()
        return sorted(found.column("id").to_pylist())

    def count(self, table: str) -> int:
        return int(self.open().load_table(table).scan().count())

    def head(self, table: str) -> int:
        """Newest snapshot of a table."""
        snapshot = self.open().load_table(table).current_snapshot()
        if snapshot is None:
            raise LookupError(f"{table} has no snapshot")
        return snapshot.snapshot_id


ARMED = """
from tests.airflow.faults import arm

arm(dag, landing.name)
"""

UNSCHEDULED = {"schedule": None, "start_date": datetime.datetime(2026, 1, 1), "catchup": False}


def write_dag(
    folder: Path,
    dag: str,
    landing: dict[str, Any],
    *,
    dag_options: Mapping[str, Any] | None = None,
    armed: bool = False,
    **options: Any,
) -> Path:
    """A DAG file with a landing and a DAG that follows its asset.

    :param dag_options: of the landing's DAG, over those of one that is only triggered
    :param armed: its tasks can be held and killed: see :mod:`tests.airflow.faults`
    :param options: of the task group
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{dag}.py"
    values = {**UNSCHEDULED, **(dag_options or {})}
    # In one step: the DAG processor never reads half a file.
    made = path.with_suffix(".new")
    made.write_text(
        DAG_FILE.format(dag=dag, landing=landing, options=options, dag_options=values) + (ARMED if armed else "")
    )
    made.replace(path)
    return path


def connections(bootstrap: str, lake: Lake, master: str = "local[2]") -> dict[str, dict[str, Any]]:
    """The three connections of a landing."""
    return {
        "kafka_default": {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}},
        "iceberg_default": {"conn_type": "iceberg", "extra": lake.properties},
        "spark_default": {"conn_type": "spark", "host": master},
    }


def bundles(folder: Path) -> str:
    """Configuration that makes a folder the only place of DAGs."""
    bundle = {
        "name": "test",
        "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
        "kwargs": {"path": str(folder)},
    }
    return json.dumps([bundle])
