# SPDX-License-Identifier: Apache-2.0
"""Many small topics: one task per landing, on a warm Spark Connect server.

A task lands until it is caught up, which takes seconds: no Spark is started, and no other tasks have to be scheduled.
Needs the connections `kafka_default`, `iceberg_default` and `spark_connect_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator

ID_AND_NAME = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "name", "type": "string"},
    ]
}
LANDINGS = [
    Landing(name=topic, topics=topic, table=f"shop.{topic}", dead_letter_table=f"shop.{topic}_dead", create=ID_AND_NAME)
    for topic in ("brands", "customers", "stores")
]

with DAG(
    "example_lakecommit_small_topics",
    schedule=timedelta(minutes=1),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10), "execution_timeout": timedelta(minutes=10)},
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    for landing in LANDINGS:
        # [START howto_operator_kafka_to_iceberg]
        KafkaToIcebergOperator(
            task_id=f"land_{landing.name}", landing=landing, spark_conn_id="spark_connect_default", max_cycles=20
        )
        # [END howto_operator_kafka_to_iceberg]
