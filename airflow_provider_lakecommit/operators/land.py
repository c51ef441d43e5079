# SPDX-License-Identifier: Apache-2.0
"""A landing as one task: commit cycle after commit cycle until it is caught up. For the many small topics, for which
four tasks per window would cost more than the window.

Contract: the cycles are those of the task group, one after the other in this process; commit ids count them, so a retry
continues the cycle in which its predecessor died and reads no reported slice again. The task ends as the group's
outcome does: *success* if something was published and nothing of the run is missing, *skipped* if there was nothing to
do, *failed* if something is missing or needs a user. One asset event covers all snapshots of the run, including those
of earlier attempts. A finished run that is cleared does no work and reports where its windows are, or sends the event
that Airflow does not have.

With ``follow_for`` (continuous mode) the task does not end when it is caught up, but lands new records until its time
is over, the DAG is paused (:mod:`~airflow_provider_lakecommit.cycle.run`), or a later run of the DAG has taken over. A
retry or a cleared run continues unless a later run has taken over.

Failure story: a task that is killed, or is close to its ``execution_timeout``, stops its Spark tasks at the current
record and publishes what they have read, as far as Airflow leaves it the time; however it ends, the log reports what is
saved and what will be read again. If no attempt is left, the next run of the DAG ends the claims of this one at once.
Airflow takes no asset event from a task that fails: what such a run has published is in the tables, without an event.

Of a landing set the task lands all landings concurrently (:mod:`~airflow_provider_lakecommit.operators.set_run`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.core import Verdict, outcome_line
from airflow_provider_lakecommit.exceptions import LakecommitError, SparkJobError, SpecError
from airflow_provider_lakecommit.hooks import note_run, without_secrets
from airflow_provider_lakecommit.landing import Landing, LandingSet
from airflow_provider_lakecommit.operators.base import (
    CLOSED,
    FAILURE,
    LANDED,
    SparkTask,
    declared_of,
    exact,
    log_troubles,
    no_retry_in_vain,
)
from airflow_provider_lakecommit.operators.links import ErrorLink, SnapshotLink, SparkLink, TableLink
from airflow_provider_lakecommit.operators.outcome import end_set, outcome_of
from airflow_provider_lakecommit.operators.targets import outlets_of
from airflow_provider_lakecommit.operators.tasks.asset_event import event_extra, landed_line
from airflow_provider_lakecommit.operators.tasks.following import began, following, goes_on, is_paused
from airflow_provider_lakecommit.operators.tasks.write_jobs import KILL_GRACE, before_deadline
from airflow_provider_lakecommit.telemetry import RUNS, Sample, closed_samples, opened_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.core import Cycle
    from airflow_provider_lakecommit.cycle import (
        Closed,
        EarlierCycles,
        Follow,
        LandingRunner,
        LandingSession,
        RunIdentity,
    )
    from airflow_provider_lakecommit.operators.set_run import SetRun
    from airflow_provider_lakecommit.spark import Engine

__all__ = ["KafkaToIcebergOperator", "is_over"]

OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
"""States of a task after which no attempt follows automatically."""


class KafkaToIcebergOperator(SparkTask):
    """Land new records, in as many commit cycles as needed to be caught up.

    Returns how the run ended: its snapshots, rows, remaining offsets, valid-through. Of a set it returns the landed
    rows by landing, and sends an event for each landing that published something.

    :param landing: the landing or the landing set, or the path of its YAML spec
    :param spark_conn_id: connection of type `spark_connect`, whose session stays warm over the cycles, or `spark`,
        where each partition group of a cycle is one spark-submit (templated)
    :param spark_conf: Spark settings for the jobs (templated)
    :param max_cycles: most cycles per attempt; the log names the rest, and the next run lands it. By default until
        the tables have everything up to the last stable offset of the newest plan
    :param follow_for: continuous mode: land new records for this time; then open no window, finish the open ones, and
        end. It ends earlier when the next run of the DAG has taken over: with a shorter schedule and
        ``max_active_runs=2``, one run takes over from the other without a pause
    :param window_age: with ``follow_for``, the age of a record at which its window is opened
    :param keep_snapshots: with ``follow_for``, the age at which snapshots of this landing are expired; ``None``:
        never. Times are timedeltas, seconds, or texts such as ``15m``
    :param hourly: also send events with partition keys, one for each hour that is complete in the tables (asset
        ``hourly_asset_of(landing)``)
    :param outlets: assets in addition to that of the landing

    .. seealso:: :ref:`howto/operator:KafkaToIcebergOperator`
    """

    opens_cycles: ClassVar[bool] = True
    takes_sets: ClassVar[bool] = True
    template_fields: Sequence[str] = ("spark_conn_id", "spark_conf", "declared", "result")
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys(("spark_conf", "declared", "result"), "json")
    overwrite_rtif_after_execution = True
    operator_extra_links = (TableLink(), SnapshotLink(), SparkLink(), ErrorLink())
    ui_color = "#e6edf0"

    def __init__(
        self,
        *,
        landing: Landing | LandingSet | str | Path,
        spark_conn_id: str = "spark_default",
        spark_conf: Mapping[str, Any] | None = None,
        max_cycles: int | None = None,
        follow_for: timedelta | str | float | None = None,
        window_age: timedelta | str | float = timedelta(seconds=2),
        keep_snapshots: timedelta | str | float | None = timedelta(hours=1),
        hourly: bool = False,
        outlets: Sequence[Asset] = (),
        inlets: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        declared = declared_of(landing)
        if isinstance(declared, LandingSet) and (hourly or follow_for is not None):
            raise SpecError("LC8332", f"landing set {declared.name!r}: `hourly` and `follow_for` are for a landing")
        own, hours = outlets_of(declared, hourly=hourly)
        super().__init__(
            landing=declared,
            spark_conn_id=spark_conn_id,
            spark_conf=spark_conf,
            outlets=[*outlets, *own],
            inlets=[*inlets, *hours],
            **kwargs,
        )
        self.asset = own[0]
        self.hours = hours
        if max_cycles is not None and not (isinstance(max_cycles, int) and max_cycles >= 1):
            raise SpecError("LC8333", f"max_cycles={max_cycles!r}: use a number of at least 1, or None for no limit")
        self.max_cycles = max_cycles
        self.follow_for = follow_for
        self.follow = following(follow_for, window_age, keep_snapshots, self.execution_timeout)
        if follow_for is not None and max_cycles is not None:
            raise SpecError("LC8334", "max_cycles and follow_for exclude each other: give one of them")
        self.result: dict[str, Any] | None = None
        self._runner: LandingRunner | Follow | None = None
        self._set_run: SetRun | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Land until caught up."""
        if self.landing_set is not None:
            return self._execute_set(self.landing_set, context)
        try:
            with no_retry_in_vain(self):
                # Before anything else, so that a kill finds it at any time.
                self._engine = self.engine()
                with self.session() as session:
                    whole = self._run(session, self._engine, context)
        except Exception as e:
            context["ti"].xcom_push(CLOSED, {FAILURE: without_secrets(e)})
            self._report(context, "failed", without_secrets(e), "")
            raise
        finally:
            if self._engine is not None:
                self._engine.close()
        self.committed(whole)
        result = whole.to_dict()
        self.result = exact(result)
        context["ti"].xcom_push(CLOSED, result)
        context["ti"].xcom_push(LANDED, {self.landing.name: landed_line(whole)})
        self._report(context, *outcome_of(whole), landed_line(whole))
        self._end_as_it_went(whole)
        self.send_events(context, whole)
        return result

    def on_kill(self) -> None:
        """Stop the tasks of its Spark jobs at the current record, and publish what they have read."""
        if self._engine is not None:
            self.log.info("landing %s was stopped; requested the end of its Spark jobs", self.landing_name)
            if self._set_run is not None:
                self._set_run.stop()
            elif self._runner is None:
                self._engine.stop()
            else:
                self._runner.stop("the task was stopped", KILL_GRACE)

    # -- the run ------------------------------------------------------------------------------------------------------

    def _run(self, session: LandingSession, engine: Engine, context: Context) -> Closed:
        from airflow_provider_lakecommit.cycle import RunOutcome, Total, WindowLog, cycles_of, published_by, runner_of
        from airflow_provider_lakecommit.operations import RunCompaction

        identity = self.identity(context)
        since = None if self.follow is None else began(context)
        in_events = self.in_events(context)
        earlier = None if in_events is None else cycles_of(session, identity, since)
        before = published_by(session, earlier) if earlier else ()
        finished = earlier is not None and earlier.finished(self.max_cycles)
        if earlier and finished and not self._goes_on(session, identity, earlier):
            if all(p.snapshot_id in (in_events or ()) for p in before):
                return replace(earlier.to_closed(self.landing.table, ()), finished=True, note=str(earlier))
            self.log.info("all work is done already, but no asset event was sent: %s", earlier)
            return earlier.to_closed(self.landing.table, before)
        log = WindowLog(session.log)
        session.log = log
        compaction = RunCompaction(session, log.write)
        continuous: dict[str, Any] = {} if self.follow is None else {"over": partial(is_paused, context), "turns": True}
        self._runner = runner = runner_of(
            session,
            engine,
            lambda number: replace(identity, number=number),
            self.follow,
            log,
            release=lambda cycle: is_over(cycle, identity, session, context["ti"]),
            early=True,
            maintain=compaction.begin,
            **continuous,
        )
        outcomes, total = [], Total(landing=self.landing.name)
        total.publish(before)
        try:
            with compaction, before_deadline(self.execution_timeout, runner.stop):
                for outcome in runner.cycles(earlier.number if earlier else 0, self.max_cycles):
                    log(str(outcome))
                    send(opened_samples(outcome.opened))
                    seconds = outcome.seconds.get("close", 0.0)
                    send(closed_samples(self.landing.name, outcome.closed, seconds, outcome.lane))
                    if self.follow is None:
                        outcomes.append(outcome)
                    else:
                        total.add(outcome)
        except Exception:
            raise
        except BaseException:
            # A timeout passes through here, not through the ordinary end.
            with suppress(LakecommitError):
                runner.report_interrupted()
            raise
        run = RunOutcome.of(self.landing.name, outcomes, before) if self.follow is None else total.ended()
        self.log.info("%s", run)
        return run.whole

    def _goes_on(self, session: LandingSession, identity: RunIdentity, earlier: EarlierCycles) -> bool:
        """Return True if more must be done for a run whose cycles are all finished."""
        return self.follow is not None and goes_on(session, identity, earlier)

    def _execute_set(self, declared: LandingSet, context: Context) -> dict[str, Any]:
        from airflow_provider_lakecommit.operators.set_run import SetRun

        try:
            with no_retry_in_vain(self):
                self._engine = engine = self.engine()
                self._set_run = run = SetRun(self, declared, engine, context)
                run.land(self.max_cycles)
        finally:
            if self._engine is not None:
                self._engine.close()
        self.commits = run.commits
        verdict, text = end_set(context["ti"], declared.name, run.ends, run.unplanned, self.log)
        if verdict == "failed":
            # The next attempt reads missing slices again; blocked ranges of a landing have their own words.
            raise LakecommitError("LC8335", text)
        if verdict == "skipped":
            raise AirflowSkipException(text)
        landed = {}
        for landing, closed in run.published:
            landed[landing.name] = landed_line(closed)
            context["outlet_events"][self.asset].add(asset_of(landing), extra=event_extra(landing, closed))
        return landed

    # -- its end ------------------------------------------------------------------------------------------------------

    def _report(self, context: Context, verdict: Verdict, reason: str, landed: str) -> None:
        note_run(context["ti"], self.landing.name, outcome_line(verdict, reason, landed))
        send([Sample(RUNS, 1, (self.landing.name, verdict))])

    def _end_as_it_went(self, closed: Closed) -> None:
        """Return for success; raise for any other end."""
        log_troubles(self.log, closed)
        verdict, reason = outcome_of(closed)
        if verdict == "skipped":
            raise AirflowSkipException(reason)
        if verdict == "failed" and (closed.blocked or closed.stopped):
            raise AirflowFailException(reason)
        if verdict == "failed":
            # The cycles ran out before missing slices were read again: the next attempt does that.
            raise SparkJobError("LC8336", reason)
        self.log.info("%s", reason)


def is_over(cycle: Cycle, identity: RunIdentity, session: LandingSession, ti: Any) -> bool:
    """Return True if a cycle belongs to another run of this DAG in this Airflow whose task has ended for good. Its
    claims would only block this run.
    """
    from airflow_provider_lakecommit.cycle import cycle_id_of

    theirs = replace(identity, run_id=cycle.run, number=cycle.number)
    if cycle.run == identity.run_id or cycle.commit_id != cycle_id_of(session, theirs):
        return False
    states = ti.get_task_states(dag_id=identity.dag_id, run_ids=[cycle.run]).get(cycle.run, {})
    own = ti.task_id if ti.map_index < 0 else f"{ti.task_id}_{ti.map_index}"
    # A run that was deleted, or had no such task yet, is over when none of it can run any more.
    return all(state in OVER for state in ([states[own]] if own in states else states.values()))
