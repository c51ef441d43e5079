# SPDX-License-Identifier: Apache-2.0
"""DAGs that act on a landing, from Airflow's own store of parsed DAGs.

A DAG offers an action if all its tasks of this provider do that and nothing else (`VerifyOperator`, or
`LandingOperationOperator` of `publish-now` or of `reset blocked` that may retry; sensors do not count), so a user who
requests a check never decides what becomes of records. Unknown forms of DAGs offer none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagModel
from sqlalchemy import select

from airflow_provider_lakecommit.core import PUBLISH_NOW, RESET_BLOCKED, spoken
from airflow_provider_lakecommit.page.stored_dags import OTHER_FORM, StoredDags, tasks_in

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

OURS = "airflow_provider_lakecommit."
RETRY = "retry"
VERIFY = "VerifyOperator"
OPERATION = "LandingOperationOperator"
KINDS = {spoken(PUBLISH_NOW): "publish_now", spoken(RESET_BLOCKED): "retry_blocked"}
"""Actions by the operation of the task."""
BYSTANDER = "StalledCommitSensor"
"""A task that changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The effect of a run of a DAG on a landing. ``conf`` triggers the run; ``asks``: a user must approve it first."""

    kind: str
    landing: str
    dag: str
    conf: Mapping[str, str] = field(default_factory=dict)
    asks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDag:
    """A parsed DAG: whether it is paused, and the effect of its runs, if it offers an action."""

    paused: bool
    operations: tuple[Operation, ...] = ()


def operations_in(dag: str, stored: Any) -> tuple[Operation, ...]:
    """Return the operations of Airflow's JSON of a DAG."""
    try:
        tasks = list(tasks_in(stored))
        params = dict(stored["dag"].get("params", []))
        ours = [t for t in tasks if str(t.get("_task_module", "")).startswith(OURS) and t["task_type"] != BYSTANDER]
        kinds, confs = {_kind(t) for t in ours}, [_conf(t, params) for t in ours]
        asks = any(t["task_type"] in ("ApprovalOperator", "HITLOperator", "HITLBranchOperator") for t in tasks)
    except OTHER_FORM:
        return ()
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None or (kind == "retry_blocked" and None in confs):
        return ()
    # Each task by its own param, if they differ.
    conf = {name: value for one in confs for name, value in (one or {}).items()}
    # The landing of a task may be unknown before it runs.
    landings = dict.fromkeys(name for t in ours if isinstance(name := t.get("landing_name"), str))
    return tuple(Operation(kind=kind, landing=name, dag=dag, conf=conf, asks=asks) for name in landings)


def _kind(task: Mapping[str, Any]) -> str | None:
    """Return the action that a task does; ``None`` for none."""
    if task["task_type"] == VERIFY:
        return "verify"
    return KINDS.get(str(task.get("operation"))) if task["task_type"] == OPERATION else None


def _conf(task: Mapping[str, Any], params: Mapping[str, Mapping[str, Any]]) -> dict[str, str] | None:
    """Return the conf of a run whose task reads blocked ranges again; ``None``: it does not."""
    arguments = task.get("arguments")
    how = arguments.get("how") if isinstance(arguments, Mapping) else None
    if how == RETRY:
        return {}
    name = _choice(str(how or ""), params)
    return None if name is None else {name: RETRY}


def _choice(how: str, params: Mapping[str, Mapping[str, Any]]) -> str | None:
    """Return the param that selects how, if it may be :data:`RETRY`."""
    for name, param in params.items():
        text = how.replace(" ", "").replace('"', "'")
        if text in (f"{{{{params.{name}}}}}", f"{{{{params['{name}']}}}}"):
            schema = param.get("schema", {})
            allowed = schema.get("__var", schema).get("enum")
            return name if allowed is None or RETRY in allowed else None
    return None


class OperationQuery:
    def __init__(self) -> None:
        self._stored = StoredDags(operations_in)

    def __call__(self, session: Session) -> dict[str, KnownDag]:
        found = self._stored(session)
        paused = {dag: off for dag, off in session.execute(select(DagModel.dag_id, DagModel.is_paused))}  # noqa: C416
        return {
            dag: KnownDag(paused=paused.get(dag, False), operations=operations) for dag, operations in found.items()
        }
