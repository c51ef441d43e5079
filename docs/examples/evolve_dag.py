# SPDX-License-Identifier: Apache-2.0
"""A table that follows its topic: fields that come become columns, types that grow too narrow are widened.

Records that no such change makes fit stop the landing before a window is planned, instead of becoming dead letters: the
run says which column it is, and what the records have. Needs the connections `kafka_default`, `iceberg_default` and
`spark_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Columns, Landing
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup

# [START howto_evolve]
carts = Landing(
    name="carts",
    topics="carts",
    table="shop.carts",
    create={"schema": [{"name": "id", "type": "long", "required": True}]},
    evolve="widen",
    columns=Columns(on_incompatible="stop"),
)
# [END howto_evolve]

with DAG(
    "example_lakecommit_evolve",
    schedule=timedelta(minutes=5),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    KafkaToIcebergTaskGroup("land", landing=carts)
