# SPDX-License-Identifier: Apache-2.0
"""`lakecommit suspend`, `resume` and `drain` as tasks.

Contract: see :mod:`~airflow_provider_lakecommit.repair.suspend`. They give nothing up, so no person is asked; who said
it is the task, with its run.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.declared.times import span_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain
from airflow_provider_lakecommit.operators.decision import decision_of

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["DrainOperator", "ResumeOperator", "SuspendOperator"]


class SuspendOperator(LandingTask):
    """Plan no more windows of a landing, whoever runs it, until it is resumed; what is reported is published.

    Returns what `lakecommit suspend --json` prints.

    :param landing: the landing, or the path of its YAML spec
    :param reason: why, kept in the table's history (templated)

    .. seealso:: :ref:`howto/operator:SuspendOperator`
    """

    template_fields: Sequence[str] = ("landing_name", "reason")
    ui_color = "#f6e3e3"
    command: ClassVar[str] = "suspend"

    def __init__(self, *, landing: Landing | str | Path, reason: str = "", **kwargs: Any) -> None:
        super().__init__(landing=landing, **kwargs)
        self.reason = reason

    def execute(self, context: Context) -> dict[str, Any]:
        """Say it."""
        from airflow_provider_lakecommit.repair import suspend

        say = suspend.resume if self.command == "resume" else suspend.suspend
        with no_retry_in_vain(self), self.session() as session:
            said = say(session, self._decision(context))
            self.log.info("landing %s %s", self.landing.name, said)
            if self.command != "drain":
                return {"landing": self.landing.name, **said.to_dict()}
            from airflow_provider_lakecommit.repair.publish_now import publish_now

            why = f"the landing is drained by {self._decision(context).actor}"
            done = publish_now(session, self.identity(context), why, wait=self._wait.total_seconds())
        self.log.info("%s", done)
        return {"landing": self.landing.name, **said.to_dict(), "published": done.to_dict()}

    _wait = timedelta(minutes=1)

    def _decision(self, context: Context) -> Decision:
        return decision_of(self.command, context, self.landing.name, self.reason)


class ResumeOperator(SuspendOperator):
    """Plan windows of a landing again.

    Returns what `lakecommit resume --json` prints.

    :param landing: the landing, or the path of its YAML spec
    :param reason: why, kept in the table's history (templated)

    .. seealso:: :ref:`howto/operator:ResumeOperator`
    """

    command = "resume"


class DrainOperator(SuspendOperator):
    """Plan no more windows of a landing, and publish what has been read of those under way.

    Returns what `lakecommit drain --json` prints.

    :param landing: the landing, or the path of its YAML spec
    :param reason: why, kept in the table's history (templated)
    :param wait: for the runs to publish their windows; what they have not then is published by this task. A timedelta,
        seconds, or a text as ``1m30s``

    .. seealso:: :ref:`howto/operator:DrainOperator`
    """

    command = "drain"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        reason: str = "",
        wait: timedelta | str | float = timedelta(minutes=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(landing=landing, reason=reason, **kwargs)
        self._wait = span_of(wait, "wait")
