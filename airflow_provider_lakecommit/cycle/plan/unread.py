# SPDX-License-Identifier: Apache-2.0
"""Ranges that one table of a landing has given up, and another one has read.

Contract: :func:`with_unread` removes such ranges from the ledger of the table that gave them up, so that they are
planned for it as missing. All tables of a landing give up a range together; a single one has it only after a rollback
of another table to before that, or of itself to before the range was read after all. A record of the range would be a
row or a dead letter in one table, and nothing in the other. A table with hard deletes stays as it is: an older change
would bring back a row that was deleted since.

Failure story: one compare-and-swap per table, decided on the entries that it finds. A range is removed only if no row
of it was landed by the ledger, so nothing is landed twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from airflow_provider_lakecommit.committer import (
    REPLACED,
    LedgerState,
    Replaced,
    SnapshotKind,
    SnapshotRecord,
    require_ledger,
    swap_sections,
)
from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    RangeSet,
    RowsPerOffset,
    current_readings,
    same_readings,
    unevaluated,
    without_rows,
)
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.kafka import SourceState


def _unread_by(landing: str, state: LedgerState, others: Sequence[LedgerState]) -> Coverage:
    """Return what a table has given up, and others have read.

    :param landing: the landing whose entries are compared
    """
    own, found = _own(landing, state), Coverage()
    for other in (_own(landing, o) for o in others):
        # Ranges passed without a row may lack their rules: they were read all the same.
        same = same_readings(current_readings(own), current_readings(other))
        found = found | Coverage.union(c & s.covered for s in other for c in s.evaluated.values()) - same
    return Coverage.union(_given_up(s) for s in own) & found


def with_unread(
    session: LandingSession, source: SourceState, name: str, state: LedgerState, others: Sequence[LedgerState]
) -> LedgerState:
    """Return the ledger of a table, without ranges that it has given up if another table has read them and the source
    still has them.

    :param others: the ledgers of the landing's other tables
    :raises LakecommitError: the table cannot be read or written
    """
    if session.landing.upsert.leaves_no_trace and name in session.landing.data_tables:
        return state
    there = ((p, RangeSet.of((w.start, max(w.start, w.stable)))) for p, w in source.partitions.items())
    if not (unread := _unread_by(session.landing.name, state, others) & Coverage(dict(there))):
        return state
    session.log(f"WARNING: {name}: gave up {unread}, which another table reads: {name} reads it again, too")
    landing = session.landing
    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, name)
        removed = {s.key: unread & _given_up(s) for s in _own(landing.name, state)}
        if not (taken := Coverage.union(removed.values())):
            return None
        extra[REPLACED] = Replaced(ranges=taken).to_text()
        return tuple(_without(s, removed.get(s.key, Coverage())) for s in state.sections)

    record = SnapshotRecord(
        kind=SnapshotKind.REPLACE, branch=landing.branch, landing=landing.name, lane=session.lane, extra=extra
    )
    return swap_sections(session.tables, name, record, update)


def _own(landing: str, state: LedgerState) -> list[LedgerSection]:
    return [s for s in state.sections if s.landing == landing]


def _given_up(section: LedgerSection) -> Coverage:
    """Return the given-up ranges of an entry: without a landed row or an evaluated record."""
    return unevaluated(section.evaluated, without_rows(section.provenance, section.covered))


def _without(section: LedgerSection, removed: Coverage) -> LedgerSection:
    if not removed:
        return section
    kept = tuple(e.rest(removed, e.rows) if e.per_offset is RowsPerOffset.NONE else e for e in section.provenance)
    provenance = tuple(e for e in kept if e.coverage)
    return replace(section, covered=section.covered - removed, provenance=provenance, epoch=uuid4())
