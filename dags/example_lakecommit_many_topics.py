# SPDX-License-Identifier: Apache-2.0
"""Land all topics of a shop by one declaration, each into a table of its own, every five minutes.

Needs the connections `kafka_default`, `iceberg_default` and `spark_default`. New topics are landed by the run after
they came; tables that are missing are made by what their topics hold.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# [START howto_task_group_landing_set]
from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

shop = LandingSet(
    name="shop",
    topics_pattern=r"shop\.(?P<what>.*)",
    table="shop.{what}",
    dead_letter_table="{table}_dead",
    missing_table="create",
)

with DAG(
    "example_lakecommit_many_topics",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    KafkaToIcebergTaskGroup("land", landing=shop, tasks=4)  # plan -> write (by load) -> commit -> outcome
# [END howto_task_group_landing_set]
