# SPDX-License-Identifier: Apache-2.0
"""DAGs that run when a landing has published something: never without a snapshot, never for an idle run.

The first runs for every snapshot. The event names the snapshot to read, so a consumer sees exactly what it was started
for, however late it runs. The last runs once for each hour that the tables have complete, with the hour as its
partition key; the landing of the second sends these events with ``hourly=True``.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, PartitionedAssetTimetable, task

from airflow_provider_lakecommit.assets import asset_of, hourly_asset_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

# [START howto_asset_of_a_landing]
orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")
published = asset_of(orders)

with DAG(
    "example_lakecommit_downstream",
    schedule=[published],
    start_date=datetime(2026, 1, 1),
    catchup=False,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):

    @task
    def read_what_is_new(*, triggering_asset_events: Any = None) -> list[int]:
        """Snapshots that were published since the last run of this DAG."""
        events = triggering_asset_events[published]
        for event in events:
            print(f"snapshot {event.extra['snapshot_id']}: {event.extra['rows']} rows of {event.extra['offsets']}")
        return [event.extra["snapshot_id"] for event in events]

    read_what_is_new()
# [END howto_asset_of_a_landing]

# [START howto_asset_by_hour]
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
