# SPDX-License-Identifier: Apache-2.0
"""The commit task: publishes finished slices, records it in the control topic, and sends the asset event.

Contract: runs in every run, even if its writers failed (`all_done`). Its outlet is the landing's asset, so it ends
*skipped* if nothing was published: no event without a snapshot. It leaves its result as an XCom for the outcome task,
also when it skips or fails. Only the tables and the control topic decide what is published; the plan's XCom just
identifies the cycle. Without it the run's identity finds the cycle, or opens an empty one.

Failure story: Airflow takes no asset event from a task that fails. If an attempt died after its commit, the next
attempt, or the cleared task, finds the cycle closed and sends the event, unless Airflow has it; also if the cleared
run continued as a further cycle.

Of a landing set it closes the run's cycle of each landing concurrently. It succeeds if at least one landing published
something, so events are sent: one for each landing that got a snapshot, of that landing's own asset. A landing whose
commit fails has a record of it in the control topic, and the next attempt or run commits it. The task fails only if
all landings fail.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.exceptions import (
    ControlTopicError,
    LakecommitError,
    SourceUnavailableError,
    SpecError,
    StorageError,
    Terminal,
)
from airflow_provider_lakecommit.hooks import without_secrets
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.base import (
    CLOSED,
    CYCLE,
    FAILURE,
    LANDED,
    LandingTask,
    check_planned,
    declared_of,
    exact,
    log_troubles,
    no_retry_in_vain,
    without_event,
)
from airflow_provider_lakecommit.operators.links import ErrorLink, SnapshotLink, TableLink
from airflow_provider_lakecommit.operators.outcome import ADVICE, ENDS, has_outcome_task, outcome_of, why_red
from airflow_provider_lakecommit.operators.plan import CYCLES
from airflow_provider_lakecommit.operators.targets import log_set_line, named_failures, outlets_of, set_target
from airflow_provider_lakecommit.operators.tasks.asset_event import event_extra, landed_line
from airflow_provider_lakecommit.telemetry import COMMIT_FAILURES, Sample, closed_samples
from airflow_provider_lakecommit.telemetry import Commit as LandingCommit
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import Closed, CycleTicket, LandingSession, RunIdentity
    from airflow_provider_lakecommit.iceberg import CommitterThread

__all__ = ["LakeCommitOperator", "close_set"]

_PLAN_MEETS_FIRST = (Terminal, ControlTopicError, SourceUnavailableError, StorageError)
"""Errors, including unreachable brokers, with which the plan task has failed too if nothing was planned."""


class LakeCommitOperator(LandingTask):
    """Publish finished slices by one Iceberg commit per table, and close the run's commit cycle, of a set all of them.

    Without an ``OutcomeOperator`` downstream it fails if it published nothing and a task before it failed or its window
    is incomplete: otherwise Airflow would show the run as successful.

    :param landing: the landing or the landing set, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param trigger_rule: `all_done` by default, so finished slices are published even if a group failed
    :param hourly: also send events with partition keys, one for each hour that is complete in the tables (asset
        ``hourly_asset_of(landing)``)
    :param outlets: assets in addition to that of the landing

    .. seealso:: :ref:`howto/operator:LakeCommitOperator`
    """

    takes_sets: ClassVar[bool] = True
    template_fields: Sequence[str] = ("declared", "result")
    template_fields_renderers: ClassVar[dict[str, str]] = {"declared": "json", "result": "json"}
    overwrite_rtif_after_execution = True
    operator_extra_links = (TableLink(), SnapshotLink(), ErrorLink())
    ui_color = "#e0f2e4"

    def __init__(
        self,
        *,
        landing: Landing | LandingSet | str | Path,
        plan_task_id: str,
        trigger_rule: str = TriggerRule.ALL_DONE,
        hourly: bool = False,
        outlets: Sequence[Asset] = (),
        inlets: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        declared = declared_of(landing)
        if hourly and isinstance(declared, LandingSet):
            raise SpecError("LC8309", f"landing set {declared.name!r}: `hourly` is for a single landing, leave it out")
        own, hours = outlets_of(declared, hourly=hourly)
        super().__init__(
            landing=declared, trigger_rule=trigger_rule, outlets=[*outlets, *own], inlets=[*inlets, *hours], **kwargs
        )
        self.asset = own[0]
        self.hours = hours
        self.plan_task_id = plan_task_id
        self.result: dict[str, Any] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish and close."""
        if self.landing_set is not None:
            return self._execute_set(self.landing_set, context)
        began = time.monotonic()
        try:
            closed = self._close(context)
        except AirflowSkipException:
            raise
        except Exception:
            send([Sample(COMMIT_FAILURES, 1, (self.landing.name,))])
            raise
        send(closed_samples(self.landing.name, closed, time.monotonic() - began))
        self.committed(closed)
        result = closed.to_dict()
        self.result = exact(result)
        context["ti"].xcom_push(CLOSED, result)
        context["ti"].xcom_push(LANDED, {self.landing.name: landed_line(closed)})
        log_troubles(self.log, closed)
        self.log.info("%s", _line(closed))
        red = why_red(self, context["ti"], closed)
        if not closed.published and red:
            raise AirflowFailException(f"{red}; nothing was published ({ADVICE})")
        if not closed.published:
            # No event without a snapshot.
            raise AirflowSkipException(f"nothing was published: {_why_nothing(closed)}")
        if red:
            # Airflow takes no event from a task that fails, but the snapshot exists.
            self.log.warning("this run is incomplete, but its state does not show it (%s): %s", ADVICE, red)
        self.send_events(context, closed)
        return result

    def _execute_set(self, declared: LandingSet, context: Context) -> dict[str, Any]:
        """Publish and close; return the landed rows by landing."""
        from airflow_provider_lakecommit.cycle import CycleTicket

        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=CYCLES, map_indexes=-1) or []
        pairs = [(Landing.from_flat(each["landing"]), CycleTicket.from_dict(each["cycle"])) for each in found]
        opened = {landing.name: (landing, ticket) for landing, ticket in pairs}
        ends: dict[str, tuple[str, str]] = {}
        closed: dict[str, Closed] = {}
        if opened:
            ends, closed, self.commits = close_set(
                declared, self.identity(context), opened, self.log, in_events=self.in_events(context)
            )
        context["ti"].xcom_push(ENDS, ends)
        if ends and not closed:
            failed = {name: why for name, (verdict, why) in ends.items() if verdict == "failed"}
            raise LakecommitError("LC8310", "no landing was committed: " + named_failures(failed))
        published = [name for name, each in closed.items() if each.published]
        if not published:
            raise AirflowSkipException(f"nothing was published; {len(ends)} landings have a cycle")
        for name in published:
            landing, _ = opened[name]
            context["outlet_events"][self.asset].add(asset_of(landing), extra=event_extra(landing, closed[name]))
        return {name: landed_line(closed[name]) for name in published}

    def _close(self, context: Context) -> Closed:
        from airflow_provider_lakecommit.cycle import CycleTicket

        planned = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=CYCLE, map_indexes=-1)
        ticket = CycleTicket.from_dict(planned) if planned else None
        in_events = self.in_events(context)
        with no_retry_in_vain(self):
            try:
                if ticket is not None:
                    check_planned(ticket.landing, self.landing)
                with self.session() as session:
                    return _closed(session, self.identity(context), ticket, in_events)
            except Exception as e:
                context["ti"].xcom_push(CLOSED, {FAILURE: without_secrets(e)})
                if ticket is None and self._plan_met(context, e) and has_outcome_task(self):
                    # The plan task has failed with the same error: one red task is enough.
                    raise AirflowSkipException(
                        f"nothing was planned, and nothing can be published: {without_secrets(e)}"
                    ) from e
                raise

    def _plan_met(self, context: Context, error: Exception) -> bool:
        """Return True if the plan task planned nothing and failed for the same reason."""
        if isinstance(error, _PLAN_MEETS_FIRST):
            return True
        left = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=FAILURE, map_indexes=-1) or ""
        return str(left).startswith(f"{type(error).__name__}:")


def _why_nothing(closed: Closed) -> str:
    from airflow_provider_lakecommit.cycle import first_of

    if closed.finished:
        return closed.note or "this run was finished before"
    if closed.causes:
        return closed.causes[0]
    if closed.blocked:
        return f"{first_of(closed.blocked)} blocked"
    if closed.waiting:
        return "; ".join(closed.waiting)
    return closed.reason or ("no slice of this run was finished" if closed.missing else "nothing new")


def _line(closed: Closed) -> str:
    """Return rows, ranges, snapshots, lag and remainder as one line."""
    if closed.finished:
        return f"cycle {closed.commit_id}: no work done: {_why_nothing(closed)}"
    parts = [f"{p.rows} rows of {p.coverage} in {p.table} snapshot {p.snapshot_id}" for p in closed.published]
    left = [
        f"{closed.left} records not planned" if closed.left else "",
        f"{len(closed.missing)} slices must be read again" if closed.missing else "",
        f"{len(closed.waiting)} slices wait" if closed.waiting else "",
        f"{len(closed.blocked)} ranges blocked" if closed.blocked else "",
    ]
    through = (
        f"valid through {closed.valid_through.isoformat()}" if closed.valid_through else "valid-through not reached"
    )
    published = "; ".join(parts) or f"nothing published ({_why_nothing(closed)})"
    return f"cycle {closed.commit_id}: {published}; {through}; left over: {', '.join(filter(None, left)) or 'nothing'}"


def close_set(
    declared: LandingSet,
    run: RunIdentity,
    opened: Mapping[str, tuple[Landing, CycleTicket]],
    log: Any,
    *,
    in_events: Collection[int] | None,
    recalls: bool = True,
) -> tuple[dict[str, tuple[str, str]], dict[str, Closed], list[LandingCommit]]:
    """Close the run's cycle of each landing concurrently; log how each ended, and send its metrics.

    :param opened: by name, the landings with their cycles
    :return: verdict and reason of each landing, the closed cycles, and the commits, for lineage
    """
    from airflow_provider_lakecommit.cycle import ConcurrentLandings, Expansion, for_all

    began, landings = time.monotonic(), {name: landing for name, (landing, _) in opened.items()}
    with (
        set_target(declared) as at,
        at.connect(Expansion(landings=tuple(landings.values()))) as connections,
        ConcurrentLandings() as concurrent,
    ):

        def step(session: LandingSession) -> Closed:
            _, ticket = opened[session.landing.name]
            return _closed(session, run, ticket, in_events, recalls=recalls, executor=concurrent.executor)

        ended = for_all(
            connections, landings.values(), step, lambda line: log_set_line(log, line), concurrent=concurrent
        )
    closed = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
    commits = [LandingCommit(landings[name], each, *at.namespaces) for name, each in closed.items()]
    return _set_ends(ended, time.monotonic() - began, log), closed, commits


def _closed(
    session: LandingSession,
    run: RunIdentity,
    ticket: CycleTicket | None,
    in_events: Collection[int] | None,
    *,
    recalls: bool = True,
    executor: CommitterThread | None = None,
) -> Closed:
    """Close the run's cycle of one landing, and begin the compaction that its tables are due for. A cleared run may
    have continued as a further cycle, although the commit task died before it sent the event of the one before.
    """
    from airflow_provider_lakecommit.cycle import close_cycle, cycle_id_of
    from airflow_provider_lakecommit.operations import RunCompaction

    further = recalls and ticket is not None and ticket.commit_id != cycle_id_of(session, run)
    found = without_event(session, run, in_events) if further and in_events is not None else None
    closed = close_cycle(session, run, ticket, retry=in_events is not None, in_events=in_events, executor=executor)
    if closed.asks_for_compaction:
        with RunCompaction(session, session.log) as compaction:
            compaction.begin()
    return closed if found is None else closed.after(found[0].to_closed(session.landing.table, found[1]))


def _set_ends(ended: Mapping[str, Closed | BaseException], seconds: float, log: Any) -> dict[str, tuple[str, str]]:
    ends = {
        name: ("failed", without_secrets(e)) if isinstance(e, BaseException) else outcome_of(e)
        for name, e in ended.items()
    }
    for name, each in ended.items():
        if isinstance(each, BaseException):
            send([Sample(COMMIT_FAILURES, 1, (name,))])
        else:
            log_troubles(log, each, f"{name}: ")
            send(closed_samples(name, each, seconds))
    for name, (verdict, why) in ends.items():
        (log.error if verdict == "failed" else log.info)("%s: %s: %s", name, verdict, why)
    return ends
