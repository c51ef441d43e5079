# SPDX-License-Identifier: Apache-2.0
"""`lakecommit pause`, `pause --drain` and `resume` as a task.

Contract: see :mod:`~airflow_provider_lakecommit.operations.decisions.pause`. They give nothing up, so they need no
approval; the task with its run is the decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core import PAUSE, RESUME, spoken
from airflow_provider_lakecommit.landing import Landing, span_of
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain
from airflow_provider_lakecommit.operators.tasks.arguments import one_of
from airflow_provider_lakecommit.operators.tasks.decision import decision_of

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["PauseLandingOperator"]

DRAIN = "drain"
COMMANDS: Mapping[str, str] = {
    spoken(PAUSE): spoken(PAUSE),
    DRAIN: f"{spoken(PAUSE)} --drain",
    spoken(RESUME): spoken(RESUME),
}
"""Commands by actions."""


class PauseLandingOperator(LandingTask):
    """Stop planning new windows of a landing, in every DAG and command; finished ones are still published.

    Returns the output of `lakecommit pause --json` or `resume --json`.

    :param landing: the landing, or the path of its YAML spec
    :param action: ``pause``; ``drain``: also publish what open windows have read; ``resume``: plan windows again
    :param reason: why, kept in the table's history (templated)
    :param wait: with ``drain``: time that the runs have to publish their windows; this task publishes the rest. A
        timedelta, seconds, or a text such as ``1m30s``

    .. seealso:: :ref:`howto/operator:PauseLandingOperator`
    """

    template_fields: Sequence[str] = ("landing_name", "reason")
    ui_color = "#f6e3e3"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        action: str = spoken(PAUSE),
        reason: str = "",
        wait: timedelta | str | float = timedelta(minutes=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.action = one_of(action, COMMANDS, f"PauseLandingOperator {self.task_id!r}: action")
        self.reason = reason
        self.wait = span_of(wait, "wait")

    def execute(self, context: Context) -> dict[str, Any]:
        """Pause, drain or resume."""
        from airflow_provider_lakecommit.operations.decisions import pause

        set_to = pause.resume if self.action == spoken(RESUME) else pause.suspend
        decision = decision_of(COMMANDS[self.action], context, self.landing.name, self.reason)
        with no_retry_in_vain(self), self.session() as session:
            result = set_to(session, decision)
            if self.action == DRAIN:
                from airflow_provider_lakecommit.operations import publish_now

                why = f"{decision.actor} drains the landing"
                run, wait = self.identity(context), self.wait.total_seconds()
                result["published"] = publish_now(session, run, why, wait=wait)
        return result
