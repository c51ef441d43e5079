# SPDX-License-Identifier: Apache-2.0
"""What needs a person's word, decided in Airflow: a task shows what would be done, a person approves it under *Required
Actions*, and a task does just that.

Nobody's word, no change: a rejected or expired request leaves everything as it is. Who decided, in which run and why is
kept in the tables' history. The last two DAGs ask nobody: one has what running windows have read published now, the
other checks the tables every night. All need `kafka_default` and `iceberg_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.dead_letters import ReplayDeadLettersOperator
from airflow_provider_lakecommit.operators.publish_now import PublishNowOperator
from airflow_provider_lakecommit.operators.reset import (
    ResetAttestOperator,
    ResetBlockedOperator,
    ResetHardOperator,
    ResetOffsetsOperator,
)
from airflow_provider_lakecommit.operators.verify import VerifyOperator

START = datetime(2026, 1, 1)
TAGS = ["example", "lakecommit"]
ASK = "{{ ti.xcom_pull(task_ids='look')['text'] }}"
orders = Landing(name="orders", topics="orders", table="shop.orders", dead_letter_table="shop.orders_dead")

# [START howto_operator_reset_blocked]
with DAG(
    "example_lakecommit_unblock",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={
        "how": Param(
            "raise", enum=["raise", "retry", "skip", "skip whole"], description="What becomes of blocked ones."
        ),
        "budget": Param("1000", type="string", description="Dead letters that a slice may have, as 500 or 500:0.2."),
    },
):
    how = {"how": "{{ params.how }}", "budget": "{{ params.budget }}"}
    look = ResetBlockedOperator(task_id="look", landing=orders, **how)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Unblock ranges of orders",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the tables' history.")},
        response_timeout=timedelta(days=1),
    )
    unblock = ResetBlockedOperator(
        task_id="unblock", landing=orders, **how, agreed=look.output, decided_by=approve.output
    )
    look >> approve >> unblock
# [END howto_operator_reset_blocked]

# [START howto_operator_reset_offsets]
with DAG(
    "example_lakecommit_ledger_init",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={"from": Param("latest", type="string", description="earliest, latest, or orders:0=1500,orders:1=0")},
):
    look = ResetOffsetsOperator(task_id="look", landing=orders, start="{{ params['from'] }}")
    approve = ApprovalOperator(task_id="approve", subject="Where the ledger of orders goes on", body=ASK)
    begin = ResetOffsetsOperator(
        task_id="begin",
        landing=orders,
        start="{{ params['from'] }}",
        agreed=look.output,
        decided_by=approve.output,
        reason="{{ dag_run.note or '' }}",
    )
    look >> approve >> begin
# [END howto_operator_reset_offsets]

# [START howto_operator_reset_attest]
with DAG(
    "example_lakecommit_ledger_attest",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={"snapshot": Param("", type="string", description="The snapshot whose ledger is right.")},
):
    look = ResetAttestOperator(task_id="look", landing=orders, snapshot_id="{{ params.snapshot }}")
    approve = ApprovalOperator(task_id="approve", subject="What the tables of orders hold", body=ASK)
    attest = ResetAttestOperator(
        task_id="attest",
        landing=orders,
        snapshot_id="{{ params.snapshot }}",
        agreed=look.output,
        decided_by=approve.output,
    )
    look >> approve >> attest
# [END howto_operator_reset_attest]

# [START howto_operator_reset_delete]
with DAG(
    "example_lakecommit_reset_delete",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={"from": Param("", type="string", description="orders:3=1500, or a time: rows from there on go.")},
):
    # The tables of this landing have metadata columns, which tell of each row of which record it is.
    look = ResetOffsetsOperator(task_id="look", landing=orders, start="{{ params['from'] }}", delete=True)
    approve = ApprovalOperator(task_id="approve", subject="Delete rows of orders, and read them again", body=ASK)
    delete = ResetOffsetsOperator(
        task_id="delete",
        landing=orders,
        start="{{ params['from'] }}",
        delete=True,
        agreed=look.output,
        decided_by=approve.output,
        reason="{{ dag_run.note or '' }}",
    )
    look >> approve >> delete
# [END howto_operator_reset_delete]

# [START howto_operator_reset_hard]
with DAG("example_lakecommit_reset_hard", schedule=None, start_date=START, doc_md=__doc__, tags=TAGS):
    look = ResetHardOperator(task_id="look", landing=orders)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Delete all rows of orders, and begin anew",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the tables' history.")},
        response_timeout=timedelta(days=1),
    )
    reset = ResetHardOperator(task_id="reset", landing=orders, agreed=look.output, decided_by=approve.output)
    look >> approve >> reset
# [END howto_operator_reset_hard]

# [START howto_operator_replay_dead_letters]
with DAG(
    "example_lakecommit_replay_dead_letters",
    schedule=None,
    start_date=START,
    doc_md=__doc__,
    tags=TAGS,
    params={"kinds": Param("", type="string", description="Only these, as wrong_value:id; all if empty.")},
):
    meant = {"kinds": "{{ params.kinds }}"}
    look = ReplayDeadLettersOperator(task_id="look", landing=orders, **meant)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Make rows of dead letters of orders",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the table's history.")},
        response_timeout=timedelta(days=1),
    )
    replay = ReplayDeadLettersOperator(
        task_id="replay", landing=orders, **meant, agreed=look.output, decided_by=approve.output
    )
    look >> approve >> replay
# [END howto_operator_replay_dead_letters]

# [START howto_operator_publish_now]
with DAG("example_lakecommit_publish_now", schedule=None, start_date=START, tags=TAGS):
    PublishNowOperator(task_id="publish_now", landing=orders)
# [END howto_operator_publish_now]

# [START howto_operator_verify]
with DAG("example_lakecommit_verify", schedule="@daily", start_date=START, catchup=False, tags=TAGS):
    VerifyOperator(task_id="verify", landing=orders)
# [END howto_operator_verify]
