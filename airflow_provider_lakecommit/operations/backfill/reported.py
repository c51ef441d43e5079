# SPDX-License-Identifier: Apache-2.0
"""What an open lane has reported behind holes that a person gives up: it is published before the lane is closed.

Contract: what was read behind a hole waits for it, and the source may have it no more by the time that somebody asks
for it again. So the lane of each table begins behind its last hole that something reported follows, which is recorded
with who gave the holes up, and what is reported is published then. Of a lane that replaces nothing is published in
parts.

Failure story: killed in between, the lane is open with a range that begins later, or with rows in some tables; the same
command does the rest. What cannot be published is given up with the lane, as the person was shown.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_lakecommit.committer import SnapshotKind, change_section
from airflow_provider_lakecommit.core import (
    BACKFILL,
    Coverage,
    Decision,
    LedgerSection,
    RangeSet,
    SourcePartition,
    spoken,
)
from airflow_provider_lakecommit.cycle import LandingSession, Prepared, RunIdentity, drain
from airflow_provider_lakecommit.exceptions import LakecommitError

__all__ = ["publish_reported"]


def publish_reported(session: LandingSession, prepared: Prepared, decision: Decision) -> Coverage:
    """Publish what a lane has reported behind holes of its range; returns the holes, which are given up.

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
        passed = Coverage({p: RangeSet.of((t.ledger.section.starts[p], start)) for p, start in later.items()})
        given_up = passed - t.ledger.all_covered - reported
        left_out |= given_up
        session.log(f"{t.name}: gives up {given_up}, so that the slices reported after it can be published")
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
    run = RunIdentity(deployment="person", dag_id=f"{spoken(BACKFILL)} --close", run_id=str(session.new_id()))
    try:
        drain(session, run, "publishes reported slices before the backfill is closed")
    except LakecommitError as e:
        session.log(f"could not publish all reported slices: {e}")
    return left_out


def _later(section: LedgerSection, reported: Coverage, has: Coverage) -> dict[SourcePartition, int]:
    """Return where partitions begin whose last hole is before something that is reported."""
    out = {}
    for p, bounds in section.bounds.parts.items():
        start = section.starts.get(p, 0)
        behind = [r.start for r in has[p] & bounds if r.start > has[p].reach(start) and reported[p] & RangeSet.of(r)]
        if behind:
            out[p] = behind[-1]
    return out
