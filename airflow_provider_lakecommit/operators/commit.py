# SPDX-License-Identifier: Apache-2.0
"""The commit task: publishes what is settled, tells the control topic, and sends the asset event.

Contract: runs in every run, whatever became of its writers (`all_done`). Its outlet is the landing's asset, so it ends
*skipped* when nothing was published: no event without a snapshot. How it ended is left as an XCom for the outcome task,
also when it skips or fails. Only the tables and the control log say what is published; the plan's XCom is a ticket to
find the cycle by, and without it the cycle is found, or opened empty, by the run's identity.

One task may commit several landings: side by side, each as if it were alone, and none held up by another. It fails if
any of them failed, and names those; it succeeds if any published something, and then only those that did send an event.

Failure story: Airflow takes no asset event from a task that fails. What the others published is announced by the next
attempt, which finds their cycles closed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of, hourly_asset_of, table_assets_of
from airflow_provider_lakecommit.exceptions import (
    ControlTopicError,
    LakecommitError,
    SourceUnavailableError,
    SpecError,
    StorageError,
    Terminal,
)
from airflow_provider_lakecommit.hooks.secrets import told
from airflow_provider_lakecommit.operators.base import (
    CLOSED,
    CYCLE,
    FAILURE,
    LANDED,
    LandingTask,
    check_planned,
    exact,
    is_cleared,
    landing_of,
    log_troubles,
    no_retry_in_vain,
)
from airflow_provider_lakecommit.operators.judge import ADVICE, is_judged, why_red
from airflow_provider_lakecommit.operators.links import ErrorLink, SnapshotLink, TableLink
from airflow_provider_lakecommit.settings import Settings
from airflow_provider_lakecommit.tasks.asset_event import event_extra, landed_line
from airflow_provider_lakecommit.telemetry.lineage import Commit, catalog_namespace, kafka_namespace
from airflow_provider_lakecommit.telemetry.metrics import COMMIT_FAILURES, Sample, closed_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Asset, Context

    from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings
    from airflow_provider_lakecommit.session.landing_session import RunIdentity

__all__ = ["LakeCommitOperator"]

_PLAN_MEETS_FIRST = (Terminal, ControlTopicError, SourceUnavailableError, StorageError)
"""Errors of which, where nothing was planned, the plan task has failed too: among them brokers that are away."""


class LakeCommitOperator(LandingTask):
    """Publish a landing's finished slices by one Iceberg commit per table, and close the run's commit cycle.

    Give `landing` and `plan_task_id`, or, for one task that commits several landings, `landings` and `plan_task_ids`.
    Where no ``OutcomeOperator`` stands behind it, it fails when it published nothing and a task before it failed or its
    window lacks something: Airflow would take the run for good.

    :param landing: the landing, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param landings: several of them
    :param plan_task_ids: full ids of their plan tasks, in the same order
    :param trigger_rule: by default `all_done`, so that what is finished is published though a group failed
    :param hourly: send events with partition keys too, one for each hour that the tables have whole (asset
        ``hourly_asset_of(landing)``)
    :param outlets: assets beside those of the landings

    .. seealso:: :ref:`howto/operator:LakeCommitOperator`
    """

    template_fields: Sequence[str] = ("declared", "result")
    template_fields_renderers: ClassVar[dict[str, str]] = {"declared": "json", "result": "json"}
    overwrite_rtif_after_execution = True
    operator_extra_links = (TableLink(), SnapshotLink(), ErrorLink())
    ui_color = "#e0f2e4"

    def __init__(
        self,
        *,
        landing: Landing | str | Path | None = None,
        plan_task_id: str | None = None,
        landings: Sequence[Landing | str | Path] | None = None,
        plan_task_ids: Sequence[str] | None = None,
        trigger_rule: str = TriggerRule.ALL_DONE,
        hourly: bool = False,
        outlets: Sequence[Asset] = (),
        inlets: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        self.several = landings is not None
        declared = list(landings or ()) if self.several else [landing] if landing is not None else []
        plans = list(plan_task_ids or ()) if self.several else [plan_task_id] if plan_task_id is not None else []
        mixed = (landing, plan_task_id) != (None, None) if self.several else plan_task_ids is not None
        if mixed or not declared or len(declared) != len(plans):
            raise ValueError(
                "give either `landing` and `plan_task_id`, or `landings` and as many `plan_task_ids` in the same order"
            )
        self.landings = _distinct([landing_of(each) for each in declared])
        assets = [asset_of(each) for each in self.landings]
        tables = [asset for each in self.landings for asset in table_assets_of(each).values()]
        hours = [hourly_asset_of(each) for each in self.landings] if hourly else []
        super().__init__(
            landing=self.landings[0],
            trigger_rule=trigger_rule,
            outlets=[*outlets, *assets, *tables, *hours],
            inlets=[*inlets, *hours],
            **kwargs,
        )
        self.hours = hours
        self.asset, self.plan_task_id, self.plan_task_ids = assets[0], plans[0], tuple(plans)
        self.result: dict[str, Any] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish and close."""
        if self.several:
            return self._execute_several(context)
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
        self._log_closed(closed)
        red = why_red(self, context["ti"], [closed])
        if not closed.published:
            _end_without_snapshot(_why_nothing(closed), red)
        if red:
            # Airflow takes no event from a task that fails, and the snapshot is there.
            self.log.warning("this run is not whole, though nothing says so at its end (%s): %s", ADVICE, red)
        context["outlet_events"][self.asset].extra = event_extra(self.landing, closed)
        self.tell_tables(context, [(self.landing, closed)])
        self.tell_hours(context, [(self.landing, closed)])
        return result

    def _close(self, context: Context) -> Closed:
        from airflow_provider_lakecommit.cycle.close import close_cycle

        ticket, retry = self._ticket(context, self.plan_task_id), self.is_retry(context)
        # An attempt that died with its work done has sent no event; one that somebody cleared has.
        retell = retry and not is_cleared(context["ti"], self.retries or 0)
        with no_retry_in_vain(self):
            try:
                if ticket is not None:
                    check_planned(ticket.landing, self.landing)
                with self.session() as session:
                    return close_cycle(session, self.identity(context), ticket, retry=retry, retell=retell)
            except Exception as e:
                context["ti"].xcom_push(CLOSED, {FAILURE: told(e)})
                if ticket is None and self._plan_met(context, e) and is_judged(self):
                    # One mistake is one red task: that of the plan, which has told of it.
                    raise AirflowSkipException(f"nothing was planned, and nothing can be published: {told(e)}") from e
                raise

    def _plan_met(self, context: Context, error: Exception) -> bool:
        """Has the plan task, which planned nothing, failed of the same?"""
        if isinstance(error, _PLAN_MEETS_FIRST):
            return True
        left = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=FAILURE, map_indexes=-1) or ""
        return str(left).startswith(f"{type(error).__name__}:")

    def _ticket(self, context: Context, plan_task_id: str) -> CycleTicket | None:
        from airflow_provider_lakecommit.cycle.results import CycleTicket

        found = context["ti"].xcom_pull(task_ids=plan_task_id, key=CYCLE, map_indexes=-1)
        return CycleTicket.from_dict(found) if found else None

    def _log_closed(self, closed: Closed, whose: str = "") -> None:
        """One line that says it all, after what needs a person's eye."""
        log_troubles(self.log, closed, whose)
        self.log.info("%s%s", whose, _line(closed))

    # -- several ------------------------------------------------------------------------------------------------------

    def _execute_several(self, context: Context) -> dict[str, Any]:
        began = time.monotonic()
        ended = self._close_all(context)
        seconds = time.monotonic() - began
        closed = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
        failed = {name: each for name, each in ended.items() if isinstance(each, BaseException)}
        results = {name: each.to_dict() for name, each in closed.items()}
        self.result = exact(results)
        context["ti"].xcom_push(CLOSED, results | {name: {FAILURE: told(error)} for name, error in failed.items()})
        context["ti"].xcom_push(LANDED, {name: landed_line(each) for name, each in closed.items()})
        for name, each in closed.items():
            self._log_closed(each, f"{name}: ")
            send(closed_samples(name, each, seconds))
        send(Sample(COMMIT_FAILURES, 1, (name,)) for name in failed)
        for name, error in failed.items():
            self.log.error("%s: failed: %s", name, told(error), exc_info=None if _ours(error) else error)
        if failed:
            raise _all_failures(failed, len(ended))
        published = [landing for landing in self.landings if closed[landing.name].published]
        if not published:
            why = "; ".join(f"{name}: {_why_nothing(each)}" for name, each in closed.items())
            _end_without_snapshot(why, why_red(self, context["ti"], list(closed.values())))
        for landing in published:
            context["outlet_events"][asset_of(landing)].extra = event_extra(landing, closed[landing.name])
        # No event without a snapshot: Airflow sends one for each asset that is an outlet when the task ends.
        quiet = [asset_of(landing) for landing in self.landings if landing not in published]
        self.outlets = [each for each in self.outlets if each not in quiet]
        self.tell_tables(context, [(each, closed[each.name]) for each in self.landings])
        self.tell_hours(context, [(each, closed[each.name]) for each in published])
        return results

    def _close_all(self, context: Context) -> Mapping[str, Closed | BaseException]:
        from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings

        run, retry, settings = self.identity(context), self.is_retry(context), Settings.read()
        retell = retry and not is_cleared(context["ti"], self.retries or 0)
        plans = zip(self.landings, self.plan_task_ids, strict=True)
        tickets = {landing.name: self._ticket(context, plan) for landing, plan in plans}
        asking = threading.Lock()
        with ConcurrentLandings() as concurrent:

            def close(landing: Landing) -> Closed:
                return self._close_one(concurrent, asking, landing, run, tickets[landing.name], retry, retell)

            return concurrent.run({each.name: partial(close, settings.complete(each)) for each in self.landings})

    def _close_one(
        self,
        concurrent: ConcurrentLandings,
        asking: threading.Lock,
        landing: Landing,
        run: RunIdentity,
        ticket: CycleTicket | None,
        retry: bool,
        retell: bool,
    ) -> Closed:
        """In a thread. Airflow is asked for connections by one at a time."""
        from airflow_provider_lakecommit.cycle.close import close_cycle
        from airflow_provider_lakecommit.hooks.connections import kafka_settings, stated_properties
        from airflow_provider_lakecommit.iceberg.catalog import Tables
        from airflow_provider_lakecommit.session.landing_session import LandingSession

        if ticket is not None:
            check_planned(ticket.landing, landing)
        conn_id = landing.iceberg_conn_id
        with asking:
            kafka = kafka_settings(landing.kafka_config_id)
            stated = stated_properties(conn_id)
            tables = concurrent.tables(conn_id, lambda: Tables(stated, conn_id))

        def log(line: str) -> None:
            self.log.info("%s: %s", landing.name, line)

        with concurrent.session(lambda: LandingSession.connect(landing, kafka, {}, log=log, tables=tables)) as session:
            closed = close_cycle(session, run, ticket, retry=retry, retell=retell, executor=concurrent.executor)
        places = kafka_namespace(kafka), catalog_namespace(stated, conn_id)
        self.commits.append(Commit(landing, closed, *places))
        return closed


def _distinct(landings: Sequence[Landing]) -> tuple[Landing, ...]:
    names = [landing.name for landing in landings]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise SpecError(f"landings of one task need different names: {', '.join(twice)} is there twice")
    return tuple(landings)


def _ours(error: BaseException) -> bool:
    return isinstance(error, LakecommitError)


def _all_failures(failed: Mapping[str, BaseException], of: int) -> BaseException:
    """One error for all landings that failed: terminal if trying again helps none of them."""
    if others := [e for e in failed.values() if not isinstance(e, Exception)]:
        return others[0]
    whole = "; ".join(f"{name}: {told(error)}" for name, error in failed.items())
    text = f"{len(failed)} of {of} landings failed: {whole}"
    final = all(isinstance(error, Terminal) for error in failed.values())
    return AirflowFailException(text) if final else LakecommitError(text)


def _end_without_snapshot(why: str, red: str) -> NoReturn:
    """Skipped, so that no event is sent; failed where nothing else would keep the run from being green."""
    if red:
        raise AirflowFailException(f"{red}; nothing was published ({ADVICE})")
    raise AirflowSkipException(f"nothing was published: {why}")


def _why_nothing(closed: Closed) -> str:
    from airflow_provider_lakecommit.cycle.run import first_of

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
    """Rows, ranges, snapshots, lag, what is left over."""
    if closed.finished:
        return f"cycle {closed.commit_id}: no work done: {_why_nothing(closed)}"
    parts = [f"{p.rows} rows of {p.coverage} in {p.table} snapshot {p.snapshot_id}" for p in closed.published]
    left = [
        f"{closed.left} records not planned" if closed.left else "",
        f"{len(closed.missing)} slices to be read again" if closed.missing else "",
        f"{len(closed.waiting)} slices wait" if closed.waiting else "",
        f"{len(closed.blocked)} ranges blocked" if closed.blocked else "",
    ]
    through = (
        f"valid through {closed.valid_through.isoformat()}" if closed.valid_through else "valid-through not reached"
    )
    published = "; ".join(parts) or f"nothing published ({_why_nothing(closed)})"
    return f"cycle {closed.commit_id}: {published}; {through}; left over: {', '.join(filter(None, left)) or 'nothing'}"
