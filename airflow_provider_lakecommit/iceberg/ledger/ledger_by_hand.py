# SPDX-License-Identifier: Apache-2.0
"""Set ledgers by a user's decision: where a landing continues, what a table has, what is lost for good.

Contract: each is one compare-and-swap, decided on every read, so that concurrent commits are not lost or overwritten. A
written entry has a new epoch, so that nothing pending is appended to it, and no report of lost ranges is accepted
again. Entries of other landings are restored only if their rows are known to be present.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from uuid import UUID, uuid4

from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.core import RESET_OFFSETS, Coverage, Decision, LedgerSection, is_filled
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import Condition, LedgerState, require_ledger
from airflow_provider_lakecommit.iceberg.ledger.ledger_updates import record_of_change, swap_sections
from airflow_provider_lakecommit.iceberg.ledger.summary import SnapshotKind
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import HAD, PRUNED, had_to_text


class OtherSections(StrEnum):
    """A user's decision on the rows of other landings in a table whose ledger is lost."""

    ASK = "ask"
    """Undecided: refused if there are other landings."""
    PRESENT = "present"
    """The rows are in the table: the entries are restored."""
    MISSING = "missing"
    """The rows are not in the table: the entries are not restored."""


def set_section(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    make: Callable[[LedgerSection | None], LedgerSection],
    *,
    passed: Callable[[LedgerSection | None], Coverage] = lambda _: Coverage(),
    branch: str = MAIN_BRANCH,
    others: OtherSections = OtherSections.ASK,
    keep: Collection[UUID] = (),
    decision: Decision | None = None,
    alongside: Callable[[], Iterable[LedgerSection]] = tuple,
    again: Callable[[], Coverage] = Coverage,
    rehearse: bool = False,
) -> LedgerState:
    """Set a landing's ledger entry by a user's decision, even if the ledger is missing. The other entries get a new
    epoch if the table was rolled back. If the ledger was cut, they are restored from the newest snapshot that has them,
    under new epochs.

    :param make: returns the new entry, given the present one; called on every try of the compare-and-swap, so that
        concurrent commits are not lost. Its epoch must be new: pending slices are then not appended
    :param passed: returns ranges that, by the log, gave the table no rows, and that the present entry lacks; the new
        entry does not give these up, and the snapshot records them
    :param keep: epochs of other entries that stay the same when restored: otherwise their pending slices are lost
    :param alongside: returns entries of backfills that the same decision opens; called after ``make``
    :param again: returns what closed backfills lose, as it is read again or given up; called after ``make``
    :param rehearse: decide on the present ledger and write nothing
    :raises LedgerError: the new epoch is the present one
    """

    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        now = state.section(landing, lane)
        made = make(now)
        state = _without(state, landing, again())
        section = _apart(state, made)
        extra.clear()
        if now is not None and (had := passed(now) & section.covered - now.covered):
            extra[HAD] = had_to_text(had)
        if now == section:
            return None
        if now is not None and now.epoch == section.epoch:
            raise LedgerError(
                "LC3012", f"{table}: setting the ledger needs a new epoch, but {section.epoch} is the current one"
            )
        return (*_with(state, section, _others_back(state, table, section, others), keep), *alongside())

    # `update` fills `extra` before the record is written.
    record = record_of_change(SnapshotKind.INIT, (landing, lane), branch, decision, extra=extra)
    return swap_sections(tables, table, record, update, rehearse=rehearse)


def assert_section(
    tables: Tables,
    table: str,
    section: LedgerSection,
    *,
    known: LedgerState,
    others: tuple[LedgerSection, ...] | None = None,
    rows_of_others: OtherSections = OtherSections.ASK,
    removed: Coverage | None = None,
    keep: Collection[UUID] = (),
    source: str,
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
    rehearse: bool = False,
) -> LedgerState:
    """Set a landing's ledger entry to what a user asserts that the table has. The other entries keep their ranges; all
    get a new epoch unless the ledger was in order. If the ledger was cut, entries of other landings are restored from
    the newest snapshot that has them.

    :param known: the ledger that the user was shown; a newer one is not overwritten
    :param others: entries of other landings that the assertion includes; ``None``: only this landing's
    :param rows_of_others: the user's decision on their rows, if the ledger is lost and ``others`` is ``None``
    :param removed: ranges that other streams of the landing lose: their rows are not in the table
    :param keep: epochs of others that stay, as in :func:`set_section`
    :param source: source of the assertion, for the snapshot's summary (``lakecommit.attested``)
    :param rehearse: decide on the present ledger and write nothing
    :raises LedgerError: the ledger has changed since
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...]:
        now, before = ((one.table_uuid, one.condition, one.snapshot_id) for one in (state, known))
        if now != before:
            raise LedgerError(
                "LC3013",
                f"{table}: the ledger is in snapshot {state.snapshot_id} ({state.condition}) now, but was in "
                f"{known.snapshot_id} ({known.condition}) when it was read: a run is in progress; try again",
            )
        state = _without(state, section.landing, removed, lambda lane: lane != section.lane)
        back = state.remembered if state.condition is Condition.CUT else others
        if back is None:
            back = _others_back(state, table, section, rows_of_others)
        return _with(state, _apart(state, section), back, keep)

    record = record_of_change(SnapshotKind.INIT, section.key, branch, decision, extra={"attested": source})
    return swap_sections(tables, table, record, update, rehearse=rehearse)


def prune_sections(
    tables: Tables,
    table: str,
    own: tuple[str, str],
    prune: Callable[[tuple[LedgerSection, ...]], Mapping[tuple[str, str], LedgerSection | None]],
    *,
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
) -> LedgerState:
    """Remove lost partitions from a ledger.

    :param own: landing and stream of the caller
    :param prune: returns the rest of each entry that loses something, ``None`` for nothing; called on every read of the
        compare-and-swap. The rest has a new epoch, so that no report of lost ranges is accepted again
    :raises LedgerError: the ledger is missing, or its rollback is not resolved
    """
    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        if not (changed := prune(state.sections)):
            return None
        extra[PRUNED] = json.dumps(sorted(changed))
        left = (changed.get(s.key, s) for s in state.sections)
        return tuple(s for s in left if s is not None)

    # `update` fills `extra` before the record is written.
    record = record_of_change(SnapshotKind.INIT, own, branch, decision, extra=extra)
    return swap_sections(tables, table, record, update)


def _without(
    state: LedgerState, landing: str, removed: Coverage | None, lanes: Callable[[str], bool] = is_filled
) -> LedgerState:
    """Return the ledger without ranges of closed backfills. Their rows stay, as those of a past reading."""
    if not removed:
        return state

    def left(sections: Iterable[LedgerSection]) -> tuple[LedgerSection, ...]:
        return tuple(
            replace(s, covered=s.covered - removed, epoch=uuid4())
            if s.landing == landing and lanes(s.lane) and s.covered.overlaps(removed)
            else s
            for s in sections
        )

    return replace(state, sections=left(state.sections), remembered=left(state.remembered))


def _apart(state: LedgerState, section: LedgerSection) -> LedgerSection:
    """Return an entry without what other streams of its landing have: each range is of one of them."""
    others = Coverage.union(s.covered for s in state.sections if s.landing == section.landing and s.key != section.key)
    return replace(section, covered=section.covered - others) if others else section


def _with(
    state: LedgerState, section: LedgerSection, others: Iterable[LedgerSection], keep: Collection[UUID]
) -> tuple[LedgerSection, ...]:
    """Return the ledger with this entry, and those of *others* that it lacks, with new epochs except those to *keep*;
    epochs that a rollback ended are new.
    """
    kept = [s for s in state.sections if s.key != section.key]
    there = {section.key, *(s.key for s in kept)}
    if state.condition in (Condition.ROLLED_BACK, Condition.PICKED):
        kept = [replace(s, epoch=uuid4()) for s in kept]
    missing = (s for s in others if s.key not in there)
    back = (s if s.epoch in keep else replace(s, epoch=uuid4()) for s in missing)
    return (*kept, *back, section)


def _others_back(
    state: LedgerState, table: str, section: LedgerSection, decision: OtherSections
) -> tuple[LedgerSection, ...]:
    """Return the entries of other landings that the former ledger had. After a cut their rows are still in the table;
    after a rollback to before all of them this is unknown.

    :raises LedgerError: others had an entry in a lost ledger, and it is undecided whether their rows are present
    """
    others = tuple(s for s in state.remembered if s.key != section.key)
    if not others or decision is OtherSections.MISSING:
        return ()
    if state.condition is Condition.CUT or decision is OtherSections.PRESENT:
        return others
    names = ", ".join(sorted({f"{s.landing} ({s.lane})" for s in others}))
    raise LedgerError(
        "LC3014",
        f"the ledger of {table} is {state.condition}: {state.reason}; it also had entries of {names}, and it is "
        f"unknown whether their rows are in the table. Roll the branch to snapshot {state.tag_id or 'ID'}, or "
        "decide: `--others present` (their entries are restored) or `--others missing` (each of them needs its own "
        f"`{RESET_OFFSETS}`)",
    )
