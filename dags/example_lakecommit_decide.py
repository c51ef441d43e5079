# SPDX-License-Identifier: Apache-2.0
"""Operations that a user approves in Airflow: a task previews the change, a user approves it under *Required Actions*,
and a task does just that.

Without an approval nothing changes: a rejected or expired request leaves everything as it is. The user, the run and the
reason are kept in the tables' history. The last two DAGs need no approval: one publishes what open windows have read,
the other checks the tables every night. All need `kafka_default` and `iceberg_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
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
    look = LandingOperationOperator(task_id="look", landing=orders, operation="reset blocked", arguments=how)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Unblock ranges of orders",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the tables' history.")},
        response_timeout=timedelta(days=1),
    )
    unblock = LandingOperationOperator(
        task_id="unblock",
        landing=orders,
        operation="reset blocked",
        arguments=how,
        agreed=look.output,
        decided_by=approve.output,
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
    start = {"start": "{{ params['from'] }}"}
    look = LandingOperationOperator(task_id="look", landing=orders, operation="reset offsets", arguments=start)
    approve = ApprovalOperator(task_id="approve", subject="Where the ledger of orders continues", body=ASK)
    begin = LandingOperationOperator(
        task_id="begin",
        landing=orders,
        operation="reset offsets",
        arguments=start,
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
    snapshot = {"snapshot_id": "{{ params.snapshot }}"}
    look = LandingOperationOperator(task_id="look", landing=orders, operation="reset assert", arguments=snapshot)
    approve = ApprovalOperator(task_id="approve", subject="What the tables of orders hold", body=ASK)
    attest = LandingOperationOperator(
        task_id="attest",
        landing=orders,
        operation="reset assert",
        arguments=snapshot,
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
    # The tables of this landing have metadata columns, which tell for each row which record it is of.
    back = {"start": "{{ params['from'] }}", "delete": True}
    look = LandingOperationOperator(task_id="look", landing=orders, operation="reset offsets", arguments=back)
    approve = ApprovalOperator(task_id="approve", subject="Delete rows of orders, and read them again", body=ASK)
    delete = LandingOperationOperator(
        task_id="delete",
        landing=orders,
        operation="reset offsets",
        arguments=back,
        agreed=look.output,
        decided_by=approve.output,
        reason="{{ dag_run.note or '' }}",
    )
    look >> approve >> delete
# [END howto_operator_reset_delete]

# [START howto_operator_reset_hard]
with DAG("example_lakecommit_reset_hard", schedule=None, start_date=START, doc_md=__doc__, tags=TAGS):
    look = LandingOperationOperator(task_id="look", landing=orders, operation="reset hard")
    approve = ApprovalOperator(
        task_id="approve",
        subject="Delete all rows of orders, and begin anew",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the tables' history.")},
        response_timeout=timedelta(days=1),
    )
    reset = LandingOperationOperator(
        task_id="reset", landing=orders, operation="reset hard", agreed=look.output, decided_by=approve.output
    )
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
    kinds = {"kinds": "{{ params.kinds }}"}
    look = LandingOperationOperator(task_id="look", landing=orders, operation="dead-letters", arguments=kinds)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Replay dead letters of orders",
        body=ASK,
        params={"reason": Param("", type="string", description="Kept in the table's history.")},
        response_timeout=timedelta(days=1),
    )
    replay = LandingOperationOperator(
        task_id="replay",
        landing=orders,
        operation="dead-letters",
        arguments=kinds,
        agreed=look.output,
        decided_by=approve.output,
    )
    look >> approve >> replay
# [END howto_operator_replay_dead_letters]

# [START howto_operator_publish_now]
with DAG("example_lakecommit_publish_now", schedule=None, start_date=START, tags=TAGS):
    LandingOperationOperator(task_id="publish_now", landing=orders, operation="publish-now")
# [END howto_operator_publish_now]

# [START howto_operator_verify]
with DAG("example_lakecommit_verify", schedule="@daily", start_date=START, catchup=False, tags=TAGS):
    VerifyOperator(task_id="verify", landing=orders)
# [END howto_operator_verify]
