# SPDX-License-Identifier: Apache-2.0
"""A range that the table has landed again: the records of the run's data interval, or what is stated.

Contract: the task reads its range in a lane of its own, of which nothing is published before all of it is read. Then
each table gets one snapshot in which the old rows of the range go and the new ones come, the data table first; the lane
is closed. It ends as :class:`~airflow_provider_lakecommit.operators.land.KafkaToIcebergOperator` does. Tried again, it
goes on with its own lane, or tells what an attempt has replaced that died before it could say so; cleared after it has
succeeded, it replays once more.

Failure story: that of ``KafkaToIcebergOperator``. A task that ends for good before its range is read has changed
nothing and leaves the lane open: the same run cleared, or the same range by `lakecommit backfill --replace`, goes on
with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operators.backfill import BackfillOperator
from airflow_provider_lakecommit.operators.decisions.operation import decision_of

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
    :param fewer: take it that others have deleted rows of the range, which come back

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
        """What attempts of this run have replaced, since it was cleared.

        :param own: also what this one has
        """
        from airflow_provider_lakecommit.operations import closed_lane, replaced_before

        ti = context["ti"]
        attempts = range(ti.max_tries - (self.retries or 0) + 1, ti.try_number + own)
        ends = [self._apart(context, "replace", str(number)) for number in attempts]
        lane = closed_lane(session, self.asked().name)
        return replaced_before(lane, self.identity(context), ends) if ends else None

    def _landed_before(self, session: LandingSession, context: Context) -> Closed:
        if self._replaced is None:
            return super()._landed_before(session, context)
        self.log.info("all is done already, and no event has said so: lane %s was replaced", self.asked().name)
        return self._replaced

    @contextmanager
    def _lane(self, session: LandingSession, found: LanePreview) -> Iterator[LandingSession]:
        from airflow_provider_lakecommit.operations import replaying_session, rows_to_replace

        if (context := self._context) is None:
            raise SpecError("LC8347", "ReplayOperator opens its lane in a task only")
        for preview in rows_to_replace(session, found, fewer=self.fewer):
            session.log(f"to be replaced: {preview}")
        decision = decision_of("ReplayOperator", context, self.landing.name, self.reason)
        with replaying_session(session, found, self._apart(context, "level"), decision) as own:
            yield own

    def _ended(self, session: LandingSession, whole: Closed, context: Context) -> Closed:
        """Replace what the tables have, and close the lane, if all of it is read."""
        from airflow_provider_lakecommit.operations import close_lane, replace_lane

        closed = replace_lane(session, self._apart(context, "replace"))
        if closed is None:
            return whole
        # Before the lane is closed: an attempt that died here has told nobody.
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
        """Whose cycle it is that reads nothing: of this attempt, or of an earlier one, apart from those that do."""
        own = self.identity(context)
        return replace(own, run_id=f"{own.run_id}|{step}-{attempt or own.attempt}")
