# SPDX-License-Identifier: Apache-2.0
"""A replay: land a range again and replace its rows.

Contract: the task reads its range as a backfill of its own, and publishes nothing until all of it is read. Then each
table gets one snapshot that removes the old rows of the range and adds the new ones, the data table first; the task
closes the backfill. It ends like :class:`~airflow_provider_lakecommit.operators.land.KafkaToIcebergOperator`. A retry
continues its backfill, or reports what an attempt replaced before it died; cleared after a success, it replays again.

Failure story: that of ``KafkaToIcebergOperator``. A task that fails for good before its range is read has changed
nothing and leaves the backfill open: clear the same run, or run `lakecommit backfill --replace` with the same range, to
continue it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from airflow_provider_lakecommit.operators.tasks.decision import decision_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import Closed, LandingSession, RunIdentity
    from airflow_provider_lakecommit.operations import LanePreview

__all__ = ["ReplayOperator"]


class ReplayOperator(BackfillOperator):
    """Land the records of a time, or a range of offsets, again, and replace their rows at once.

    Returns how the run ended, as `KafkaToIcebergOperator` does. Its further parameters are those of
    `BackfillOperator`.

    :param reason: why, for the tables' histories (templated)
    :param fewer: allow this although other writers have deleted rows of the range, which this restores

    .. seealso:: :ref:`howto/operator:ReplayOperator`
    """

    replaces: ClassVar[bool] = True
    template_fields: Sequence[str] = (*BackfillOperator.template_fields, "reason")
    ui_color = "#f0e6e6"

    def __init__(self, *, reason: str = "", fewer: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reason = reason
        self.fewer = fewer
        self._context: Context | None = None
        self._replaced: Closed | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the range again until all of it is reported, and replace it."""
        self._context = context
        return super().execute(context)

    def _done(self, session: LandingSession, found: LanePreview) -> bool:
        if not found.opened and self._context is not None:
            self._replaced = self._replaced_before(session, self._context)
        return found.done or self._replaced is not None

    def _replaced_before(self, session: LandingSession, context: Context, *, own: bool = False) -> Closed | None:
        """Return what attempts of this run have replaced since it was cleared; with ``own``, this one too."""
        from airflow_provider_lakecommit.operations import closed_lane, replaced_before

        ti = context["ti"]
        attempts = range(ti.max_tries - (self.retries or 0) + 1, ti.try_number + own)
        ends = [self._apart(context, "replace", str(number)) for number in attempts]
        lane = closed_lane(session, self.request().name)
        return replaced_before(lane, self.identity(context), ends) if ends else None

    def _landed_before(self, session: LandingSession, context: Context) -> Closed:
        if self._replaced is None:
            return super()._landed_before(session, context)
        self.log.info("all work is done, but no asset event was sent yet: replay %s is complete", self.request().name)
        return self._replaced

    @contextmanager
    def _lane(self, session: LandingSession, found: LanePreview) -> Iterator[LandingSession]:
        from airflow_provider_lakecommit.operations import replaying_session, rows_to_replace

        if (context := self._context) is None:
            raise SpecError("LC8347", "ReplayOperator opens its backfill only in a running task")
        for preview in rows_to_replace(session, found, fewer=self.fewer):
            session.log(f"rows to replace: {preview}")
        decision = decision_of("ReplayOperator", context, self.landing.name, self.reason)
        with replaying_session(session, found, self._apart(context, "level"), decision) as own:
            yield own

    def _ended(self, session: LandingSession, whole: Closed, context: Context) -> Closed:
        """Replace the rows, and close the backfill, if all of it is read."""
        from airflow_provider_lakecommit.operations import close_lane, replace_lane

        closed = replace_lane(session, self._apart(context, "replace"))
        if closed is None:
            return whole
        # Before the backfill is closed: an attempt that died here has sent no event.
        done = self._replaced_before(session, context, own=True) or closed
        close_lane(session)
        return replace(
            closed,
            published=(*whole.published, *done.published),
            ignored_fields=whole.ignored_fields,
            rejects=whole.rejects,
            reject_reason=whole.reject_reason,
        )

    def _apart(self, context: Context, step: str, attempt: str | None = None) -> RunIdentity:
        """Return the identity of a cycle that reads nothing, of this or an earlier attempt."""
        own = self.identity(context)
        return replace(own, run_id=f"{own.run_id}|{step}-{attempt or own.attempt}")
