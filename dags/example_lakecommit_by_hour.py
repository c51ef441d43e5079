# SPDX-License-Identifier: Apache-2.0
"""A DAG that runs once for each hour that the tables have whole, with the hour as its partition key.

The landing sends these events with ``hourly=True``. DAGs that want every snapshot follow the landing's own asset.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# [START howto_asset_by_hour]
from airflow.sdk import DAG, PartitionedAssetTimetable, task

from airflow_provider_lakecommit.assets import hourly_asset_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

clicks = Landing(
    name="clicks_by_hour",
    topics="clicks",
    table="web.clicks_by_hour",
    dead_letter_table="web.clicks_by_hour_dead",
    create={
        "schema": [
            {"name": "id", "type": "long", "required": True},
            {"name": "page", "type": "string"},
            {"name": "clicked_at", "type": "timestamptz"},
        ],
        "partition_by": ["hour(clicked_at)"],
    },
)

with DAG(
    "example_lakecommit_land_by_hour",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    KafkaToIcebergTaskGroup("land", landing=clicks, hourly=True)

with DAG(
    "example_lakecommit_by_hour",
    schedule=PartitionedAssetTimetable(assets=hourly_asset_of(clicks)),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):

    @task
    def sum_up_the_hour(*, partition_key: str | None = None) -> str:
        """Everything of this hour is in the table."""
        print(f"clicks of the hour that began at {partition_key}")
        return str(partition_key)

    sum_up_the_hour()
# [END howto_asset_by_hour]
