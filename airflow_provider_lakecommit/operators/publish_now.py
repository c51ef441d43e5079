# SPDX-License-Identifier: Apache-2.0
"""`lakecommit publish-now` as a task: what the running windows of a landing have read is in its tables, without waiting
for them.

Contract: see :mod:`~airflow_provider_lakecommit.repair.publish_now`. The runs of these windows end as ever, with
success: what their windows lack is for later ones, and the notes of the runs say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.declared.times import span_of
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.base import LandingTask, no_retry_in_vain

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["PublishNowOperator"]


class PublishNowOperator(LandingTask):
    """Have the windows that are under way end behind the record in hand, and be published.

    Returns what `lakecommit publish-now --json` prints.

    :param landing: the landing, or the path of its YAML spec
    :param wait: for the runs to publish their windows; what they have not then is published by this task. A timedelta,
        seconds, or a text as ``1m30s``

    .. seealso:: :ref:`howto/operator:PublishNowOperator`
    """

    template_fields: Sequence[str] = ("landing_name",)
    ui_color = "#e6edf0"

    def __init__(
        self, *, landing: Landing | str | Path, wait: timedelta | str | float = timedelta(minutes=1), **kwargs: Any
    ) -> None:
        super().__init__(landing=landing, **kwargs)
        self.wait = span_of(wait, "wait")

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask, wait, publish what is left."""
        from airflow_provider_lakecommit.repair.publish_now import publish_now

        ti = context["ti"]
        who = f"task {ti.task_id} in run {ti.run_id} of DAG {ti.dag_id} wants it published now"
        with no_retry_in_vain(self), self.session() as session:
            done = publish_now(session, self.identity(context), who, wait=self.wait.total_seconds())
        self.log.info("%s", done)
        return {"landing": self.landing.name, **done.to_dict()}
