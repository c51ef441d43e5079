# SPDX-License-Identifier: Apache-2.0
"""A landing whose slices are done twice at once, by the workers of two Airflow queues: one that is slow, or gone, holds
nothing up.

A run is green when every group was done by one of the two; a task that failed stays red, to be looked into. Needs the
connections `kafka_default`, `iceberg_default` and `spark_connect_default`, and a worker of the queue `other_hall`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing, Window
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

TRADES = Landing(
    name="trades",
    topics="trades",
    table="shop.trades",
    dead_letter_table="shop.trades_dead",
    create={"schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]},
    window=Window(groups=2, replicas=2),
)

with DAG(
    "example_lakecommit_replicas",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    # [START howto_replicas]
    KafkaToIcebergTaskGroup(
        "land",
        landing=TRADES,
        spark_conn_id="spark_connect_default",
        replica_queues=["other_hall"],
        default_args={"execution_timeout": timedelta(minutes=10)},
    )
    # [END howto_replicas]
