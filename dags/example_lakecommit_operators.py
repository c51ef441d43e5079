# SPDX-License-Identifier: Apache-2.0
"""The operators of a landing one by one, for a DAG that needs something between the steps.

Here a check runs between writing and committing. The commit and outcome tasks still run whatever became of the tasks
before them.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import MAP_INDEX_TEMPLATE, WriteWindowOperator

payments = Landing(
    name="payments",
    topics=["payments-eu", "payments-us"],
    table="shop.payments",
    dead_letter_table="shop.payments_dead",
    timestamps={"paid_at": "epoch_millis"},
    groups=4,
)

with DAG(
    "example_lakecommit_operators",
    schedule=timedelta(minutes=15),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["example", "lakecommit"],
):
    # [START howto_operator_plan_window]
    plan = PlanWindowOperator(task_id="plan", landing=payments)
    # [END howto_operator_plan_window]

    # [START howto_operator_write_window]
    write = WriteWindowOperator.partial(
        task_id="write",
        landing=payments,
        spark_conn_id="spark_default",
        spark_conf={"spark.driver.memory": "2g"},
        map_index_template=MAP_INDEX_TEMPLATE,
    ).expand(group=plan.output)
    # [END howto_operator_write_window]

    @task
    def report(written: list[dict[str, object]]) -> None:
        """Runs when every group has written all of its slices."""
        for number, group in enumerate(written):
            print(f"write task {number}: {group['saved_records']} records in {group['done']} slices")

    # [START howto_operator_lake_commit]
    commit = LakeCommitOperator(task_id="commit", landing=payments, plan_task_id=plan.task_id)
    # [END howto_operator_lake_commit]

    # [START howto_operator_outcome]
    outcome = OutcomeOperator(
        task_id="outcome",
        plan_task_id=plan.task_id,
        write_task_id=write.task_id,
        commit_task_id=commit.task_id,
    )
    # [END howto_operator_outcome]

    report(write.output) >> commit >> outcome
    write >> commit
