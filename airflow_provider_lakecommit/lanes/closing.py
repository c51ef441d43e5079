# SPDX-License-Identifier: Apache-2.0
"""The end of a lane: what it has landed becomes the landing's, and its section is gone.

Contract: by one compare-and-swap per table the lane's section is taken out, and what it has goes to the landing's
section ``filled``. What a table has passed without a row, by the log, goes with it. The data table comes last, so that
a lane is open as long as any table has it. Nobody can commit to a lane that is closed: it has no section, and one that
is opened again under its name has another epoch.

Failure story: a lane that is not whole is refused, unless a person gives up the rest, which is recorded; what is
reported of it is published first (:mod:`~airflow_provider_lakecommit.lanes.reported`). Killed in between, the same
command closes the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from airflow_provider_lakecommit.committer.merge_section import merge_section
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.settle import passed_by_all
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.lanes.reported import publish_reported
from airflow_provider_lakecommit.prepare.tables import Prepared, prepare_for_commit
from airflow_provider_lakecommit.session.landing_session import LandingSession

__all__ = ["close_lane", "lane_rest", "lane_tables"]


def lane_rest(session: LandingSession) -> Coverage:
    """What some table lacks of the lane's range; what is reported and not published counts as lacking.

    :param session: of the lane
    :raises LakecommitError: a table cannot be read
    """
    prepared = lane_tables(session)
    return Coverage.union(_lacking(session, prepared).values())


def close_lane(session: LandingSession, *, decision: Decision | None = None) -> Coverage:
    """Close the lane of a session; returns what was given up of its range.

    :param decision: of the person who gives up what is not landed; without one that is refused
    :raises LedgerError: it is not whole
    :raises LakecommitError: a table cannot be read or written
    """
    prepared = lane_tables(session)
    left_out = Coverage()
    if decision is not None and any(_lacking(session, prepared).values()):
        left_out = publish_reported(session, prepared, decision)
        prepared = lane_tables(session)
    lacking = _lacking(session, prepared)
    rest = Coverage.union(lacking.values()) | left_out
    if rest and decision is None:
        raise LedgerError(f"lane {session.lane} of landing {session.landing.name} is not whole, it lacks {rest}")
    if half := _half_replaced(prepared, lacking):
        raise LedgerError(
            f"lane {session.lane} of landing {session.landing.name} has replaced its range in {', '.join(half)} and "
            "not in the other table: a record could be in both, or in none. `lakecommit replay SPEC --lane "
            f"{session.lane}` does the rest"
        )
    passed = _passed(session, prepared)
    for t in reversed(prepared.tables):
        had = passed.get(t.name, Coverage()) & t.ledger.section.bounds - t.ledger.section.covered
        told = None if decision is None else replace(decision, what=f"closes the lane, gives up {lacking[t.name]}")
        merge_section(
            session.tables,
            t.name,
            (session.landing.name, session.lane),
            had=had,
            branch=session.landing.branch,
            decision=told,
        )
    session.log(
        f"lane {session.lane} is closed" + (f", {rest} is given up" if rest else ": all of it is in the tables")
    )
    return rest


def lane_tables(session: LandingSession) -> Prepared:
    """Every table of a lane, as it is now.

    :raises LakecommitError: one cannot be read, or the lane is not open there
    """
    prepared = prepare_for_commit(session)
    for failure in prepared.failures.values():
        raise failure
    return prepared


def _half_replaced(prepared: Prepared, lacking: Mapping[str, Coverage]) -> list[str]:
    """Tables that a lane has replaced its range in, while another lacks it."""
    done = [t.name for t in prepared.tables if t.ledger.section.replaces and t.ledger.section.covered]
    return done if any(lacking.values()) else []


def _passed(session: LandingSession, prepared: Prepared) -> dict[str, Coverage]:
    """What has passed without a row. Of a lane that replaces, rows of before have to go all the same."""
    if any(t.ledger.section.replaces for t in prepared.tables):
        return {}
    return passed_by_all(session.read_state(prepared.ledgers).state)


def _lacking(session: LandingSession, prepared: Prepared) -> dict[str, Coverage]:
    passed = _passed(session, prepared)
    return {
        t.name: t.ledger.section.bounds - t.ledger.all_covered - passed.get(t.name, Coverage()) for t in prepared.tables
    }
