# SPDX-License-Identifier: Apache-2.0
"""Open a backfill: its entry in each table of the landing, and the session in which its cycles run.

Contract: in a :func:`lane_session` every table has an entry of the backfill. If two processes open one backfill at
once, the first one's range is valid, and both continue with it. The session shares the connections of the landing's
own, which its owner closes.

Failure story: after a kill, some tables have the backfill, and the same command opens it in the others. A table whose
ledger needs an operator is an error before anything is written there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace as changed
from functools import partial

from airflow_provider_lakecommit.core import LIVE, Coverage, Decision, LedgerSection
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    LedgerUpkeep,
    OpenLane,
    all_sections,
    check_first_run,
    initial_position,
    ledger_state,
    new_section,
    open_lanes,
    table_of,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, join_table, require_ledger
from airflow_provider_lakecommit.operations.backfill.preview import LanePreview
from airflow_provider_lakecommit.operations.backfill.source import BoundedSource


def lane_session(
    session: LandingSession, found: LanePreview, decision: Decision | None = None
) -> AbstractContextManager[LandingSession]:
    """Return the session of a backfill, which is opened in each table that lacks its entry.

    :param session: of the landing
    :param decision: the user who opens it, for the tables' histories
    :raises LedgerError: the ledger of a table needs an operator, or nothing is missing
    :raises TableError: a table is missing and may not be created
    :raises CatalogError: the catalog is unreachable
    """
    return joined_session(session, open_lane(session, found, decision))


@contextmanager
def joined_session(session: LandingSession, lane: OpenLane) -> Iterator[LandingSession]:
    source, landing = BoundedSource(session.source, {p: r.end for p, r in lane.bounds.items()}), session.landing
    if lane.replaces:
        # All of a range may be pending at once, and has one spec.
        pending = dict.fromkeys(("max_pending_slices", "max_pending_files", "max_pending_bytes"))
        landing = landing.changed(window={"on_spec_change": "void"}, backpressure=pending)
    with changed(closed_lane(session, lane.name), source=source, landing=landing) as own:
        yield own


def closed_lane(session: LandingSession, name: str) -> LandingSession:
    """Return a read-only session of a backfill, also of a closed one."""
    return changed(session, lane=name, lent=True, yields=str)


def open_lane(session: LandingSession, found: LanePreview, decision: Decision | None = None) -> OpenLane:
    """Give the lane a section in each table that has none."""
    if found.done:
        raise LedgerError("LC7214", f"backfill {found.name} has nothing to land: its whole range is in the tables")
    session.control.ensure()
    # All tables are checked before the lane is opened in the first one.
    states = {name: _checked(session, name, found.name) for name in session.landing.tables}
    others = all_sections(states.values())
    for name, state in states.items():
        if state.section(session.landing.name, found.name) is None:
            _join(session, name, found, decision, others)
    lane = next((lane for lane in open_lanes(session) if lane.name == found.name), None)
    if lane is None:
        raise LedgerError(
            "LC7215", f"backfill {found.name} of landing {session.landing.name} was closed meanwhile: start it again"
        )
    return lane


def _checked(session: LandingSession, name: str, lane: str) -> LedgerState:
    """Return the ledger of a table that a lane can have a section in."""
    table = table_of(session, name, before_making=partial(check_first_run, session))
    state = ledger_state(session, name)
    if state is None:
        raise LedgerError("LC7216", f"table {name} was dropped while backfill {lane} was starting: try again")
    require_ledger(state, name)
    if state.section(session.landing.name, lane) is None and state.section(session.landing.name, LIVE) is None:
        check_first_run(session, name, table)
    return (
        LedgerUpkeep(session=session, name=name).after_rollback(state)
        if state.condition is Condition.ROLLED_BACK
        else state
    )


def _join(
    session: LandingSession, name: str, found: LanePreview, decision: Decision | None, others: tuple[LedgerSection, ...]
) -> None:
    """Join a backfill that another process has just opened: its entry is used."""
    known = next((lane for lane in open_lanes(session) if lane.name == found.name), None)
    bounds = found.bounds if known is None else known.bounds
    control = initial_position(session) if known is None else next(iter(known.sections.values())).control
    # If the earlier tables have all of it again, the backfill was closed here already: nothing is left to replace.
    replaces = found.replaces and (known is None or bool(known.lacking))
    section = changed(
        new_section(session, found.source, {p: r.start for p, r in bounds.items()}, Coverage(), control, known=others),
        lane=found.name,
        ends={p: r.end for p, r in bounds.items()},
        replaces=replaces,
    )
    session.log(f"{name}: opened backfill {found.name} of landing {session.landing.name}")
    decided = decision and changed(decision, what=f"replaces {section.bounds}")
    join_table(session.tables, name, section, branch=session.landing.branch, decision=decided)
