# SPDX-License-Identifier: Apache-2.0
"""What the newest plan task of a landing told of its window, by Airflow's own database.

Contract: reads only: the XComs that :class:`~airflow_provider_lakecommit.operators.plan.PlanWindowOperator` leaves, of
DAGs that the user may read, of the newest :data:`MOST` plans. Tasks that land alone leave none: they plan many windows,
and tell of each in their log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from sqlalchemy import and_, select
from sqlalchemy.orm import aliased

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["ExplainedPlan", "newest_plan"]

MOST = 50
MOST_LINES = 200
WINDOW, EXPLAIN = "window", "explain"
PLAN = "PlanWindowOperator"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPlan:
    """One plan task, and its lines."""

    dag: str
    run: str
    task: str
    at: datetime | None
    lines: tuple[str, ...]


def newest_plan(session: Session, landing: str, dags: Collection[str]) -> ExplainedPlan | None:
    """The newest plan of a landing that told something.

    :param dags: in which it is looked for
    """
    ti, told, window = TaskInstance, XComModel, aliased(XComModel)
    same = ("dag_id", "run_id", "task_id", "map_index")
    query = (
        select(ti.dag_id, ti.run_id, ti.task_id, ti.start_date, told.value, window.value)
        .join(told, and_(told.key == EXPLAIN, *(getattr(told, n) == getattr(ti, n) for n in same)))
        .join(window, and_(window.key == WINDOW, *(getattr(window, n) == getattr(ti, n) for n in same)))
        .where(ti.operator == PLAN, ti.dag_id.in_(dags))
        .order_by(ti.start_date.desc())
        .limit(MOST)
    )
    for dag, run, task, at, lines, planned in session.execute(query):
        if isinstance(planned, Mapping) and planned.get("landing") == landing and isinstance(lines, list) and lines:
            texts = tuple(str(line) for line in lines[:MOST_LINES])
            return ExplainedPlan(dag=dag, run=run, task=task, at=at, lines=texts)
    return None
