# SPDX-License-Identifier: Apache-2.0
"""Tables that got no rows for a long time: brought forward, so that the control log need not be kept for them.

Contract: slices without rows for a table are published rarely, but before the log or the owner's maintenance of the
table can have removed what the ledger relies on; a ledger is repeated at the head before foreign snapshots cut it off,
and its position in the log moves when others have filled it. Nothing of that is an event for assets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

from airflow_provider_lakecommit.committer import carry_forward, expiry_age_ms, should_carry
from airflow_provider_lakecommit.core import UNKNOWN, AcceptedSlice, ControlPosition, Coverage, CycleClosed
from airflow_provider_lakecommit.cycle.plan.tables import PreparedTable
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession

__all__ = ["carry", "is_behind", "position_after"]

CARRY_CYCLES = 100
"""Cycles after which a table without rows is brought forward."""
CARRY_AGE = timedelta(days=7)
"""At the latest; and when a quarter of the time is over for which the control topic keeps what the table lacks."""
CARRY_PART = 4
MOVE_AFTER = 10_000
"""Offsets of the control log, by whatever landings of its partition, after which a ledger's position is moved."""


def is_behind(session: LandingSession, table: PreparedTable, folded: FoldedLog, ready: Sequence[AcceptedSlice]) -> bool:
    """Return True if the ledger of a table without rows is so old that it must be refreshed. Where a spec change voids,
    it never is, nor while the rules change by which records are judged: what is behind then would be judged anew. Nor
    where the log was cut, as a new epoch waits for it, nor where a lane is to replace some of it.
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
    if cycles >= CARRY_CYCLES or folded.end - oldest.offset >= MOVE_AFTER:
        return True
    return oldest.age(session.now()) >= _carry_age(session, table)


def _carry_age(session: LandingSession, table: PreparedTable) -> timedelta:
    """Before the log or the owner's maintenance of the table can have removed what the ledger relies on."""
    expiry = expiry_age_ms(table.table.metadata)
    kept = (session.control.kept_for(), timedelta(milliseconds=expiry) if expiry else None)
    return min([CARRY_AGE, *(k / CARRY_PART for k in kept if k)])


def position_after(
    table: PreparedTable, folded: FoldedLog, commit_id: UUID, chunk: Sequence[AcceptedSlice]
) -> ControlPosition:
    """From where the log is needed once the chunk is in this table.

    :param commit_id: of the cycle that publishes it
    """
    landed = {(table.name, a.report.attempt) for a in chunk}
    low = folded.state.low(without=commit_id, landed=landed)
    own = folded.state.cycles.get(commit_id)
    starts = [o for o in (low, own.since if own else folded.end) if o is not None]
    return replace(table.ledger.section.control, read_from=min(starts), low=low)


def carry(session: LandingSession, table: PreparedTable, folded: FoldedLog, commit_id: UUID, *, whole: bool) -> None:
    """Repeat the ledger at the head where that is due, and move its position.

    :param whole: all tables of the landing could be read
    """
    now_ms = int(session.now().timestamp() * 1000)
    position = _moved(table, folded, commit_id) if whole else None
    if position is not None or should_carry(table.state, table.table.metadata, now_ms):
        carry_forward(
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
    """The next position of a ledger that got no rows while others filled the log: so an idle landing reads, too, no
    more of a partition than what came since.
    """
    old = table.ledger.section.control
    if old.partition != folded.partition:
        return None
    position = position_after(table, folded, commit_id, ())
    return position if position.read_from - old.read_from >= MOVE_AFTER else None
