# SPDX-License-Identifier: Apache-2.0
"""Whether a run must fail although no outcome task follows its commit.

Contract: Airflow shows a run as successful if its last tasks succeeded or were skipped, and a commit task that
published nothing ends skipped. With an outcome task downstream, that task decides instead.

Failure story: if Airflow does not report the states of the upstream tasks, incomplete windows still count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core import FAILED
from airflow_provider_lakecommit.operators.base import FAILURE
from airflow_provider_lakecommit.operators.outcome import OutcomeOperator
from airflow_provider_lakecommit.operators.write import WriteWindowOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from airflow_provider_lakecommit.cycle import Closed

ADVICE = "an OutcomeOperator after the commit task would show this in the state of the run"


def has_outcome_task(task: BaseOperator) -> bool:
    """Return True if an outcome task after the commit task decides the state of the run."""
    dag = task.get_dag()
    return dag is not None and any(
        isinstance(dag.task_dict.get(name), OutcomeOperator) for name in task.get_flat_relative_ids(upstream=False)
    )


def why_red(task: BaseOperator, ti: Any, closed: Closed) -> str:
    """Return what needs attention in a run without an outcome task, the cause first; empty if all is well."""
    if has_outcome_task(task):
        return ""
    return "; ".join(dict.fromkeys([*_unwritten(task, closed), *closed.causes, *_failed(task, ti), *_lacking(closed)]))


def _unwritten(task: BaseOperator, closed: Closed) -> list[str]:
    """Return a finding if no task before the commit could write anything."""
    dag = task.get_dag()
    if dag is None or not closed.missing:
        return []
    before = [dag.task_dict[name] for name in task.get_flat_relative_ids(upstream=True)]
    if any(issubclass(_class_of(each), WriteWindowOperator) for each in before):
        return []
    return [
        f"no WriteWindowOperator is upstream of task {task.task_id}, so nothing of the window was read: expand one "
        "over the groups of the plan task, `WriteWindowOperator.partial(…).expand(group=plan.output)`, and set it "
        "before this task"
    ]


def _class_of(task: Any) -> type:
    """Return the operator class, also of a mapped task."""
    mapped = getattr(task, "operator_class", None)
    return mapped if isinstance(mapped, type) else type(task)


def _lacking(closed: Closed) -> list[str]:
    """Return what the cycle lacks; a range that was blocked in this run is named by the cause already."""
    from airflow_provider_lakecommit.cycle import first_of

    lacks = [
        f"{len(closed.missing)} slices must be read again, the first {closed.missing[0]}" if closed.missing else "",
        f"{first_of(closed.blocked)} blocked" if closed.blocked and not closed.causes else "",
        closed.stopped,
    ]
    return list(filter(None, lacks))


def _failed(task: BaseOperator, ti: Any) -> list[str]:
    """Return the tasks before the commit that failed, with their errors if known."""
    before = sorted(task.get_flat_relative_ids(upstream=True))
    if not before:
        return []
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=before, run_ids=[ti.run_id]).get(ti.run_id, {})
    return [f"{_error(ti, name, before)}task {name} ended {state}" for name, state in states.items() if state in FAILED]


def _error(ti: Any, name: str, tasks: Sequence[str]) -> str:
    """Return the error of a task; Airflow names a mapped task by its id and map index."""
    own, _, index = name.rpartition("_")
    task, number = (own, int(index)) if own in tasks and index.isdigit() else (name, -1)
    found = ti.xcom_pull(task_ids=task, key=FAILURE, map_indexes=number)
    return f"{found}; " if found else ""
