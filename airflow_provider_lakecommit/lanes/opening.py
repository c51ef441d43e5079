# SPDX-License-Identifier: Apache-2.0
"""A lane's section in each table of the landing, and the session that its cycles run in.

Contract: after :func:`lane_session` every table has the section of the lane, with the range of the data table's. Of two
that open one lane at once the first one's range holds, and both go on with it. The session shares the connections of
the landing's own, which is closed by whoever has it.

Failure story: killed in between, the lane is in some tables, and the same command opens it in the others. A table whose
ledger needs a person is an error before anything is written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from airflow_provider_lakecommit.committer.ledger import Condition, require_ledger
from airflow_provider_lakecommit.committer.ledger_updates import join_table
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.prepare import ledger_state
from airflow_provider_lakecommit.cycle.sections import new_section, origin_position
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.lanes.preview import LanePreview
from airflow_provider_lakecommit.lanes.source import BoundedSource
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.session.tables import table_of

__all__ = ["joined_session", "lane_session", "open_lane"]


@contextmanager
def lane_session(session: LandingSession, found: LanePreview) -> Iterator[LandingSession]:
    """The session of a lane, which is opened if it is not.

    :param session: of the landing
    :raises LedgerError: the ledger of a table needs a person, or nothing is missing
    :raises TableError: a table is missing and may not be made
    :raises CatalogError: the catalog is away
    """
    section = open_lane(session, found)
    with joined_session(session, section) as own:
        yield own


@contextmanager
def joined_session(session: LandingSession, section: LedgerSection) -> Iterator[LandingSession]:
    """The session of a lane that is open, by its section in the data table."""
    own = LandingSession(
        landing=session.landing,
        kafka=session.kafka,
        tables=session.tables,
        control=session.control,
        source=BoundedSource(session.source, section.ends),
        lane=section.lane,
        now=session.now,
        new_id=session.new_id,
        log=session.log,
        place=session.place,
        lent=True,
    )
    with own:
        yield own


def open_lane(session: LandingSession, found: LanePreview) -> LedgerSection:
    """Give the lane its section in each table; returns that of the data table, by which the others go."""
    if found.done:
        raise LedgerError(f"lane {found.name}: nothing of it is missing, so it is not opened")
    session.control.ensure()
    first: LedgerSection | None = None
    for name in session.landing.tables:
        table_of(session, name)
        state = ledger_state(session, name)
        if state is None:
            raise LedgerError(f"table {name} is gone again: somebody has dropped it while lane {found.name} was opened")
        require_ledger(state, name)
        if state.condition is Condition.ROLLED_BACK:
            raise LedgerError(
                f"{name}: {state.reason}; `lakecommit land` deals with that first, lane {found.name} is not opened"
            )
        section = state.section(session.landing.name, found.name) or _joined(session, name, found, first)
        first = first or section
    if first is None:
        raise LedgerError(f"landing {session.landing.name} has no table")
    return first


def _joined(session: LandingSession, name: str, found: LanePreview, first: LedgerSection | None) -> LedgerSection:
    starts = {p: r.start for p, r in found.bounds.items()} if first is None else dict(first.starts)
    ends = {p: r.end for p, r in found.bounds.items()} if first is None else dict(first.ends)
    control = origin_position(session) if first is None else first.control
    section = new_section(session, found.source, starts, Coverage(), control, ends=ends, lane=found.name)
    session.log(f"{name}: lane {found.name} of landing {session.landing.name} is opened")
    state = join_table(session.tables, name, section, branch=session.landing.branch)
    return state.section(session.landing.name, found.name) or section
