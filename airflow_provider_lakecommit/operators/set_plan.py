# SPDX-License-Identifier: Apache-2.0
"""The plan task of a landing set: finds its landings, opens the run's cycle of each, and deals out what there is.

Contract: returns a list to expand over, one bundle of partition groups for each write task; it is empty when there is
nothing to do. What the tasks behind it need to know of each landing is in the XCom `cycles`, what has no landing or
could not be planned in `failed`. A retry continues the cycles that are open.

Failure story: a landing that cannot be planned is named, and stops none. The task fails where none can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.hooks.secrets import told
from airflow_provider_lakecommit.landing_set import LandingSet
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain
from airflow_provider_lakecommit.operators.set_task import SetTask

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.results import Opened
    from airflow_provider_lakecommit.landing import Landing
    from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["CYCLES", "FAILED", "PlanLandingSetOperator"]

CYCLES, FAILED = "cycles", "failed"
"""XCom keys: the landings and where their cycles are; what failed, by landing or topics."""


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
            landings, opened, failed = self._opened(context)
        context["ti"].xcom_push(FAILED, failed)
        context["ti"].xcom_push(
            CYCLES, [{"landing": landings[n].to_dict(), "cycle": o.ticket.to_dict()} for n, o in opened.items()]
        )
        for name, why in failed.items():
            self.log.error("%s: %s", name, why)
        groups = [BundledGroup(landing=landings[n], ticket=t) for n, o in opened.items() for t in _groups(o)]
        self.log.info(
            "%d landings: %d records of %d of them are to be read; %d failed",
            len(landings),
            sum(g.ticket.records for g in groups),
            len({g.landing.name for g in groups}),
            len(failed),
        )
        if not opened:
            raise LakecommitError("no landing could be planned: " + "; ".join(f"{n}: {w}" for n, w in failed.items()))
        bundles = dealt(groups, self.tasks)
        return [{"label": label_of(bundle), "groups": [each.to_dict() for each in bundle]} for bundle in bundles]

    def _opened(self, context: Context) -> tuple[dict[str, Landing], dict[str, Opened], dict[str, str]]:
        from airflow_provider_lakecommit.cycle.open import open_cycle
        from airflow_provider_lakecommit.many.connections import found_landings
        from airflow_provider_lakecommit.many.schemas import with_schema
        from airflow_provider_lakecommit.many.steps import for_all

        run, retry = LandingTask.identity(context), LandingTask.is_retry(context)
        is_over = self.ended_runs(context["ti"])
        with self.places() as at:
            expansion = found_landings(at.declared, at.kafka)
            landings = {each.name: each for each in expansion.landings}

            def step(session: LandingSession) -> Opened:
                name = session.landing.name
                session.landing = landings[name] = with_schema(at.declared, session.landing, at.kafka, at.tables)
                return open_cycle(session, run, retry=retry, release=is_over)

            with at.connect(expansion) as connections:
                ended = for_all(connections, expansion.landings, step, self.log_line)
        opened = {name: each for name, each in ended.items() if not isinstance(each, BaseException)}
        failed = {name: told(each) for name, each in ended.items() if isinstance(each, BaseException)}
        failed |= {f"topics {', '.join(t.topics)}": t.why for t in expansion.troubles}
        for topic in expansion.ignored:
            self.log.info("topic %s matches no rule and is ignored, as `unmatched` says", topic)
        return landings, opened, failed


def _groups(opened: Opened) -> Any:
    return () if opened.finished else opened.groups
