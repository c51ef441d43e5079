# SPDX-License-Identifier: Apache-2.0
"""Refresh the ledgers of tables that got no rows for a long time, so that the control topic need not keep records for
them.

Contract: slices without rows for a table are published rarely, but before retention or table maintenance can remove
what the ledger needs; a ledger is repeated at the head before foreign snapshots cut it off, and its log position moves
when others have filled the log. None of this is an asset event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from airflow_provider_lakecommit.core import UNKNOWN, AcceptedSlice, ControlPosition, Coverage, CycleClosed
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.iceberg import expiry_age_ms, needs_refresh, refresh_ledger

REFRESH_CYCLES = 100
"""Cycles after which the ledger of a table without rows is refreshed."""
REFRESH_AGE = timedelta(days=7)
"""The latest refresh; earlier after a quarter of the control topic's retention for what the table lacks."""
REFRESH_PART = 4
MOVE_AFTER = 10_000
"""Offsets of the control partition, of any landing, after which a ledger's position is moved."""


def is_behind(session: LandingSession, table: PreparedTable, folded: FoldedLog, ready: Sequence[AcceptedSlice]) -> bool:
    """Return True if the ledger of a table without rows is so old that it must be refreshed. Always False while a spec
    change voids or changes the rules, since the rest would be evaluated again, after a cut of the log, which waits for
    a new epoch, and while a backfill is to replace some of it.
    """
    passed = Coverage.union(s.coverage for s in ready)
    if any(s.replaces and s.bounds.overlaps(passed) for s in table.state.sections):
        return True
    low, rules = table.ledger.section.control.low, {s.report.rules for s in ready} - {UNKNOWN}
    cut = low is not None and folded.begin.offset > low
    if session.landing.window.on_spec_change == "void" or cut or len(rules) > 1:
        return True
    oldest = min(ready, key=lambda s: s.offset)
    cycles = sum(isinstance(e, CycleClosed) and e.offset > oldest.offset for e in folded.entries)
    if cycles >= REFRESH_CYCLES or folded.end - oldest.offset >= MOVE_AFTER:
        return True
    # Before retention or table maintenance removes what the ledger needs.
    expiry = expiry_age_ms(table.table.metadata)
    kept = (session.control.kept_for(), timedelta(milliseconds=expiry) if expiry else None)
    return oldest.age(session.now()) >= min([REFRESH_AGE, *(k / REFRESH_PART for k in kept if k)])


def position_after(
    table: PreparedTable, folded: FoldedLog, commit_id: UUID, chunk: Sequence[AcceptedSlice]
) -> ControlPosition:
    """Return the log position that the table needs after the chunk is published.

    :param commit_id: id of the publishing cycle
    """
    landed = {(table.name, a.report.attempt) for a in chunk}
    low = folded.state.low(without=commit_id, landed=landed)
    own = folded.state.cycles.get(commit_id)
    starts = [o for o in (low, own.since if own else folded.end) if o is not None]
    return replace(table.ledger.section.control, read_from=min(starts), low=low)


def refresh(session: LandingSession, table: PreparedTable, folded: FoldedLog, commit_id: UUID, *, whole: bool) -> None:
    """Repeat the ledger at the head if it is due, and move its position.

    :param whole: True if all tables of the landing were readable
    """
    now_ms = int(session.now().timestamp() * 1000)
    position = _moved(table, folded, commit_id) if whole else None
    if position is not None or needs_refresh(table.state, table.table.metadata, now_ms):
        refresh_ledger(
            session.tables,
            table.name,
            session.landing.name,
            session.lane,
            branch=session.landing.branch,
            control=position,
            was=table.ledger.section.control,
            control_end=replace(folded.begin, offset=folded.end),
        )


def _moved(table: PreparedTable, folded: FoldedLog, commit_id: UUID) -> ControlPosition | None:
    """Return the next position of a ledger without rows after others filled the log, so that an idle landing reads only
    new records.
    """
    old = table.ledger.section.control
    if old.partition != folded.partition:
        return None
    position = position_after(table, folded, commit_id, ())
    return position if position.read_from - old.read_from >= MOVE_AFTER else None
