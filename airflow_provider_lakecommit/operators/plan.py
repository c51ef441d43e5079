# SPDX-License-Identifier: Apache-2.0
"""The plan task: opens the run's commit cycle and hands out its window, one entry per partition group.

Contract: returns a list to expand over; an empty list means that there is nothing to do, and the write task is skipped.
The log explains the end of the window. A retry continues the cycle that it opened. A cleared run whose window has
landed does nothing and reports where its window is; if part of it is missing, the run continues as a further cycle, and
so does a run that was deleted and recreated under the same id. Claims of runs that were deleted, or that ended without
closing their cycle, are taken over.

Of a landing set it finds the landings, opens the run's cycle of each, and splits their groups into bundles of equal
load, one for each write task. The XCom `cycles` has what downstream tasks need to know of each landing, `failed` the
landings that could not be planned and topics without a landing. A scheduled run opens no cycle of a landing that has
nothing to do (:mod:`~airflow_provider_lakecommit.cycle.sets.plans`).

Failure story: a landing of a set that cannot be planned is named, and stops no other. The task fails only if none can
be planned.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core import Coverage
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.hooks import without_secrets
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.base import CYCLE, WINDOW, LandingTask, leave_failure, no_retry_in_vain
from airflow_provider_lakecommit.operators.targets import log_set_line, named_failures, set_target
from airflow_provider_lakecommit.operators.tasks.ended_runs import EndedRuns
from airflow_provider_lakecommit.telemetry import opened_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import (
        BundledGroup,
        Expansion,
        GroupTicket,
        LandingSession,
        Opened,
        RunIdentity,
        SetPlans,
    )

__all__ = ["CYCLES", "FAILED", "PlanWindowOperator", "bundled_groups", "is_scheduled", "open_further", "plan_set"]

CYCLES, FAILED = "cycles", "failed"
"""XCom keys of a set: the landings and where their cycles are; the failures, by landing or topics."""
TASKS = 4
BY_ITSELF = ("scheduled", "asset_triggered")
"""Types of runs that no user triggered."""


class PlanWindowOperator(LandingTask):
    """Plan all missing offset ranges of a landing or a set, oldest first, up to the last stable offset.

    Returns one dict per partition group, of a set one per bundle of groups, for
    ``WriteWindowOperator.partial(…).expand(group=plan.output)``. The XCom `cycle` identifies the cycle for the commit
    task, `window` and `explain` show users the window and the reason for each end.

    :param landing: the landing or the landing set, or the path of its YAML spec
    :param tasks: of a set: most write tasks, 4 by default

    .. seealso:: :ref:`howto/operator:PlanWindowOperator`
    """

    opens_cycles: ClassVar[bool] = True
    takes_sets: ClassVar[bool] = True
    template_fields: Sequence[str] = ("declared", "window")
    template_fields_renderers: ClassVar[dict[str, str]] = {"declared": "json", "window": "json"}
    overwrite_rtif_after_execution = True
    ui_color = "#e3eef9"

    def __init__(self, *, landing: Landing | LandingSet | str | Path, tasks: int | None = None, **kwargs: Any) -> None:
        super().__init__(landing=landing, **kwargs)
        if tasks is not None and self.landing_set is None:
            raise SpecError("LC8344", f"PlanWindowOperator {self.task_id!r}: `tasks` is for a landing set only")
        if tasks is not None and not (isinstance(tasks, int) and tasks >= 1):
            raise SpecError("LC8345", f"tasks={tasks!r}: use a number of at least 1")
        self.tasks = tasks or TASKS
        self.window: dict[str, Any] | None = None

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Open or continue the cycle, of a set that of each landing."""
        if self.landing_set is not None:
            return self._plan_set(self.landing_set, context)
        run, again = self.identity(context), self.is_retry(context)
        try:
            with no_retry_in_vain(self), self.session() as session:
                ended = EndedRuns(context["ti"], self.log)
                opened = open_further(session, run, ended, retry=again, anyway=not again)
        except Exception as e:
            leave_failure(context, e)
            context["ti"].xcom_push(WINDOW, {"landing": self.landing.name})
            raise
        context["ti"].xcom_push(CYCLE, opened.ticket.to_dict())
        self.window = _window(opened)
        context["ti"].xcom_push(WINDOW, self.window)
        self._log_opened(opened)
        send(opened_samples(opened))
        return [] if opened.finished else [group.to_dict() for group in opened.groups]

    def _plan_set(self, declared: LandingSet, context: Context) -> list[dict[str, Any]]:
        from airflow_provider_lakecommit.cycle import dealt, label_of

        run, retry = self.identity(context), self.is_retry(context)
        ended_runs = EndedRuns(context["ti"], self.log)

        def plan(session: LandingSession) -> Opened:
            return open_further(session, run, ended_runs, retry=retry, anyway=not retry)

        with no_retry_in_vain(self):
            # A user who triggers a run may have changed something that the log does not show.
            skip_idle = not retry and is_scheduled(context)
            plans, failed = plan_set(declared, run, plan, ended_runs, self.log, skip_idle=skip_idle)
        context["ti"].xcom_push(FAILED, failed)
        cycles = [
            {"landing": plans.landings[n].to_flat(), "cycle": o.ticket.to_dict()} for n, o in plans.opened.items()
        ]
        context["ti"].xcom_push(CYCLES, cycles)
        if failed and not plans.opened and not plans.nothing:
            raise LakecommitError("LC8346", "no landing could be planned: " + named_failures(failed))
        bundles = dealt(bundled_groups(plans), self.tasks)
        return [{"label": label_of(bundle), "groups": [each.to_dict() for each in bundle]} for bundle in bundles]

    def _log_opened(self, opened: Opened) -> None:
        for line in opened.explain:
            self.log.info("%s", line)
        if opened.note:
            self.log.info("%s", opened.note)
        if opened.finished:
            return
        left = f"; {opened.plan.left} records are left for later runs" if opened.plan.left else ""
        if not opened.slices:
            self.log.info("cycle %s has nothing to do: %s%s", opened.ticket.commit_id, opened.plan.reason, left)
            return
        records = sum(len(s) for s in opened.slices)
        self.log.info(
            "cycle %s, window %s: %d records in %d slices and %d groups%s",
            opened.ticket.commit_id,
            opened.plan.window_id,
            records,
            len(opened.slices),
            len(opened.groups),
            left,
        )


def _window(opened: Opened) -> dict[str, Any]:
    """Return the window as Airflow's page shows it among the rendered fields and XComs. For a run that was finished
    before, which opens no window, the reason reports where its window is.
    """
    return {
        "landing": opened.ticket.landing,
        "window_id": None if opened.finished else str(opened.plan.window_id),
        "commit_id": str(opened.ticket.commit_id),
        "records": sum(len(s) for s in opened.slices),
        "slices": len(opened.slices),
        "groups": len(opened.groups),
        "ranges": Coverage.union(s.coverage for s in opened.slices).to_dict(),
        "reason": opened.note if opened.finished else opened.plan.reason,
        "left": opened.plan.left,
    }


def is_scheduled(context: Context) -> bool:
    """Return True for a run that no user triggered."""
    kind = context["dag_run"].run_type
    return getattr(kind, "value", kind) in BY_ITSELF


def open_further(
    session: LandingSession, run: RunIdentity, ended_runs: EndedRuns, *, retry: bool, anyway: bool
) -> Opened:
    """Open or continue the cycle of a run, or a further one if that is finished and part of its window is missing.

    :param anyway: open a further one also if nothing is missing
    """
    from airflow_provider_lakecommit.cycle import open_cycle

    release = ended_runs.of(session)
    opened = open_cycle(session, run, retry=retry, release=release)
    while opened.finished and (opened.lacking or anyway):
        session.log(f"{opened.note}; this run continues as a further cycle")
        run = replace(run, number=run.number + 1)
        opened = open_cycle(session, run, retry=retry, release=release)
    return opened


def plan_set(
    declared: LandingSet,
    run: RunIdentity,
    plan: Callable[[LandingSession], Opened],
    ended_runs: EndedRuns,
    log: Any,
    *,
    skip_idle: bool,
) -> tuple[SetPlans, dict[str, str]]:
    """Find and plan the landings of a set.

    :param skip_idle: make no plan for a landing that has nothing to do
    :return: the plans, and the failures, by landing or topics
    """
    from airflow_provider_lakecommit.cycle import found_landings, plans_of, start_former

    def publish(session: LandingSession) -> Opened:
        return start_former(session, run, release=ended_runs.of(session))

    with set_target(declared) as at:
        expansion = found_landings(at.declared, at.kafka)
        with at.connect(expansion) as connections:
            plans = plans_of(
                at.declared,
                connections,
                plan,
                lambda line: log_set_line(log, line),
                publish=publish,
                skip_idle=skip_idle,
            )
    failed = {name: without_secrets(each) for name, each in plans.failed.items()}
    failed |= {f"topics {', '.join(t.topics)}": t.why for t in expansion.troubles}
    _log_set(log, expansion, plans, failed)
    return plans, failed


def bundled_groups(plans: SetPlans) -> list[BundledGroup]:
    """Return the groups of all planned landings."""
    from airflow_provider_lakecommit.cycle import BundledGroup

    return [BundledGroup(landing=plans.landings[n], ticket=t) for n, o in plans.opened.items() for t in _groups(o)]


def _log_set(log: Any, expansion: Expansion, plans: SetPlans, failed: Mapping[str, str]) -> None:
    for name, why in failed.items():
        log.error("%s: %s", name, why)
    for name, why in plans.nothing.items():
        log.info("%s: %s", name, why)
    for former in plans.former:
        log.warning("%s", former)
    for topic in expansion.ignored:
        log.info("topic %s matches no rule and is ignored, as `unmatched` says", topic)
    busy = {name: sum(t.records for t in _groups(o)) for name, o in plans.opened.items() if _groups(o)}
    log.info(
        "%d landings: planned %d records for %d of them; %d failed; %d had nothing to do and opened no cycle",
        len(expansion.landings),
        sum(busy.values()),
        len(busy),
        len(failed),
        len(plans.nothing),
    )
    send(sample for opened in plans.opened.values() for sample in opened_samples(opened))


def _groups(opened: Opened) -> Sequence[GroupTicket]:
    return () if opened.finished else opened.groups
