# SPDX-License-Identifier: Apache-2.0
"""The StalledCommitSensors that hold a run, or have skipped or failed it recently, from Airflow's database.

The guarded group is in the XCom of the sensor's check; a sensor without a check holds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.models.taskinstance import TaskInstance
from airflow.models.xcom import XComModel
from airflow.utils.state import TaskInstanceState
from sqlalchemy import and_, or_, select

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MOST = 1000
PAST = timedelta(hours=24)
SENSOR = "StalledCommitSensor"
RULING = "commits"
WAITING = (TaskInstanceState.DEFERRED, TaskInstanceState.UP_FOR_RESCHEDULE)
ENDED = (TaskInstanceState.SKIPPED, TaskInstanceState.FAILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSensor:
    """One task instance, and its report on the guarded group."""

    dag: str
    run: str
    task: str
    map_index: int
    state: str
    since: datetime | None
    group: str
    control_topic: str
    reason: str

    @property
    def waits(self) -> bool:
        return self.state in WAITING


def waiting_sensors(session: Session) -> tuple[HeldSensor, ...]:
    ti, xcom = TaskInstance, XComModel
    recently = and_(ti.state.in_(ENDED), ti.end_date >= datetime.now(UTC) - PAST)
    same = [getattr(xcom, name) == getattr(ti, name) for name in ("dag_id", "run_id", "task_id", "map_index")]
    query = (
        select(ti.dag_id, ti.run_id, ti.task_id, ti.map_index, ti.state, ti.start_date, xcom.value)
        .join(xcom, and_(xcom.key == RULING, *same))
        .where(ti.operator == SENSOR, or_(ti.state.in_(WAITING), recently))
        .order_by(ti.start_date.desc())
        .limit(MOST)
    )
    found = (_sensor(row) for row in session.execute(query))
    return tuple(s for s in found if s is not None)


def _sensor(row: Any) -> HeldSensor | None:
    dag, run, task, map_index, state, since, value = row
    if not isinstance(value, Mapping) or value.get("answer") == "go":
        return None
    texts = {name: str(value.get(name) or "") for name in ("group", "control_topic", "reason")}
    return HeldSensor(dag=dag, run=run, task=task, map_index=map_index, state=str(state), since=since, **texts)
