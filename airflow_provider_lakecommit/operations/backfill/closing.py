# SPDX-License-Identifier: Apache-2.0
"""The end of a lane: what it has landed becomes the landing's, and its section is gone.

Contract: by one compare-and-swap per table the lane's section is taken out, and what it has goes to the landing's
section ``filled``. What a table has passed without a row, by the log, goes with it. The data table comes last, so that
a lane is open as long as any table has it. Nobody can commit to a lane that is closed: it has no section, and one that
is opened again under its name has another epoch.

Closing a lane needs no source. Where the brokers that answer are of another cluster than the one that the lane landed
from, its control log is not there to be read: the lane is closed by what the ledgers of its tables have, and nothing of
what it has reported can be published any more.

Failure story: a lane that is not whole is refused, unless a person gives up the rest, which is recorded; what is
reported of it is published first (:mod:`~airflow_provider_lakecommit.operations.backfill.reported`). Killed in between,
the same command closes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.committer import Condition, LedgerState, require_ledger
from airflow_provider_lakecommit.committer.merge_section import merge_section
from airflow_provider_lakecommit.core import BACKFILL, Coverage, Decision, passed_by_all, same_readings
from airflow_provider_lakecommit.cycle import LandingSession, Prepared, ledger_state, prepare_for_commit, prepared_table
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.operations.backfill.reported import publish_reported

__all__ = ["close_lane", "lane_rest", "lane_tables"]


def lane_rest(session: LandingSession, *, some: bool = False) -> Coverage:
    """What some table lacks of the lane's range; what is reported and not published counts as lacking.

    :param session: of the lane
    :param some: a table in which the lane is not open any more is left out
    :raises LakecommitError: a table cannot be read
    """
    prepared = lane_tables(session, some=some)
    return Coverage.union(_lacking(session, prepared).values())


def close_lane(session: LandingSession, *, decision: Decision | None = None) -> Coverage:
    """Close the lane of a session; returns what was given up of its range.

    :param decision: of the person who gives up what is not landed; without one that is refused
    :raises LedgerError: it is not whole
    :raises LakecommitError: a table cannot be read or written
    """
    prepared = lane_tables(session, some=decision is not None)
    left_out = Coverage()
    if decision is not None and _has_log(session, prepared) and any(_lacking(session, prepared).values()):
        left_out = publish_reported(session, prepared, decision)
        prepared = lane_tables(session, some=True)
    lacking = _lacking(session, prepared)
    rest = Coverage.union(lacking.values()) | left_out
    if rest and decision is None:
        raise LedgerError(
            "LC7206", f"backfill {session.lane} of landing {session.landing.name} is not complete: it lacks {rest}"
        )
    if (half := _half_replaced(session, prepared, lacking)) and _can_be_read(session, rest):
        raise LedgerError(
            "LC7207",
            f"backfill {session.lane} of landing {session.landing.name} has replaced its range only in "
            f"{', '.join(half)}: closed now, a record could end in two tables, or in none. Run `{BACKFILL} SPEC "
            f"--replace --name {session.lane}` to replace the rest",
        )
    passed = _passed(session, prepared)
    for t in reversed(prepared.tables):
        had = passed.get(t.name, Coverage()) & t.ledger.section.bounds - t.ledger.section.covered
        told = (
            None
            if decision is None
            else replace(decision, what=f"closes the backfill, gives up {lacking.get(t.name, rest)}")
        )
        merge_section(
            session.tables,
            t.name,
            (session.landing.name, session.lane),
            had=had,
            cluster_id=session.control.describe().cluster_id,
            branch=session.landing.branch,
            decision=told,
        )
    session.log(f"closed backfill {session.lane}, " + (f"{rest} is given up" if rest else "its range is in the tables"))
    return rest


def lane_tables(session: LandingSession, *, some: bool = False) -> Prepared:
    """Every table of a lane, as it is now.

    :param some: a table in which it is not open any more, as one that was rolled back, is left out
    :raises LakecommitError: one cannot be read, or the lane is not open there
    """
    cluster = session.control.ensure().cluster_id
    found = {name: state for name in session.landing.tables if (state := ledger_state(session, name)) is not None}
    sections = {name: state.section(session.landing.name, session.lane) for name, state in found.items()}
    if any(s is not None and s.cluster_id != cluster for s in sections.values()):
        return _as_they_are(session, found)
    prepared = prepare_for_commit(session)
    without = {name for name, section in sections.items() if section is None}
    for name, failure in prepared.failures.items():
        if not some or name not in without or without >= found.keys():
            raise failure
    return prepared


def _has_log(session: LandingSession, prepared: Prepared) -> bool:
    """Return True if the control topic that answers is of the cluster that the lane lands from."""
    cluster = session.control.describe().cluster_id
    return all(t.ledger.section.cluster_id == cluster for t in prepared.tables)


def _as_they_are(session: LandingSession, found: Mapping[str, LedgerState]) -> Prepared:
    """Return the tables that have the lane, without what a control log would tell of them.

    :raises LedgerError: the ledger of one needs a decision first
    """
    tables = []
    for name, state in found.items():
        require_ledger(state, name)
        if state.condition is Condition.ROLLED_BACK:
            raise LedgerError(
                "LC7208", f"{name}: {state.reason}; restore the branch, then close backfill {session.lane}"
            )
        if state.section(session.landing.name, session.lane) is not None:
            tables.append(prepared_table(session, name, session.tables.load(name), state))
    return Prepared(tables=tuple(tables))


def _can_be_read(session: LandingSession, rest: Coverage) -> bool:
    """Return True if the source still has the topics of these ranges."""
    return {*rest.parts} <= {*session.source.watermarks(missing_ok=True).partitions}


def _half_replaced(session: LandingSession, prepared: Prepared, lacking: Mapping[str, Coverage]) -> list[str]:
    """Return the tables that a lane has replaced ranges in which another table does not have of the same reading. After
    a rollback of one table the lane can be open there alone, and whole in the others.
    """
    done = [t for t in prepared.tables if t.ledger.section.replaces and t.ledger.section.covered]
    if not done or not any(lacking.values()):
        return []
    states = {name: ledger_state(session, name) for name in session.landing.tables}
    readings = {
        name: [e for s in state.sections if s.landing == session.landing.name for e in s.provenance]
        for name, state in states.items()
        if state is not None
    }
    return [
        t.name
        for t in done
        if any(t.ledger.section.covered - same_readings(t.ledger.section.provenance, r) for r in readings.values())
    ]


def _passed(session: LandingSession, prepared: Prepared) -> dict[str, Coverage]:
    """What has passed without a row. Of a lane that replaces, rows of before have to go all the same."""
    if any(t.ledger.section.replaces for t in prepared.tables) or not _has_log(session, prepared):
        return {}
    return passed_by_all(session.read_state(prepared.ledgers).state)


def _lacking(session: LandingSession, prepared: Prepared) -> dict[str, Coverage]:
    passed = _passed(session, prepared)
    lacking = {
        t.name: t.ledger.section.bounds - t.ledger.all_covered - passed.get(t.name, Coverage()) for t in prepared.tables
    }
    if _has_log(session, prepared):
        return lacking
    # Only the log would tell what a dead-letter table has passed.
    rows = {name: some for name, some in lacking.items() if name in session.landing.data_tables}
    return rows or lacking
