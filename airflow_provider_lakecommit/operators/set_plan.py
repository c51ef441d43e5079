# SPDX-License-Identifier: Apache-2.0
"""The plan task of a landing set: finds its landings, opens the run's cycle of each, and deals out what there is.

Contract: returns a list to expand over, one bundle of partition groups for each write task; it is empty when there is
nothing to do. What the tasks behind it need to know of each landing is in the XCom `cycles`, what has no landing or
could not be planned in `failed`. A retry continues the cycles that are open. A scheduled run opens no cycle of a
landing that has nothing to do (:mod:`~airflow_provider_lakecommit.many.idle`).

Failure story: a landing that cannot be planned is named, and stops none. The task fails where none can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.hooks.secrets import told
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain
from airflow_provider_lakecommit.operators.set_task import SetTask, named_failures
from airflow_provider_lakecommit.tasks.ended_runs import EndedRuns
from airflow_provider_lakecommit.telemetry.metrics import opened_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.results import GroupTicket, Opened
    from airflow_provider_lakecommit.many.expansion import Expansion
    from airflow_provider_lakecommit.many.plans import SetPlans
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["CYCLES", "FAILED", "PlanLandingSetOperator"]

CYCLES, FAILED = "cycles", "failed"
"""XCom keys: the landings and where their cycles are; what failed, by landing or topics."""

BY_ITSELF = ("scheduled", "asset_triggered")
"""Types of runs that nobody triggered."""


class PlanLandingSetOperator(SetTask):
    """Open the run's cycle of each landing of a set, and hand out their partition groups in bundles of equal load.

    :param landing_set: the set, or the path of its YAML spec
    :param tasks: most write tasks

    .. seealso:: :doc:`/howto/many_topics`
    """

    ui_color = "#e3eef9"

    def __init__(self, *, landing_set: LandingSet | str | Path, tasks: int = 4, **kwargs: Any) -> None:
        super().__init__(landing_set=landing_set, **kwargs)
        self.tasks = tasks

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Find, open, deal."""
        from airflow_provider_lakecommit.many.bundles import BundledGroup, dealt, label_of

        with no_retry_in_vain():
            expansion, plans = self._planned(context)
        failed = {name: told(each) for name, each in plans.failed.items()}
        failed |= {f"topics {', '.join(t.topics)}": t.why for t in expansion.troubles}
        context["ti"].xcom_push(FAILED, failed)
        cycles = [
            {"landing": plans.landings[n].to_dict(), "cycle": o.ticket.to_dict()} for n, o in plans.opened.items()
        ]
        context["ti"].xcom_push(CYCLES, cycles)
        self._tell(expansion, plans, failed)
        if failed and not plans.opened and not plans.nothing:
            raise LakecommitError("no landing could be planned: " + named_failures(failed))
        groups = [
            BundledGroup(landing=plans.landings[n], ticket=t) for n, o in plans.opened.items() for t in _groups(o)
        ]
        bundles = dealt(groups, self.tasks)
        return [{"label": label_of(bundle), "groups": [each.to_dict() for each in bundle]} for bundle in bundles]

    def _planned(self, context: Context) -> tuple[Expansion, SetPlans]:
        from airflow_provider_lakecommit.cycle.open import open_cycle
        from airflow_provider_lakecommit.many.connections import found_landings
        from airflow_provider_lakecommit.many.plans import plans_of

        run, retry = LandingTask.identity(context), LandingTask.is_retry(context)
        ended_runs = EndedRuns(context["ti"], self.log)
        kind = context["dag_run"].run_type
        # Who triggers a run by hand may have done something that the log does not tell.
        skip_idle = not retry and getattr(kind, "value", kind) in BY_ITSELF

        def plan(session: LandingSession) -> Opened:
            return open_cycle(session, run, retry=retry, release=ended_runs.of(session))

        with self.places() as at:
            expansion = found_landings(at.declared, at.kafka)
            with at.connect(expansion) as connections:
                return expansion, plans_of(
                    at.declared,
                    expansion,
                    connections,
                    at.kafka,
                    at.tables,
                    plan,
                    self.log_line,
                    skip_idle=skip_idle,
                )

    def _tell(self, expansion: Expansion, plans: SetPlans, failed: Mapping[str, str]) -> None:
        """In the log, and by metrics of each landing's own name."""
        for name, why in failed.items():
            self.log.error("%s: %s", name, why)
        for name, why in plans.nothing.items():
            self.log.info("%s: %s", name, why)
        for gone in plans.gone:
            self.log.warning("%s", gone)
        for topic in expansion.ignored:
            self.log.info("topic %s matches no rule and is ignored, as `unmatched` says", topic)
        busy = {name: sum(t.records for t in _groups(o)) for name, o in plans.opened.items() if _groups(o)}
        self.log.info(
            "%d landings: %d records of %d of them are to be read; %d failed; no cycle of %d, which have nothing",
            len(expansion.landings),
            sum(busy.values()),
            len(busy),
            len(failed),
            len(plans.nothing),
        )
        send(sample for opened in plans.opened.values() for sample in opened_samples(opened))


def _groups(opened: Opened) -> Sequence[GroupTicket]:
    return () if opened.finished else opened.groups
