# SPDX-License-Identifier: Apache-2.0
"""A DAG that runs when a landing has published something: never without a snapshot, never for an idle run.

The event says which snapshot to read, so a consumer sees exactly what it was started for, however late it runs.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

# [START howto_asset_of_a_landing]
from airflow.sdk import DAG, task

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.landing import Landing

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
