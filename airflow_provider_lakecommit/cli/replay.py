# SPDX-License-Identifier: Apache-2.0
"""`lakecommit replay`: a range that the table has is landed again, and its rows are replaced at once.

Contract: a run of `lakecommit land` in a lane of which nothing is published before all of it is read; then each table
is replaced in one snapshot, the data table first, and the lane is closed. A person agrees before the lane is opened.
The same words go on with a lane that is open; when it is closed they begin anew.

Failure story: that of :mod:`~airflow_provider_lakecommit.runs.land`. Until the last step readers see the old rows, so
that a run which ends before it has changed nothing; `lakecommit lanes close` gives it up.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from airflow_provider_lakecommit.cli.lanes import close_if_whole
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.lanes.asked import LaneAsked
from airflow_provider_lakecommit.lanes.live_first import LiveFirst
from airflow_provider_lakecommit.lanes.preview import LanePreview, lane_preview
from airflow_provider_lakecommit.lanes.replaying import replace_lane, replaying_session, rows_to_replace
from airflow_provider_lakecommit.replace.replace import ReplacePreview
from airflow_provider_lakecommit.runs.land import land
from airflow_provider_lakecommit.runs.process import identity
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.confirm import agreed, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["Replay"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What was asked for on the command line.

    :param fewer: take it that a table has fewer rows of the range than were landed
    :param yield_to_live: open no window while the live lane has not landed what is older than that
    """

    spec: LandingSpec
    output: Output
    asked: LaneAsked
    fewer: bool
    yes: bool
    reason: str
    yield_to_live: timedelta | None = None

    def dry_run(self) -> int:
        """Show what it comes to; nothing is written.

        :raises LakecommitError: what keeps it from being opened
        """
        found, previews = self._look(fewer=True)
        if self.output.is_for_people:
            self.output.lines(_lines(found, previews))
        else:
            tables = {p.table: {**p.replaced.counts, "expected_rows": p.expected} for p in previews}
            self.output.result({"landing": self.spec.landing.name, **found.to_dict(), "tables": tables})
        return Exit.DONE

    def run(self, cycles: int | None) -> int:
        """Land it anew.

        :param cycles: at most so many; the rest is left for the same words
        :raises LakecommitError: what keeps it from being opened, landed or replaced
        """
        found, previews = self._look(fewer=self.fewer)
        lines = list(_lines(found, previews))
        if not found.opened and not agreed(self.output, lines, yes=self.yes):
            return Exit.UNCONFIRMED
        return land(self.spec, self.output, cycles=cycles, within=self._within)

    def _look(self, *, fewer: bool) -> tuple[LanePreview, tuple[ReplacePreview, ...]]:
        spec = self.spec
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=self.output.log) as session:
            found = lane_preview(session, self.asked)
            return found, rows_to_replace(session, found, fewer=fewer)

    @contextmanager
    def _within(self, session: LandingSession) -> Iterator[LandingSession | None]:
        found, run = lane_preview(session, self.asked), identity(uuid4())
        decision = decision_of("replay", self.spec.landing.name, self.reason)
        with replaying_session(session, found, run, decision) as own:
            if self.yield_to_live is not None:
                own.yields = LiveFirst(session=session, older_than=self.yield_to_live)
            yield own
            closed = replace_lane(own, run)
            close_if_whole(own, self.output, whole=closed is not None)
            if closed is not None and not self.output.is_for_people:
                self.output.result({"landing": self.spec.landing.name, **closed.to_dict()})


def _lines(found: LanePreview, previews: tuple[ReplacePreview, ...]) -> Iterator[str]:
    yield from found.lines()
    yield from (f"REPLACES {preview}" for preview in previews)
