# SPDX-License-Identifier: Apache-2.0
"""Publish what an open backfill has reported after gaps that a user gives up, before the backfill is closed.

Contract: a slice after a gap waits for it, and the source may have lost its records by the time of a new request. So
the backfill of each table begins after its last gap that is followed by a reported slice; the gaps are recorded with
the user, and the reported slices are published. A backfill that replaces publishes nothing in parts.

Failure story: after a kill, the backfill is open with a range that begins later, or with rows in some tables; the same
command does the rest. What cannot be published is given up with the backfill, as the preview showed.
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


def publish_reported(session: LandingSession, prepared: Prepared, decision: Decision) -> Coverage:
    """Publish reported slices after gaps of a backfill's range; returns the gaps, which are given up.

    :param session: of the backfill
    :param prepared: its tables
    :param decision: the user who closes it
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
