# SPDX-License-Identifier: Apache-2.0
"""`lakecommit backfill` and `lakecommit lanes list|close`: ranges of the topics landed beside the live stream.

Contract: a backfill is a run of `lakecommit land` in a lane, which is closed when all of it is in the tables. The same
words go on with the same lane, and have nothing to do when it is landed. `lanes close` gives up what an open lane has
not landed, once a person agrees.

Failure story: that of :mod:`~airflow_provider_lakecommit.runs.land`. A run that ends before its lane is whole leaves it
open, and says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.landing import LandingSpec
from airflow_provider_lakecommit.lanes.asked import LaneAsked
from airflow_provider_lakecommit.lanes.closing import close_lane, lane_rest
from airflow_provider_lakecommit.lanes.live_first import LiveFirst
from airflow_provider_lakecommit.lanes.opening import joined_session, lane_session
from airflow_provider_lakecommit.lanes.preview import lane_preview
from airflow_provider_lakecommit.lanes.status import OpenLane, open_lanes
from airflow_provider_lakecommit.runs.land import land
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.terminal.confirm import agreed, decision_of
from airflow_provider_lakecommit.terminal.output import Exit, Output

__all__ = ["backfill", "close", "close_if_whole", "list_lanes"]


def backfill(
    spec: LandingSpec,
    output: Output,
    asked: LaneAsked,
    *,
    dry: bool,
    cycles: int | None,
    yield_to_live: timedelta | None = None,
) -> int:
    """Land a lane, or show what it comes to.

    :param yield_to_live: open no window while the live lane has not landed what is older than that
    :raises LakecommitError: what keeps it from being opened, landed or closed
    """
    if dry:
        with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
            found = lane_preview(session, asked)
        if output.is_for_people:
            output.lines(found.lines())
        else:
            output.result({"landing": spec.landing.name, **found.to_dict()})
        return Exit.DONE

    @contextmanager
    def within(session: LandingSession) -> Iterator[LandingSession | None]:
        found = lane_preview(session, asked)
        for line in found.lines():
            output.log(line)
        if found.done:
            output.log("nothing of it is missing: nothing is to be done")
            yield None
            return
        with lane_session(session, found) as own:
            if yield_to_live is not None:
                own.yields = LiveFirst(session=session, older_than=yield_to_live)
            yield own
            close_if_whole(own, output, whole=not lane_rest(own))

    return land(spec, output, cycles=cycles, within=within)


def close_if_whole(session: LandingSession, output: Output, *, whole: bool) -> bool:
    """How a run in a lane ends: the lane is closed, or left to the same words; is it closed?

    :param session: of the lane
    :raises LakecommitError: a table cannot be read or written
    """
    if whole:
        close_lane(session)
    else:
        output.log(f"lane {session.lane} stays open, it lacks {lane_rest(session)}: the same command goes on")
    return whole


def list_lanes(spec: LandingSpec, output: Output) -> int:
    """The lanes that are open, with what they lack.

    :raises LakecommitError: a table cannot be read
    """
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = open_lanes(session)
    if output.is_for_people:
        output.lines([line for lane in found for line in lane.lines()] or ["no lane is open"])
    else:
        output.result({"landing": spec.landing.name, "lanes": [lane.to_dict() for lane in found]})
    return Exit.DONE


def close(spec: LandingSpec, output: Output, *, lane: str, yes: bool, reason: str) -> int:
    """Give up what a lane has not landed.

    :raises LedgerError: there is no such lane
    :raises LakecommitError: a table cannot be read or written
    """
    with LandingSession.connect(spec.landing, spec.kafka, spec.catalog, log=output.log) as session:
        found = _named(open_lanes(session), lane)
        first = "" if found.replaces else ", but for what of it is reported, which is published first where it can be"
        if found.lacking and not agreed(output, [*found.lines(), f"GIVES UP {found.lacking}{first}"], yes=yes):
            return Exit.UNCONFIRMED
        with joined_session(session, found) as own:
            rest = close_lane(own, decision=decision_of("lanes close", spec.landing.name, reason))
        if not output.is_for_people:
            output.result({"landing": spec.landing.name, "closed": lane, "given_up": rest.to_dict()})
    return Exit.DONE


def _named(lanes: tuple[OpenLane, ...], name: str) -> OpenLane:
    found = next((lane for lane in lanes if lane.name == name), None)
    if found is None:
        there = ", ".join(lane.name for lane in lanes) or "none"
        raise LedgerError(f"no lane {name} is open; open are: {there}")
    return found
