# SPDX-License-Identifier: Apache-2.0
"""A landing as one group of tasks: plan, a mapped write task per partition group (and one more for each replica),
commit, outcome.

There is no stall sensor before the plan: a plan that must not add to a stall is empty by itself, and it mends what a
commit fails of, like a table that is not there.

Contract: the group's only leaf is `outcome`, so what follows the group runs when something was published, and the state
of the run is the landing's. Nothing is read or imported beyond Airflow when the DAG is parsed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup, TriggerRule

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import landing_of, task_doc
from airflow_provider_lakecommit.operators.commit import LakeCommitOperator
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.plan import PlanWindowOperator
from airflow_provider_lakecommit.operators.write import MAP_INDEX_TEMPLATE, WriteWindowOperator
from airflow_provider_lakecommit.tasks.arguments import mapping_of, refuse_unknown

__all__ = ["KafkaToIcebergTaskGroup"]


class KafkaToIcebergTaskGroup(TaskGroup):
    """Land what is new, once per run: ``plan >> write (one per partition group) >> commit >> outcome``.

    :param group_id: id of the group
    :param landing: the landing, or the path of its YAML spec
    :param spark_conn_id: connection of type `spark`
    :param spark_conf: Spark settings for the write jobs
    :param replica_queues: Airflow queues of the landing's replicas, one for each beside the original, so that other
        workers do them; by default all are in the queue of the original
    :param max_active_groups: how many write tasks of one run may run at a time; all by default
    :param hourly: send asset events with partition keys too, one for each hour that the tables have whole (asset
        ``hourly_asset_of(landing)``)
    :param kwargs: as for any task group; ``default_args`` holds what all of its tasks share (retries, pool, …)

    .. seealso:: :doc:`/howto/land_a_topic`
    """

    def __init__(
        self,
        group_id: str,
        *,
        landing: Landing | str | Path,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        replica_queues: Sequence[str] = (),
        max_active_groups: int | None = None,
        hourly: bool = False,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(KafkaToIcebergTaskGroup, kwargs, group_id)
        declared, stated = landing_of(landing), mapping_of(spark_conf)
        if max_active_groups is not None and not (isinstance(max_active_groups, int) and max_active_groups >= 1):
            raise SpecError(f"max_active_groups={max_active_groups!r}: a number of at least 1, or None for all")
        if replica_queues and len(replica_queues) != declared.replicas - 1:
            raise SpecError(
                f"landing {declared.name!r} has {declared.replicas} replicas, and replica_queues names "
                f"{len(replica_queues)} queues: name one for each beside the original"
            )
        super().__init__(group_id=group_id, **{"tooltip": _tooltip(declared), **kwargs})
        with self:
            plan = PlanWindowOperator(task_id="plan", landing=declared)
            write, *replicas = (
                WriteWindowOperator.partial(
                    task_id=f"write_replica_{number}" if number else "write",
                    landing=declared,
                    doc_md=task_doc(WriteWindowOperator, declared),
                    spark_conn_id=spark_conn_id,
                    spark_conf=dict(stated) if stated else spark_conf or None,
                    map_index_template=MAP_INDEX_TEMPLATE,
                    max_active_tis_per_dagrun=max_active_groups,
                    **({"replica": number} if number else {}),
                    **({"queue": replica_queues[number - 1]} if number and replica_queues else {}),
                ).expand(group=plan.output)
                for number in range(declared.replicas)
            )
            # Said here, so that a trigger rule in `default_args` cannot keep a run from being closed and judged.
            commit = LakeCommitOperator(
                task_id="commit",
                landing=declared,
                plan_task_id=plan.task_id,
                trigger_rule=TriggerRule.ALL_DONE,
                hourly=hourly,
            )
            outcome = OutcomeOperator(
                task_id="outcome",
                trigger_rule=TriggerRule.ALL_DONE,
                plan_task_id=plan.task_id,
                write_task_id=write.task_id,
                replica_task_ids=[replica.task_id for replica in replicas],
                commit_task_id=commit.task_id,
            )
            [write, *replicas] >> commit >> outcome
        self.landing = declared


def _tooltip(landing: Landing) -> str:
    return f"{', '.join(landing.topic_names)} → {', '.join(landing.data_tables)}"
