# SPDX-License-Identifier: Apache-2.0
"""The commit and the outcome of a landing set's run.

Contract: the commit closes the run's cycle of each landing, side by side, each table in its own turns; it succeeds when
one of them published something, so that the asset events of these tables are sent, whatever became of the others: one
event for each table that got a snapshot, of that table's own asset. The outcome is the only leaf, and says of each
landing what became of it: it fails when one failed, with all of them named.

Failure story: a landing whose commit fails has said so in the control log, and is committed by the next attempt or the
next run. The commit fails only where all do.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of
from airflow_provider_lakecommit.core.outcome import Commit, Ended, decide
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.hooks.run_note import note_run
from airflow_provider_lakecommit.hooks.secrets import told
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.base import LandingTask, is_cleared, log_troubles
from airflow_provider_lakecommit.operators.set_plan import CYCLES, FAILED
from airflow_provider_lakecommit.operators.set_task import SetTask, alias_of, named_failures
from airflow_provider_lakecommit.tasks.asset_event import event_extra, landed_line
from airflow_provider_lakecommit.telemetry.lineage import Commit as LandingCommit
from airflow_provider_lakecommit.telemetry.lineage import lineage_of
from airflow_provider_lakecommit.telemetry.metrics import COMMIT_FAILURES, RUNS, Sample, closed_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["CommitLandingSetOperator", "LandingSetOutcomeOperator"]

ENDS = "ends"
"""XCom key: what became of each landing."""


class CommitLandingSetOperator(SetTask):
    """Publish what is finished of each landing of a set, and close the run's cycles.

    :param landing_set: the set, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param trigger_rule: `all_done`, so that what is finished is published though a bundle failed

    .. seealso:: :doc:`/howto/many_topics`
    """

    ui_color = "#e0f2e4"

    def __init__(
        self,
        *,
        landing_set: LandingSet | str | Path,
        plan_task_id: str,
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing_set=landing_set, trigger_rule=trigger_rule, **kwargs)
        self.alias = alias_of(self.landing_set)
        self.outlets = [*self.outlets, self.alias]
        self.plan_task_id = plan_task_id
        self.commits: list[LandingCommit] = []

    def execute(self, context: Context) -> dict[str, str]:
        """Publish and close; what was landed, by landing."""
        from airflow_provider_lakecommit.cycle.results import CycleTicket

        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=CYCLES, map_indexes=-1) or []
        landings = {each["landing"]["name"]: Landing.from_dict(each["landing"]) for each in found}
        tickets = {each["landing"]["name"]: CycleTicket.from_dict(each["cycle"]) for each in found}
        began = time.monotonic()
        ended = self._close_all(context, landings, tickets) if landings else {}
        closed = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
        failed = {name: told(each) for name, each in ended.items() if isinstance(each, BaseException)}
        ends = self._tell(closed, failed, time.monotonic() - began)
        context["ti"].xcom_push(ENDS, ends)
        if failed and not closed:
            raise LakecommitError("no landing was committed: " + named_failures(failed))
        published = [name for name, each in closed.items() if each.published]
        if not published:
            raise AirflowSkipException(f"nothing was published, of {len(ends)} landings with a cycle")
        for name in published:
            extra = event_extra(landings[name], closed[name])
            context["outlet_events"][self.alias].add(asset_of(landings[name]), extra=extra)
        return {name: landed_line(closed[name]) for name in published}

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:
        """What OpenLineage is told of the task, when Airflow asks."""
        return lineage_of(self.commits)

    def _tell(
        self, closed: Mapping[str, Closed], failed: Mapping[str, str], seconds: float
    ) -> dict[str, tuple[str, str]]:
        """In the log, and by metrics of each landing's own name; how each ended, and why."""
        ends = {name: _end_of(each) for name, each in closed.items()}
        ends |= {name: ("failed", why) for name, why in failed.items()}
        for name, each in closed.items():
            log_troubles(self.log, each, f"{name}: ")
            send(closed_samples(name, each, seconds))
        send(Sample(COMMIT_FAILURES, 1, (name,)) for name in failed)
        for name, (verdict, why) in ends.items():
            (self.log.error if verdict == "failed" else self.log.info)("%s: %s: %s", name, verdict, why)
        return ends

    def _close_all(
        self, context: Context, landings: Mapping[str, Landing], tickets: Mapping[str, CycleTicket]
    ) -> Mapping[str, Closed | BaseException]:
        from airflow_provider_lakecommit.cycle.close import close_cycle
        from airflow_provider_lakecommit.many.expansion import Expansion
        from airflow_provider_lakecommit.many.steps import AT_ONCE, MOST, for_all
        from airflow_provider_lakecommit.session.concurrent import ConcurrentLandings

        run, retry = LandingTask.identity(context), LandingTask.is_retry(context)
        retell = retry and not is_cleared(context["ti"], self.retries or 0)
        with (
            self.places() as at,
            at.connect(Expansion(landings=tuple(landings.values()))) as connections,
            ConcurrentLandings(threads=AT_ONCE, most=MOST) as concurrent,
        ):

            def step(session: LandingSession) -> Closed:
                ticket = tickets[session.landing.name]
                return close_cycle(session, run, ticket, retry=retry, retell=retell, executor=concurrent.executor)

            ended = for_all(connections, landings.values(), step, self.log_line, concurrent=concurrent)
            self.commits = [
                LandingCommit(landings[name], each, *at.namespaces)
                for name, each in ended.items()
                if not isinstance(each, BaseException)
            ]
            return ended


class LandingSetOutcomeOperator(SetTask):
    """End as the run of a set did: success, skipped, or failed with every landing named that failed.

    :param landing_set: the set, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param commit_task_id: full id of the commit task
    :param trigger_rule: `all_done`: it runs in every run

    .. seealso:: :doc:`/howto/many_topics`
    """

    ui_color = "#ececec"

    def __init__(
        self,
        *,
        landing_set: LandingSet | str | Path,
        plan_task_id: str,
        commit_task_id: str,
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(landing_set=landing_set, trigger_rule=trigger_rule, **kwargs)
        self.plan_task_id = plan_task_id
        self.commit_task_id = commit_task_id

    def execute(self, context: Context) -> str:
        """Decide and end so."""
        ti = context["ti"]
        ends = ti.xcom_pull(task_ids=self.commit_task_id, key=ENDS, map_indexes=-1)
        unplanned = ti.xcom_pull(task_ids=self.plan_task_id, key=FAILED, map_indexes=-1)
        if ends is None or unplanned is None:
            raise AirflowFailException("the plan or the commit of this run did not get to its end: see their logs")
        failed = {**unplanned, **{name: why for name, (verdict, why) in ends.items() if verdict == "failed"}}
        landed = [name for name, (verdict, _) in ends.items() if verdict == "success"]
        text = f"{len(landed)} of {len(ends)} landings with a cycle published something; "
        text += f"{len(failed)} failed: {named_failures(failed)}" if failed else "none failed"
        note_run(ti, self.landing_set.name, text)
        send(Sample(RUNS, 1, (name, verdict)) for name, (verdict, _) in ends.items())
        send(Sample(RUNS, 1, (name, "failed")) for name in unplanned if name not in ends)
        for name, why in failed.items():
            self.log.error("%s: %s", name, why)
        if failed:
            raise AirflowFailException(text)
        if not landed:
            raise AirflowSkipException(text)
        self.log.info("%s", text)
        return text


def _end_of(closed: Closed) -> tuple[str, str]:
    whole = Ended(plan="success", groups={}, commit="success", closed=Commit.from_dict(closed.to_dict()))
    outcome = decide(whole)
    return outcome.verdict, outcome.reason
