# SPDX-License-Identifier: Apache-2.0
"""Land the topic `orders` every five minutes, in whatever environment this file is."""

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

NAMESPACE = os.environ.get("SHOP_NAMESPACE", "shop")

orders = Landing(
    name="orders",
    topics="orders",
    table=f"{NAMESPACE}.orders",
    dead_letter_table=f"{NAMESPACE}.orders_dead",
    timestamps={"ts": "epoch_millis"},
)

with DAG(
    "orders",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
):
    KafkaToIcebergTaskGroup("land", landing=orders)
