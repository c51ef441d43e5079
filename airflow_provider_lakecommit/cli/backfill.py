# SPDX-License-Identifier: Apache-2.0
"""`lakecommit backfill`: land a range alongside the live stream, or land it again and replace its rows.

A backfill is a run of `lakecommit land` in a stream of its own, closed when the tables have all of it. With
``--replace`` all of it is read first; then each table is replaced in one snapshot, the data table first. The same
command continues an open backfill. Readers of a replaced range see its old rows until the last step.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from uuid import uuid4

from airflow_provider_lakecommit.cli.runs.land import land
from airflow_provider_lakecommit.cli.runs.process import identity
from airflow_provider_lakecommit.cli.terminal.confirm import decision_of, ends_with_preview
from airflow_provider_lakecommit.cli.terminal.output import Exit, Output
from airflow_provider_lakecommit.core import BACKFILL, spoken
from airflow_provider_lakecommit.cycle import LandingSession, open_lanes
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.operations import (
    LaneRequest,
    ReplacePreview,
    close_lane,
    joined_session,
    lane_preview,
    lane_request,
    lane_rest,
    lane_session,
    live_first,
    parse_ranges,
    replace_lane,
    replaying_session,
    rows_to_replace,
)


def backfill(spec: LandingSpec, options: Namespace, output: Output) -> int:
    """Land a range, replace it, or list or close open backfills."""
    if options.list or options.close:
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            if options.close:
                return _close(session, options, output)
            lanes = open_lanes(session)
        values = {"landing": spec.landing.name, "lanes": [lane.to_dict() for lane in lanes]}
        output.answer(values, [line for lane in lanes for line in lane.lines()] or ["no backfill is open"])
        return Exit.DONE
    requested = lane_request(
        since=options.since,
        until=options.until,
        ranges=parse_ranges(options.range or ()),
        name=options.lane,
        replaces=options.replace,
    )
    if options.max_records is not None:
        spec = replace(spec, landing=spec.landing.changed(window={"max_records": options.max_records}))
    return _Backfill(spec, requested, options, output).run()


class _Backfill:
    def __init__(self, spec: LandingSpec, requested: LaneRequest, options: Namespace, output: Output) -> None:
        self.spec, self.requested, self.options, self.output = spec, requested, options, output

    def run(self) -> int:
        if (self.requested.replaces or self.options.dry_run) and (code := self._preview()) is not None:
            return code
        within = self._replaced if self.requested.replaces else self._landed
        return land(self.spec, self.output, cycles=self.options.cycles, within=within)

    def _preview(self) -> int | None:
        spec, options = self.spec, self.options
        previews: tuple[ReplacePreview, ...] = ()
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=self.output.log) as session:
            found = lane_preview(session, self.requested)
            if self.requested.replaces:
                previews = rows_to_replace(session, found, fewer=options.fewer or options.dry_run)
        tables = {p.table: {**p.replaced.counts, "expected_rows": p.expected} for p in previews}
        more = {"tables": tables} if self.requested.replaces else {}
        values = {"landing": spec.landing.name, **found.to_dict(), **more}
        # A replacement in progress was approved already.
        gives_up = self.requested.replaces and not found.opened
        lines = [*found.lines(), *(f"REPLACES {preview}" for preview in previews)]
        return ends_with_preview(options, self.output, values, lines, gives_up=gives_up)

    @contextmanager
    def _landed(self, session: LandingSession) -> Iterator[LandingSession | None]:
        found = lane_preview(session, self.requested)
        for line in found.lines():
            self.output.log(line)
        if found.done:
            self.output.log("nothing of it is missing: nothing to do")
            yield None
            return
        with lane_session(session, found) as own:
            yield self._yielding(own, session)
            self._end(own, whole=not lane_rest(own))

    @contextmanager
    def _replaced(self, session: LandingSession) -> Iterator[LandingSession | None]:
        found, run = lane_preview(session, self.requested), identity(uuid4())
        decision = decision_of(f"{spoken(BACKFILL)} --replace", self.spec.landing.name, self.options.reason)
        with replaying_session(session, found, run, decision) as own:
            yield self._yielding(own, session)
            closed = replace_lane(own, run)
            self._end(own, whole=closed is not None)
            if closed is not None:
                self.output.answer({"landing": self.spec.landing.name, **closed.to_dict()})

    def _yielding(self, own: LandingSession, session: LandingSession) -> LandingSession:
        if self.options.yield_to_live is not None:
            own.yields = partial(live_first, session, self.options.yield_to_live)
        return own

    def _end(self, own: LandingSession, *, whole: bool) -> None:
        """Close a complete backfill; leave an incomplete one open, for another run of the same command."""
        if whole:
            close_lane(own)
        else:
            self.output.log(f"backfill {own.lane} stays open, {lane_rest(own)} is missing: run the command again")


def _close(session: LandingSession, options: Namespace, output: Output) -> int:
    name = session.landing.name
    lanes = open_lanes(session)
    found = next((lane for lane in lanes if lane.name == options.close), None)
    if found is None:
        there = ", ".join(lane.name for lane in lanes) or "none"
        raise LedgerError("LC8002", f"backfill {options.close} is not open; open backfills: {there}")
    first = "" if found.replaces else ", except reported slices, which are published first if possible"
    with joined_session(session, found) as own:
        lacking = lane_rest(own, some=True)
        lines = [*found.lines(), f"GIVES UP {lacking}{first}" if lacking else "gives up nothing"]
        if (code := ends_with_preview(options, output, {"landing": name, **found.to_dict()}, lines)) is not None:
            return code
        rest = close_lane(own, decision=decision_of(f"{spoken(BACKFILL)} --close", name, options.reason))
    output.answer({"landing": name, "closed": options.close, "given_up": rest.to_dict()})
    return Exit.DONE
