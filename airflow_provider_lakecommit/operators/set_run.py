# SPDX-License-Identifier: Apache-2.0
"""All landings of a set in one task: rounds of plan, write and commit, until nothing is left to read.

Contract: a round opens one cycle of each landing that has something to do, writes the groups of all of them as one
bundle, and closes these cycles. A retry continues the open cycles. An empty round, ``max_cycles`` rounds, several in a
row without progress for any landing, or a stop end the run.

Failure story: a landing that fails is named, and stops no other. The next round plans incomplete groups; if a round
reports nothing, the run ends, and the next attempt tries again. A failed task sends no events: its retry also returns
what earlier attempts have published.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.hooks import without_secrets
from airflow_provider_lakecommit.operators.base import LandingTask, without_event
from airflow_provider_lakecommit.operators.bundle import Bundle, landings_in
from airflow_provider_lakecommit.operators.commit import close_set
from airflow_provider_lakecommit.operators.outcome import outcome_of
from airflow_provider_lakecommit.operators.plan import bundled_groups, is_scheduled, open_further, plan_set
from airflow_provider_lakecommit.operators.targets import set_target
from airflow_provider_lakecommit.operators.tasks.ended_runs import EndedRuns
from airflow_provider_lakecommit.operators.tasks.write_jobs import WriteJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import BundledGroup, Closed, LandingSession, Opened, SetPlans
    from airflow_provider_lakecommit.landing import Landing, LandingSet
    from airflow_provider_lakecommit.spark import Engine
    from airflow_provider_lakecommit.telemetry import Commit


class SetRun:
    """One attempt. ``ends`` has verdict and reason of each landing with a cycle, ``unplanned`` earlier failures.

    :param task: the task of the run
    :param engine: of the Spark jobs, closed by the caller
    """

    def __init__(self, task: LandingTask, declared: LandingSet, engine: Engine, context: Context) -> None:
        self.ends: dict[str, tuple[str, str]] = {}
        self.unplanned: dict[str, str] = {}
        self.commits: list[Commit] = []
        self.published: list[tuple[Landing, Closed]] = []
        self._task, self._declared, self._engine = task, declared, engine
        self._identity = task.identity(context)
        self._retry, self._in_events = task.is_retry(context), task.in_events(context)
        self._ended_runs = EndedRuns(context["ti"], task.log)
        self._by_itself = is_scheduled(context)
        self._before: dict[str, tuple[Landing, Closed]] = {}
        self._jobs: WriteJobs | None = None
        self._stopped = False

    def stop(self) -> None:
        """Stop the Spark tasks at the current record; for signal handlers."""
        self._stopped = True
        if self._jobs is None:
            self._engine.stop()
        else:
            self._jobs.end_for_kill()

    def land(self, most: int | None) -> None:
        """Do rounds until nothing is left, but at most so many."""
        from airflow_provider_lakecommit.cycle import MOST_IDLE_CYCLES

        number = idle = 0
        while not self._stopped and (most is None or number < most):
            plans, self.unplanned = self._plan(number)
            groups = bundled_groups(plans)
            saved = self._write(groups) if groups else set()
            idle = 0 if self._close(plans, saved) else idle + 1
            if not saved or idle >= MOST_IDLE_CYCLES:
                break
            number += 1
        for name, (landing, closed) in self._before.items():
            self.published.insert(0, (landing, closed))
            if self.ends.get(name, ("skipped",))[0] == "skipped":
                self.ends[name] = outcome_of(closed)

    def _plan(self, number: int) -> tuple[SetPlans, dict[str, str]]:
        run = replace(self._identity, number=number)

        def plan(session: LandingSession) -> Opened:
            if self._in_events is not None and number == 0:
                self._recall(session, self._in_events)
            return open_further(session, run, self._ended_runs, retry=self._retry, anyway=True)

        # A user who triggers a run may have changed something that the log does not show.
        skip_idle = number > 0 or (self._by_itself and not self._retry)
        return plan_set(self._declared, run, plan, self._ended_runs, self._task.log, skip_idle=skip_idle)

    def _recall(self, session: LandingSession, in_events: Collection[int]) -> None:
        """Note what an earlier attempt published without an event."""
        if (found := without_event(session, self._identity, in_events)) is not None:
            self._before[session.landing.name] = session.landing, found[0].to_closed(session.landing.table, found[1])

    def _write(self, groups: Sequence[BundledGroup]) -> set[str]:
        """Return the landings with reported records."""
        from airflow_provider_lakecommit.cycle import Expansion

        log: Any = self._task.log
        with set_target(self._declared, reach=False) as at:
            self._jobs = jobs = WriteJobs(self._engine, at.tables, at.kafka, log)
            with (
                at.connect(Expansion(landings=landings_in(groups))) as connections,
                jobs.until_deadline(self._task.execution_timeout),
            ):
                bundle = Bundle(groups, at, connections, log)
                try:
                    bundle.write(jobs)
                except LakecommitError as e:
                    # Incomplete landings are reported when their cycles are closed.
                    log.warning("%s", without_secrets(e))
                self._stopped = self._stopped or jobs.ending
                return bundle.saved

    def _close(self, plans: SetPlans, saved: set[str]) -> bool:
        """Close the cycles of a round; return True if it made progress for a landing."""
        cycles = {name: (plans.landings[name], opened.ticket) for name, opened in plans.opened.items()}
        if not cycles:
            return False
        ends, closed, commits = close_set(
            self._declared, self._identity, cycles, self._task.log, in_events=self._in_events, recalls=False
        )
        self.commits += commits
        for name, end in ends.items():
            # A round with nothing new removes nothing from what an earlier one has published.
            if end[0] != "skipped" or name not in self.ends:
                self.ends[name] = end
        self.published += [(plans.landings[name], each) for name, each in closed.items() if each.published]
        return any(each.published or (name in saved and not each.voided) for name, each in closed.items())
