# SPDX-License-Identifier: Apache-2.0
"""A landing set as one group of tasks: one plan for all of its landings, a few write tasks by load, commit, outcome.

Contract: that of :class:`~airflow_provider_lakecommit.task_groups.KafkaToIcebergTaskGroup`, for all landings at once.
Topics that come are landed by the next run, without a change of the DAG.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airflow.sdk import TaskGroup, TriggerRule

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.set_commit import CommitLandingSetOperator, LandingSetOutcomeOperator
from airflow_provider_lakecommit.operators.set_plan import PlanLandingSetOperator
from airflow_provider_lakecommit.operators.set_task import landing_set_of
from airflow_provider_lakecommit.operators.set_write import WriteLandingSetOperator
from airflow_provider_lakecommit.tasks.arguments import mapping_of, refuse_unknown

__all__ = ["LandingSetTaskGroup"]


class LandingSetTaskGroup(TaskGroup):
    """Land what is new of many topics, once per run: ``plan >> write (a few, by load) >> commit >> outcome``.

    :param group_id: id of the group
    :param landing_set: the set, or the path of its YAML spec
    :param spark_conn_id: connection of type `spark`
    :param spark_conf: Spark settings for the write jobs
    :param tasks: most write tasks; the groups of all landings are dealt out to them
    :param kwargs: as for any task group; ``default_args`` holds what all of its tasks share (retries, pool, …)

    .. seealso:: :doc:`/howto/many_topics`
    """

    def __init__(
        self,
        group_id: str,
        *,
        landing_set: LandingSet | str | Path,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        tasks: int = 4,
        **kwargs: Any,
    ) -> None:
        refuse_unknown(LandingSetTaskGroup, kwargs, group_id)
        declared, stated = landing_set_of(landing_set), mapping_of(spark_conf)
        if not (isinstance(tasks, int) and tasks >= 1):
            raise SpecError(f"tasks={tasks!r}: a number of at least 1")
        super().__init__(group_id=group_id, **kwargs)
        with self:
            plan = PlanLandingSetOperator(task_id="plan", landing_set=declared, tasks=tasks)
            write = WriteLandingSetOperator.partial(
                task_id="write",
                landing_set=declared,
                spark_conn_id=spark_conn_id,
                spark_conf=dict(stated) if stated else spark_conf or None,
                map_index_template="{{ task.bundle.label }}",
            ).expand(bundle=plan.output)
            commit = CommitLandingSetOperator(
                task_id="commit",
                landing_set=declared,
                plan_task_id=plan.task_id,
                trigger_rule=TriggerRule.ALL_DONE,
            )
            outcome = LandingSetOutcomeOperator(
                task_id="outcome",
                landing_set=declared,
                plan_task_id=plan.task_id,
                commit_task_id=commit.task_id,
                trigger_rule=TriggerRule.ALL_DONE,
            )
            write >> commit >> outcome
        self.landing_set = declared
