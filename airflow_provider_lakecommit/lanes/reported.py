# SPDX-License-Identifier: Apache-2.0
"""What an open lane has reported behind a hole that a person gives up: it is published before the lane is closed.

Contract: where the source has removed the begin of a lane's range, what was read behind it waits for that begin, and
the source may have it no more by the time that somebody asks for it again. So the lane of each table begins behind what
nobody has landed or reported, which is recorded with who gave it up, and what is connected then is published. Of a lane
that replaces nothing is published in parts.

Failure story: killed in between, the lane is open with a range that begins later, or with rows in some tables; the same
command does the rest. What cannot be published is given up with the lane, as the person was shown.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_lakecommit.committer.ledger_updates import change_section
from airflow_provider_lakecommit.committer.summary import SnapshotKind
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.cycle.drain import drain
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.prepare.tables import Prepared
from airflow_provider_lakecommit.session.landing_session import LandingSession, RunIdentity

__all__ = ["publish_reported"]


def publish_reported(session: LandingSession, prepared: Prepared, decision: Decision) -> Coverage:
    """Publish what a lane has reported behind the begin of its range; returns what of that begin is given up.

    :param session: of the lane
    :param prepared: its tables
    :param decision: of the person who closes it
    :raises LakecommitError: a table cannot be written
    """
    if any(t.ledger.section.replaces for t in prepared.tables):
        return Coverage()
    left_out, accepted = Coverage(), session.read_state(prepared.ledgers).state.accepted
    for t in prepared.tables:
        reported = Coverage.union(a.coverage for a in accepted[t.name])
        later = _later(t.ledger.section, reported, t.ledger.all_covered | reported)
        if not later:
            continue
        given_up = Coverage({p: RangeSet.of((t.ledger.section.starts[p], start)) for p, start in later.items()})
        left_out |= given_up
        session.log(f"{t.name}: gives up {given_up}, so that what is reported behind it can be published")
        change_section(
            session.tables,
            t.name,
            session.landing.name,
            session.lane,
            SnapshotKind.INIT,
            lambda s, later=later: replace(s, starts={**s.starts, **later}),  # type: ignore[misc]
            branch=session.landing.branch,
            decision=replace(decision, what=f"gives up {given_up}"),
        )
    run = RunIdentity(deployment="person", dag_id="lanes close", run_id=str(session.new_id()))
    try:
        drain(session, run, "publishes what is reported before the lane is closed")
    except LakecommitError as e:
        session.log(f"what is reported could not all be published: {e}")
    return left_out


def _later(section: LedgerSection, reported: Coverage, has: Coverage) -> dict[SourcePartition, int]:
    """Where partitions begin whose first records nobody has landed or reported, and later ones somebody has."""
    out = {}
    for p, r in section.bounds.parts.items():
        there = has[p] & r
        if reported[p] and there and there.ranges[0].start > section.starts.get(p, 0):
            out[p] = there.ranges[0].start
    return out
