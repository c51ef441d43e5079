# SPDX-License-Identifier: Apache-2.0
"""Makes the task instances and triggers of sensors that wait, as Airflow's API server does when a task defers.

Runs in the environment of the Airflow whose database it is: `python -m bench.sensors_rows FOLDER SENSORS GROUPS MOMENT
TOPIC…`. Through the scheduler two thousand tasks would take a quarter of an hour to defer. Unless the moment is 0, the
tasks wait for it in place of commits, by the least trigger that there can be.
"""

from __future__ import annotations

import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

DAG = """
from datetime import datetime

from airflow.sdk import DAG

from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor

with DAG("bench_sensors", schedule=None, start_date=datetime(2026, 1, 1), catchup=False):
    for number, topic in enumerate({topics!r}):
        StalledCommitSensor.partial(task_id=f"guard_{{number}}", control_topic=topic, on_stall="wait").expand(
            control_group_id={groups!r}
        )
"""


def main(folder: Path, sensors: int, groups: int, moment: float, topics: list[str]) -> None:
    """Write the DAG, make a run of it, defer all of its tasks."""
    names = [f"connect-{n % groups}" for n in range(sensors // len(topics))]
    (folder / "bench_sensors.py").write_text(DAG.format(topics=topics, groups=names))
    subprocess.run([sys.executable, "-m", "airflow", "dags", "reserialize"], check=True)
    _defer(names, topics, moment)


def _defer(names: list[str], topics: list[str], moment: float) -> None:
    from airflow.models.dagbag import DBDagBag
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.triggers.base import BaseTrigger
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState, TaskInstanceState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType
    from sqlalchemy import select

    from airflow_provider_lakecommit.stall.guard import Guard
    from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger, guard_to_json
    from bench.sensors_floor import MomentTrigger

    def trigger_of(ti: TaskInstance) -> BaseTrigger:
        if moment:
            return MomentTrigger(moment)
        return StalledCommitTrigger(
            control_topic=topics[int(ti.task_id.removeprefix("guard_"))],
            control_group_id=names[ti.map_index],
            guard=guard_to_json(Guard()),
            deadline=time.time() + 86400.0,
            jitter=3.0,
        )

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag("bench_sensors", session=session)
        from airflow._shared.timezones import timezone

        now = timezone.utcnow()
        dag.create_dagrun(
            run_id="bench",
            run_after=now,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )
        session.flush()
        tasks = session.scalars(select(TaskInstance).where(TaskInstance.dag_id == "bench_sensors")).all()
        for ti in tasks:
            trigger = Trigger.from_object(trigger_of(ti))
            session.add(trigger)
            session.flush()
            ti.state, ti.trigger_id, ti.start_date, ti.try_number = TaskInstanceState.DEFERRED, trigger.id, now, 1
            ti.next_method, ti.next_kwargs = "execute_complete", {}
            ti.trigger_timeout = now + timedelta(days=1)
    print(f"{len(tasks)} tasks wait")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
