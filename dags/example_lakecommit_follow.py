# SPDX-License-Identifier: Apache-2.0
"""A topic that is landed as records come: one task after the other follows it, each for a quarter of an hour.

The next run begins while the one before it still follows, and takes over from it without a pause. A deployment that is
restarted, a pause or a new release takes effect at the end of a window at the latest, and no task lives long enough to
be forgotten. When a run begins late, the one before it follows for ten minutes more. Needs the connections
`kafka_default`, `iceberg_default` and `spark_connect_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator

PAYMENTS = Landing(
    name="payments",
    topics="payments",
    table="shop.payments",
    dead_letter_table="shop.payments_dead",
    create={"schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]},
)

with DAG(
    "example_lakecommit_follow",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    # [START howto_operator_follow]
    KafkaToIcebergOperator(
        task_id="follow",
        landing=PAYMENTS,
        spark_conn_id="spark_connect_default",
        follow_for=timedelta(minutes=25),
        window_age=timedelta(seconds=2),
        execution_timeout=timedelta(minutes=30),
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
    # [END howto_operator_follow]
