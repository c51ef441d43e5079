# SPDX-License-Identifier: Apache-2.0
"""The plan task: opens the run's commit cycle and hands out its window, one entry per partition group.

Contract: returns a list to expand over; it is empty when there is nothing to do, and the write task is then skipped.
The log says why the window ends where it does. A retry continues the cycle that it opened. A cleared run whose window
has landed does nothing and says where its window is; one that lacks something of it goes on as a further cycle, and so
does a run that was deleted and made again under the same id. What runs claim that were deleted, or that have ended
without closing their cycle, is taken over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.operators.base import (
    CYCLE,
    EXPLAIN,
    WINDOW,
    LandingTask,
    leave_failure,
    no_retry_in_vain,
)
from airflow_provider_lakecommit.tasks.ended_runs import EndedRuns
from airflow_provider_lakecommit.telemetry.metrics import opened_samples
from airflow_provider_lakecommit.telemetry.send import send

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle.results import Opened

__all__ = ["PlanWindowOperator"]


class PlanWindowOperator(LandingTask):
    """Plan all missing offset ranges of a landing, oldest first, up to the last stable offset.

    Returns one dict per partition group, for ``WriteWindowOperator.partial(…).expand(group=plan.output)``. The XCom
    `cycle` tells the commit task where the cycle is, `window` and `explain` tell people what is read and why each end
    was chosen.

    :param landing: the landing, or the path of its YAML spec

    .. seealso:: :ref:`howto/operator:PlanWindowOperator`
    """

    opens_cycles: ClassVar[bool] = True
    template_fields: Sequence[str] = ("declared", "window")
    template_fields_renderers: ClassVar[dict[str, str]] = {"declared": "json", "window": "json"}
    overwrite_rtif_after_execution = True
    ui_color = "#e3eef9"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.window: dict[str, Any] | None = None

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Open or continue the cycle."""
        from airflow_provider_lakecommit.cycle.open import open_cycle

        run, again = self.identity(context), self.is_retry(context)
        try:
            with no_retry_in_vain(self), self.session() as session:
                ended = EndedRuns(context["ti"], self.log).of(session)
                opened = open_cycle(session, run, retry=again, release=ended)
                while opened.finished and (opened.lacking or not again):
                    self.log.info("%s; this run goes on as a further cycle", opened.note)
                    run = replace(run, number=run.number + 1)
                    opened = open_cycle(session, run, retry=again, release=ended)
        except Exception as e:
            leave_failure(context, e)
            context["ti"].xcom_push(WINDOW, {"landing": self.landing.name})
            raise
        context["ti"].xcom_push(CYCLE, opened.ticket.to_dict())
        context["ti"].xcom_push(EXPLAIN, list(opened.explain))
        self.window = _window(opened)
        context["ti"].xcom_push(WINDOW, self.window)
        self._tell(opened)
        send(opened_samples(opened))
        return [] if opened.finished else [group.to_dict() for group in opened.groups]

    def _tell(self, opened: Opened) -> None:
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
    """What Airflow's page shows of it among the rendered fields and the XComs. Of a run that was finished before,
    which opens no window, the reason says where its window is.
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
