# SPDX-License-Identifier: Apache-2.0
"""Land several topics in one run, committed by one task."""

from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator

landings = [Landing(name=name, topics=name, table=f"shop.{name}") for name in ("orders", "returns")]

with DAG("several", schedule=timedelta(minutes=5), start_date=datetime(2026, 1, 1), catchup=False):
    plans = [PlanWindowOperator(task_id=f"plan_{each.name}", landing=each) for each in landings]
    writes = [
        WriteWindowOperator.partial(task_id=f"write_{each.name}", landing=each).expand(group=plan.output)
        for each, plan in zip(landings, plans, strict=True)
    ]
    commit = LakeCommitOperator(task_id="commit", landings=landings, plan_task_ids=[plan.task_id for plan in plans])
    writes >> commit
