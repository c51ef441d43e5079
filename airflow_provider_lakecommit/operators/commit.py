# SPDX-License-Identifier: Apache-2.0
"""The commit task: publishes what is settled, tells the control topic, and sends the asset event.

Contract: runs in every run, whatever became of its writers (`all_done`). Its outlet is the landing's asset, so it ends
*skipped* when nothing was published: no event without a snapshot. How it ended is left as an XCom for the outcome task,
also when it skips or fails. Only the tables and the control log say what is published; the plan's XCom is a ticket to
find the cycle by, and without it the cycle is found, or opened empty, by the run's identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_lakecommit.assets import asset_of, event_extra
from airflow_provider_lakecommit.operators.base import (
    CLOSED,
    CYCLE,
    FAILURE,
    LandingTask,
    is_cleared,
    landing_of,
    no_retry_in_vain,
)

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Asset, Context

    from airflow_provider_lakecommit.cycle.results import Closed, CycleTicket
    from airflow_provider_lakecommit.landing import Landing

__all__ = ["LakeCommitOperator"]


class LakeCommitOperator(LandingTask):
    """Publish a landing's finished slices by one Iceberg commit per table, and close the run's commit cycle.

    :param landing: the landing, or the path of its YAML spec
    :param plan_task_id: full id of the plan task of the same run
    :param trigger_rule: by default `all_done`, so that what is finished is published though a group failed
    :param outlets: assets beside that of the landing

    .. seealso:: :ref:`howto/operator:LakeCommitOperator`
    """

    ui_color = "#e0f2e4"

    def __init__(
        self,
        *,
        landing: Landing | str | Path,
        plan_task_id: str,
        trigger_rule: str = TriggerRule.ALL_DONE,
        outlets: Sequence[Asset] | None = None,
        **kwargs: Any,
    ) -> None:
        self.asset = asset_of(landing_of(landing))
        super().__init__(landing=landing, trigger_rule=trigger_rule, outlets=[*(outlets or ()), self.asset], **kwargs)
        self.plan_task_id = plan_task_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish and close."""
        closed = self._close(context)
        told = closed.to_dict()
        context["ti"].xcom_push(CLOSED, told)
        self._tell(closed)
        if not closed.published:
            raise AirflowSkipException(f"nothing was published: {_why_nothing(closed)}")
        context["outlet_events"][self.asset].extra = event_extra(self.landing, closed)
        return told

    def _close(self, context: Context) -> Closed:
        from airflow_provider_lakecommit.cycle.close import close_cycle

        ticket, retry = self._ticket(context), self.is_retry(context)
        # An attempt that died with its work done has sent no event; one that somebody cleared has.
        retell = retry and not is_cleared(context["ti"], self.retries or 0)
        with no_retry_in_vain():
            try:
                with self.rim() as rim:
                    return close_cycle(rim, self.identity(context), ticket, retry=retry, retell=retell)
            except Exception as e:
                context["ti"].xcom_push(CLOSED, {FAILURE: f"{type(e).__name__}: {e}"})
                raise

    def _ticket(self, context: Context) -> CycleTicket | None:
        from airflow_provider_lakecommit.cycle.results import CycleTicket

        found = context["ti"].xcom_pull(task_ids=self.plan_task_id, key=CYCLE, map_indexes=-1)
        return CycleTicket.from_dict(found) if found else None

    def _tell(self, closed: Closed) -> None:
        """One line that says it all, after what needs a person's eye."""
        for what, items in (("voided", closed.voided), ("needs a hand", closed.blocked)):
            for item in items:
                self.log.warning("%s: %s", what, item)
        if closed.ignored_fields:
            self.log.info("fields that the table lacks, by records: %s", dict(closed.ignored_fields))
        self.log.info("%s", _line(closed))


def _why_nothing(closed: Closed) -> str:
    if closed.finished:
        return closed.note or "this run was finished before"
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
