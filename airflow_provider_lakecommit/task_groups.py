# SPDX-License-Identifier: Apache-2.0
"""A landing, or a landing set, as one group of tasks.

Of a landing: plan, a mapped write task per partition group (and one more for each replica), commit, outcome. Of a set:
one plan for all of its landings, a few write tasks by load, commit, outcome; the next run lands new topics by itself.

There is no stall sensor before the plan: a plan that must not add to a stall is empty by itself, and it fixes the cause
of a failed commit, like a missing table.

Contract: the group's only leaf is `outcome`, so tasks after the group run when something was published, and the state
of the run is the landing's. Parsing a DAG reads nothing and imports only Airflow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup, TriggerRule

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators import (
    MAP_INDEX_TEMPLATE,
    LakeCommitOperator,
    OutcomeOperator,
    PlanWindowOperator,
    WriteWindowOperator,
    declared_of,
    mapping_of,
    refuse_unknown,
    task_doc,
)


class KafkaToIcebergTaskGroup(TaskGroup):
    """Land new records, once per run: ``plan >> write (mapped) >> commit >> outcome``.

    :param group_id: id of the group
    :param landing: the landing or the landing set, or the path of its YAML spec
    :param spark_conn_id: connection of type `spark`
    :param spark_conf: Spark settings for the write jobs
    :param tasks: of a set: most write tasks, 4 by default; they share the groups of all landings
    :param replica_queues: Airflow queues of the landing's replicas, one for each in addition to the original, so that
        other workers run them; by default all are in the queue of the original
    :param max_active_groups: most write tasks of one run at a time; all by default
    :param hourly: of a landing: also send asset events with partition keys, one for each hour that is complete in the
        tables (asset ``hourly_asset_of(landing)``)
    :param kwargs: as for any task group; ``default_args`` has the common arguments of its tasks (retries, pool, …)

    .. seealso:: :doc:`/start/airflow`, :doc:`/guides/many_topics`
    """

    def __init__(
        self,
        group_id: str,
        *,
        landing: Landing | LandingSet | str | Path,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        tasks: int | None = None,
        replica_queues: Sequence[str] = (),
        max_active_groups: int | None = None,
        hourly: bool = False,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(KafkaToIcebergTaskGroup, kwargs, group_id)
        declared, stated = declared_of(landing), mapping_of(spark_conf)
        if max_active_groups is not None and not (isinstance(max_active_groups, int) and max_active_groups >= 1):
            raise SpecError(
                "LC8706", f"max_active_groups={max_active_groups!r}: use a number of at least 1, or None for all"
            )
        replicas = 1 if isinstance(declared, LandingSet) else declared.window.replicas
        if replica_queues and len(replica_queues) != replicas - 1:
            raise SpecError(
                "LC8707",
                f"landing {declared.name!r} has {replicas} replicas, but replica_queues names "
                f"{len(replica_queues)} queues: name one for each replica, without the original",
            )
        super().__init__(group_id=group_id, **{"tooltip": _tooltip(declared), **kwargs})
        with self:
            plan = PlanWindowOperator(task_id="plan", landing=declared, tasks=tasks)
            write, *others = (
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
                for number in range(replicas)
            )
            # Stated here, because a trigger rule in `default_args` would keep runs from being closed and evaluated.
            commit = LakeCommitOperator(
                task_id="commit",
                landing=declared,
                plan_task_id=plan.task_id,
                trigger_rule=TriggerRule.ALL_DONE,
                hourly=hourly,
            )
            outcome = OutcomeOperator(
                task_id="outcome",
                landing=declared,
                trigger_rule=TriggerRule.ALL_DONE,
                plan_task_id=plan.task_id,
                write_task_id=write.task_id,
                replica_task_ids=[replica.task_id for replica in others],
                commit_task_id=commit.task_id,
            )
            [write, *others] >> commit >> outcome
        self.landing = declared


def _tooltip(landing: Landing | LandingSet) -> str:
    if isinstance(landing, LandingSet):
        return f"landing set {landing.name}"
    return f"{', '.join(landing.topic_names)} → {', '.join(landing.data_tables)}"
