# SPDX-License-Identifier: Apache-2.0
"""Land a Kafka topic in an Iceberg table every five minutes, exactly once.

Needs the connections `kafka_default`, `iceberg_default` and `spark_default`, and the table `shop.orders`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

# [START howto_task_group_kafka_to_iceberg]
from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

with DAG(
    "example_lakecommit_basic",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    KafkaToIcebergTaskGroup("land", landing=orders)  # plan -> write (mapped) -> commit -> outcome
# [END howto_task_group_kafka_to_iceberg]
