# SPDX-License-Identifier: Apache-2.0
"""The outcome task: the only leaf of a landing's tasks, so its state is the state of the run.

Contract: reads how the other tasks of the run ended and the result of the commit task, lets
:mod:`airflow_provider_lakecommit.core.outcome` decide, and ends accordingly. It does no work, so it needs no retry.
Airflow shows a run as successful if its last tasks succeeded or were skipped, and a commit task that published nothing
ends skipped. So without an outcome task downstream, the commit task decides (:func:`why_red`).

Failure story: if Airflow does not report the states of the upstream tasks, incomplete windows still count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.core import FAILED as FAILED_STATES
from airflow_provider_lakecommit.core import Commit, Ended, Verdict, decide, outcome_line
from airflow_provider_lakecommit.hooks import note_run
from airflow_provider_lakecommit.landing import Landing, LandingSet, meant
from airflow_provider_lakecommit.operators.base import CLOSED, FAILURE, LANDED, LandingTask
from airflow_provider_lakecommit.operators.plan import FAILED
from airflow_provider_lakecommit.operators.targets import named_failures
from airflow_provider_lakecommit.operators.write import WriteWindowOperator
from airflow_provider_lakecommit.telemetry import RUNS, Sample
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context

    from airflow_provider_lakecommit.cycle import Closed

__all__ = ["ADVICE", "ENDS", "OutcomeOperator", "end_set", "has_outcome_task", "outcome_of", "why_red"]

ENDS = "ends"
"""XCom key of the commit of a set: the end of each landing."""
ADVICE = "an OutcomeOperator after the commit task would show this in the state of the run"


class OutcomeOperator(LandingTask):
    """End as the run did: success, skipped with the reason, or failed; of a set with every failed landing named.

    :param landing: the landing or the landing set, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param write_task_id: full id of the mapped write task
    :param replica_task_ids: those of its replicas: a group has not failed if one of them, or it, has succeeded
    :param commit_task_id: full id of the commit task
    :param trigger_rule: `all_done`: it runs in every run

    .. seealso:: :ref:`howto/operator:OutcomeOperator`
    """

    takes_sets: ClassVar[bool] = True
    template_fields: Sequence[str] = ("ended", "outcome")
    template_fields_renderers: ClassVar[dict[str, str]] = {"ended": "json"}
    overwrite_rtif_after_execution = True
    ui_color = "#ececec"

    def __init__(
        self,
        *,
        landing: Landing | LandingSet | str | Path,
        plan_task_id: str,
        write_task_id: str,
        commit_task_id: str,
        replica_task_ids: Sequence[str] = (),
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, trigger_rule=trigger_rule, **kwargs)
        self.plan_task_id = plan_task_id
        self.write_task_id = write_task_id
        self.commit_task_id = commit_task_id
        self.replica_task_ids = list(replica_task_ids)
        self.ended: dict[str, Any] | None = None
        self.outcome: str | None = None

    def execute(self, context: Context) -> str:
        """Decide, and end accordingly."""
        if wrong := self._strange_tasks():
            raise AirflowFailException(f"{wrong}: without it the outcome of the run is unknown")
        if self.landing_set is not None:
            return self._end_set(context["ti"])
        ended = self._ended(context)
        verdict, reason = decide(ended)
        self.ended = {
            "plan": ended.plan,
            "groups": {str(group): state for group, state in ended.groups.items()},
            "commit": ended.commit,
            "published": list(ended.closed.published) if ended.closed else [],
        }
        self.outcome = f"{verdict}: {reason}"
        self._report(context["ti"], verdict, reason)
        if verdict == "skipped":
            raise AirflowSkipException(reason)
        if verdict == "failed":
            raise AirflowFailException(reason)
        self.log.info("%s", reason)
        return reason

    def _report(self, ti: Any, verdict: Verdict, reason: str) -> None:
        landed = ti.xcom_pull(task_ids=self.commit_task_id, key=LANDED, map_indexes=-1) or {}
        name = self.landing_name
        note_run(ti, name, outcome_line(verdict, reason, landed.get(name, "")))
        send([Sample(RUNS, 1, (name, verdict))])

    def _end_set(self, ti: Any) -> str:
        ends = ti.xcom_pull(task_ids=self.commit_task_id, key=ENDS, map_indexes=-1)
        unplanned = ti.xcom_pull(task_ids=self.plan_task_id, key=FAILED, map_indexes=-1)
        if ends is None or unplanned is None:
            raise AirflowFailException("the plan or commit task of this run did not finish: see their logs")
        verdict, text = end_set(ti, self.landing_name, ends, unplanned, self.log)
        self.outcome = f"{verdict}: {text}"
        if verdict == "failed":
            raise AirflowFailException(text)
        if verdict == "skipped":
            raise AirflowSkipException(text)
        self.log.info("%s", text)
        return text

    def _strange_tasks(self) -> str:
        """Return the task ids that the DAG does not have; Airflow gives no state for them, as for future tasks."""
        dag, arguments = self.get_dag(), ("plan_task_id", "write_task_id", "commit_task_id")
        known = () if dag is None else dag.task_ids
        named = [(name, getattr(self, name)) for name in arguments]
        named += [("replica_task_ids", name) for name in self.replica_task_ids]
        strange = [(name, value) for name, value in named if value not in known]
        return "; ".join(f"{name}={value!r} is no task of its DAG{meant(value, known)}" for name, value in strange)

    def _ended(self, context: Context) -> Ended:
        ti = context["ti"]
        tasks = [self.plan_task_id, self.write_task_id, *self.replica_task_ids, self.commit_task_id]
        states = ti.get_task_states(dag_id=ti.dag_id, task_ids=tasks, run_ids=[ti.run_id]).get(ti.run_id, {})
        payload = ti.xcom_pull(task_ids=self.commit_task_id, key=CLOSED, map_indexes=-1) or {FAILURE: ""}
        plan = states.get(self.plan_task_id)
        unplanned = ti.xcom_pull(task_ids=self.plan_task_id, key=FAILURE, map_indexes=-1) if plan == "failed" else None
        groups = _best([_groups(states, task) for task in (self.write_task_id, *self.replica_task_ids)])
        return Ended(
            plan=plan,
            groups=groups,
            commit=states.get(self.commit_task_id),
            closed=None if FAILURE in payload else Commit.from_dict(payload),
            failure=payload.get(FAILURE, ""),
            unplanned=unplanned or "",
            unwritten=self._unwritten(ti, groups),
        )

    def _unwritten(self, ti: Any, groups: Mapping[int, str | None]) -> str:
        """Return why the first group failed, if its task left a reason."""
        failed = min((group for group, state in groups.items() if state == "failed"), default=None)
        if failed is None:
            return ""
        return ti.xcom_pull(task_ids=self.write_task_id, key=FAILURE, map_indexes=failed) or ""


def outcome_of(closed: Closed) -> tuple[Verdict, str]:
    """Return the verdict and the reason of a run whose cycles were closed by one task."""
    return decide(Ended(plan="success", groups={}, commit="success", closed=Commit.from_dict(closed.to_dict())))


def end_set(
    ti: Any, name: str, ends: Mapping[str, Sequence[str]], unplanned: Mapping[str, str], log: Any
) -> tuple[str, str]:
    """Report the outcome of a set's run in the note of the run, by metrics and in the log.

    :param ends: verdict and reason of each landing with a cycle
    :param unplanned: earlier failures, by landing or topics
    :return: the verdict of the run, and the reason
    """
    failed = {**unplanned, **{each: why for each, (verdict, why) in ends.items() if verdict == "failed"}}
    landed = [each for each, (verdict, _) in ends.items() if verdict == "success"]
    text = f"{len(landed)} of {len(ends)} landings with a cycle published something; "
    text += f"{len(failed)} failed: {named_failures(failed)}" if failed else "none failed"
    note_run(ti, name, text)
    send(Sample(RUNS, 1, (each, verdict)) for each, (verdict, _) in ends.items())
    send(Sample(RUNS, 1, (each, "failed")) for each in unplanned if each not in ends)
    for each, why in failed.items():
        log.error("%s: %s", each, why)
    return ("failed" if failed else "success" if landed else "skipped"), text


def _best(replicas: Sequence[Mapping[int, str | None]]) -> dict[int, str | None]:
    """Return the states of the groups: a write task succeeds when its complete group is reported, by any replica. So
    one success decides for the group; without one the state of the original does.
    """
    original = replicas[0]
    done = {group for states in replicas for group, state in states.items() if state == "success"}
    return {group: "success" if group in done else state for group, state in original.items()}


def _groups(states: Mapping[str, str | None], task_id: str) -> dict[int, str | None]:
    """Return the states of the mapped tasks by map index; one that never expanded is number 0."""
    found = {
        name.removeprefix(f"{task_id}_"): state for name, state in states.items() if name.startswith(f"{task_id}_")
    }
    mapped = {int(index): state for index, state in found.items() if index.isdigit()}
    return mapped or ({0: states[task_id]} if task_id in states else {})


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
    return [
        f"{_error(ti, name, before)}task {name} ended {state}"
        for name, state in states.items()
        if state in FAILED_STATES
    ]


def _error(ti: Any, name: str, tasks: Sequence[str]) -> str:
    """Return the error of a task; Airflow names a mapped task by its id and map index."""
    own, _, index = name.rpartition("_")
    task, number = (own, int(index)) if own in tasks and index.isdigit() else (name, -1)
    found = ti.xcom_pull(task_ids=task, key=FAILURE, map_indexes=number)
    return f"{found}; " if found else ""
