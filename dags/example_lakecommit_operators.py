# SPDX-License-Identifier: Apache-2.0
"""The operators of a landing without a task group: its steps one by one, or all of them in one task.

In the first DAG a check runs between writing and committing. The commit and outcome tasks still run whatever became of
the tasks before them. The second lands small topics by one task each, on a warm Spark Connect server: a task lands
until it is caught up, which takes seconds. The third lands records as they come, one run after the other for a quarter
of an hour. The next run begins while the one before it still reads, and takes over without a pause; when it begins
late, the one before it goes on for ten minutes more.

They need the connections `kafka_default`, `iceberg_default`, `spark_default` and `spark_connect_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.landing import Landing, Window
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import MAP_INDEX_TEMPLATE, WriteWindowOperator

payments = Landing(
    name="payments",
    topics=["payments-eu", "payments-us"],
    table="shop.payments",
    dead_letter_table="shop.payments_dead",
    timestamps={"paid_at": "epoch_millis"},
    window=Window(groups=4),
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
        landing=payments,
        plan_task_id=plan.task_id,
        write_task_id=write.task_id,
        commit_task_id=commit.task_id,
    )
    # [END howto_operator_outcome]

    report(write.output) >> commit >> outcome
    write >> commit

ID_AND_NAME = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]}
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

trades = Landing(
    name="trades", topics="trades", table="shop.trades", dead_letter_table="shop.trades_dead", create=ID_AND_NAME
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
        landing=trades,
        spark_conn_id="spark_connect_default",
        follow_for=timedelta(minutes=25),
        window_age=timedelta(seconds=2),
        execution_timeout=timedelta(minutes=30),
        retries=2,
        retry_delay=timedelta(seconds=10),
    )
    # [END howto_operator_follow]
