# SPDX-License-Identifier: Apache-2.0
"""Keep the tables of a landing small, beside the runs that land: compact small files, expire old snapshots, remove the
files that nothing needs, then check the tables.

It needs `kafka_default` and `iceberg_default`.
"""

from __future__ import annotations

from datetime import datetime

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.maintenance import MaintainTableOperator
from airflow_provider_lakecommit.operators.verify import VerifyOperator

orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

# [START howto_operator_maintenance]
with DAG(
    "example_lakecommit_maintenance",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    maintain = MaintainTableOperator(
        task_id="maintain", landing=orders, snapshots_older_than="30d", keep_snapshots=100, files_older_than="3d"
    )
    verify = VerifyOperator(task_id="verify", landing=orders)
    maintain >> verify
# [END howto_operator_maintenance]
