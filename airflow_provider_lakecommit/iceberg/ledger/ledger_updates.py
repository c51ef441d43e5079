# SPDX-License-Identifier: Apache-2.0
"""Snapshots without files: a landing joins a table, its epoch is renewed, its ledger is refreshed.

Contract: each is the same compare-and-swap as an append, decided on the present ledger, so that of two concurrent
changes one is made and the other reads it. An initial entry never replaces a present one; a new epoch is given to
*every* entry of the table, because a rollback takes rows from all of them; a refresh changes no coverage. Users'
decisions about a ledger are in :mod:`~airflow_provider_lakecommit.iceberg.ledger.ledger_by_hand`.

Invariants: no two landings of one table have the same topic: both would need every offset of it. Every change of a
ledger is checked for it (:func:`check_alone`), so that a landing under a misspelled name gets no entry next to the
right one. A ledger in which two landings already share a topic can still be written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import (
    RESET_ASSERT,
    RESET_OFFSETS,
    ControlPosition,
    Decision,
    LedgerSection,
    SourcePartition,
)
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState, read_ledger, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.iceberg.ledger.stage import Change
from airflow_provider_lakecommit.iceberg.ledger.summary import LogPoint, SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap, ledger_change

Update = Callable[[LedgerState], tuple[LedgerSection, ...] | None]


def join_table(
    tables: Tables,
    table: str,
    section: LedgerSection,
    *,
    branch: str = MAIN_BRANCH,
    table_uuid: UUID | None = None,
    retry_policy: RetryPolicy | None = None,
    decision: Decision | None = None,
) -> LedgerState:
    """Create the ledger entry of a stream, the initial one, or return the present one.

    :param table_uuid: the table in the log, if it has one
    :param decision: of the user who opens a backfill
    :raises LedgerError: the ledger of the table is missing, its rollback is not resolved, or it is another table
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        if table_uuid is not None and state.table_uuid != table_uuid:
            raise LedgerError(
                "LC3017",
                f"{table} now has UUID {state.table_uuid}, but the control topic has {table_uuid}: the table was "
                f"dropped and recreated. If it holds the landed rows, run `{RESET_ASSERT} SPEC --from-log`; if not, "
                f"set where it continues with `{RESET_OFFSETS} SPEC --from OFFSETS`",
            )
        require_ledger(state, table)
        return None if state.section(section.landing, section.lane) else (*state.sections, section)

    record = record_of_change(SnapshotKind.ORIGIN, section.key, branch, decision)
    return swap_sections(tables, table, record, update, retry_policy)


def renew_epochs(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    *,
    branch: str = MAIN_BRANCH,
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Void all pending slices of a table that was rolled back: give every entry a new epoch before anything else is
    appended.

    :raises LedgerError: the ledger of the table is missing
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        if state.condition is not Condition.ROLLED_BACK:
            return None
        return tuple(replace(s, epoch=uuid4()) for s in state.sections) or None

    record = record_of_change(SnapshotKind.EPOCH, (landing, lane), branch)
    return swap_sections(tables, table, record, update, retry_policy)


def restore_tag(
    tables: Tables, table: str, landing: str, lane: str, *, branch: str = MAIN_BRANCH, snapshot_id: int | None
) -> LedgerState:
    """Repeat the ledger under a tag if the tag is missing and the caller knows that this ledger is the newest; epochs
    stay.

    :param snapshot_id: of the ledger that the caller has read
    :raises LedgerError: the ledger has changed since
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        if state.condition is Condition.PRESENT:
            return None
        if state.snapshot_id != snapshot_id or not state.newest:
            raise LedgerError(
                "LC3015", f"{table}: the ledger has changed since it was read: {state.reason}; plan again"
            )
        return state.sections

    record = record_of_change(SnapshotKind.CARRY, (landing, lane), branch)
    return swap_sections(tables, table, record, update, newest=True)


def refresh_ledger(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    *,
    branch: str = MAIN_BRANCH,
    control: ControlPosition | None = None,
    was: ControlPosition | None = None,
    control_end: LogPoint | None = None,
    decision: Decision | None = None,
) -> LedgerState:
    """Repeat the ledger in a snapshot at the head, with a new control position of one entry if given.

    :param was: the position that the new one was derived from: if it has changed since, it stays
    :param decision: a user's decision to keep in the table's history
    :raises LedgerError: the entry or the ledger is missing, or its rollback is not resolved
    """

    def moved(section: LedgerSection) -> LedgerSection:
        return section if was not in (None, section.control) else replace(section, control=control or section.control)

    kind = SnapshotKind.CARRY
    return change_section(
        tables, table, landing, lane, kind, moved, branch=branch, control_end=control_end, decision=decision
    )


def change_section(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    kind: SnapshotKind,
    change: Callable[[LedgerSection], LedgerSection | None],
    *,
    branch: str = MAIN_BRANCH,
    control_end: LogPoint | None = None,
    decision: Decision | None = None,
) -> LedgerState:
    """Replace the ledger entry of a stream by the result of ``change``, unless that is ``None``.

    :raises LedgerError: the entry or the ledger is missing, or its rollback is not resolved
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        now = state.section(landing, lane)
        if now is None:
            raise LedgerError("LC3016", f"{table} has no entry for stream {lane} of landing {landing}: plan again")
        new = change(now)
        return None if new is None else tuple(new if s is now else s for s in state.sections)

    record = record_of_change(kind, (landing, lane), branch, decision, control_end=control_end)
    return swap_sections(tables, table, record, update)


def record_of_change(
    kind: SnapshotKind, own: tuple[str, str], branch: str, decision: Decision | None = None, **more: Any
) -> SnapshotRecord:
    """Return the record of a snapshot without files; *own* are the landing and the stream that it is about."""
    decisions = () if decision is None else (decision,)
    return SnapshotRecord(kind=kind, branch=branch, landing=own[0], lane=own[1], decisions=decisions, **more)


def swap_sections(
    tables: Tables,
    table: str,
    record: SnapshotRecord,
    update: Update,
    retry_policy: RetryPolicy | None = None,
    *,
    newest: bool = False,
    rehearse: bool = False,
) -> LedgerState:
    """Make a snapshot with the entries that ``update`` returns for a ledger, unless that is ``None``.

    :param newest: the caller knows that this ledger is the newest
    :param rehearse: only decide, so that an error comes before other tables are changed
    :raises TableError: two landings would have the same topic
    """

    def decide(loaded: Table) -> Change[None] | None:
        state = read_ledger(loaded.metadata, record.branch)
        sections = update(state)
        if sections is not None:
            check_alone(table, (*state.sections, *state.remembered), sections)
        return None if sections is None else ledger_change(table, state, record, sections, None, newest=newest)

    if rehearse:
        decide(loaded := tables.load(table))
        return read_ledger(loaded.metadata, record.branch)
    swapped = compare_and_swap(tables, table, record.branch, decide, retry_policy)
    return read_ledger(swapped.metadata, record.branch)


def check_no_other(
    table: str, landing: str, sections: Iterable[LedgerSection], partitions: Collection[SourcePartition]
) -> None:
    """:raises TableError: another landing has one of these partitions in a table"""
    for s in sections:
        shared = sorted({p.topic for p in s.starts if p in partitions})
        if s.landing != landing and shared:
            raise TableError(
                "LC3003",
                f"landing {s.landing} lands {', '.join(shared)} into {table} already, so landing {landing} cannot. "
                f"Unless {landing} is a misspelt or new name of {s.landing}, give one of them another table; nothing "
                "was changed",
            )


def check_alone(table: str, before: Collection[LedgerSection], after: Collection[LedgerSection]) -> None:
    """:raises TableError: a change of a ledger gives a landing a partition that another landing of the table has"""
    known = {(s.landing, p) for s in before for p in s.starts}
    landings = {s.landing for s in after}
    for landing in landings if len(landings) > 1 else ():
        new = {p for s in after if s.landing == landing for p in s.starts if (landing, p) not in known}
        if new:
            check_no_other(table, landing, after, new)
