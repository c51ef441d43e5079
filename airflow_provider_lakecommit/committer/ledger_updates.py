# SPDX-License-Identifier: Apache-2.0
"""Snapshots without files: a landing joins a table, its epoch is renewed, its ledger is brought forward or set by hand.

Contract: each is the same compare-and-swap as an append, decided on the ledger that it finds, so that of two that race
one is made and the other reads it back. An origin never replaces a section that is there; a new epoch is given to
*every* section of the table, because a rollback takes rows from all of them; carrying forward changes no coverage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from uuid import UUID, uuid4

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, read_ledger, require_ledger
from airflow_provider_lakecommit.committer.outcome_lookup import RetryPolicy
from airflow_provider_lakecommit.committer.summary import PRUNED, LogPoint, SnapshotKind, SnapshotRecord
from airflow_provider_lakecommit.committer.swap import Change, compare_and_swap, ledger_change
from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import ControlPosition, LedgerSection
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables

__all__ = [
    "OtherSections",
    "attest_section",
    "carry_forward",
    "change_section",
    "join_table",
    "prune_sections",
    "renew_epochs",
    "restore_tag",
    "set_section",
]


class OtherSections(StrEnum):
    """A person's word on the rows of other landings in a table whose ledger is lost."""

    ASK = "ask"
    """Nothing is said: refused where there are such."""
    THERE = "there"
    """They are in the table: their sections come back."""
    GONE = "gone"
    """They are not: their sections do not come back."""


Update = Callable[[LedgerState], tuple[LedgerSection, ...] | None]


def join_table(
    tables: Tables,
    table: str,
    section: LedgerSection,
    *,
    branch: str = MAIN_BRANCH,
    table_uuid: UUID | None = None,
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Give a landing's lane its section, unless it has one (then that one is read back): the origin.

    :param table_uuid: the table that the log remembers, if it does
    :raises LedgerError: the ledger of the table is gone, its rollback was not dealt with, or it is another table
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        _check_uuid(state, table, table_uuid)
        require_ledger(state, table)
        if state.section(section.landing, section.lane) is not None:
            return None
        return (*state.sections, section)

    record = SnapshotRecord(kind=SnapshotKind.ORIGIN, branch=branch, landing=section.landing, lane=section.lane)
    return _swap(tables, table, record, update, retry_policy)


def renew_epochs(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    *,
    branch: str = MAIN_BRANCH,
    force: bool = False,
    new_epoch: Callable[[], UUID] = uuid4,
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Void all that is pending for a table that was rolled back (with ``force``, for any table): a new epoch for every
    section, before anything else is appended.

    :raises LedgerError: the ledger of the table is gone
    """
    before: list[dict[tuple[str, str], UUID]] = []

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        epochs = {(s.landing, s.lane): s.epoch for s in state.sections}
        before.append(epochs)
        wanted = state.condition is Condition.ROLLED_BACK or (force and epochs == before[0])
        return tuple(replace(s, epoch=new_epoch()) for s in state.sections) if wanted and epochs else None

    record = SnapshotRecord(kind=SnapshotKind.EPOCH, branch=branch, landing=landing, lane=lane)
    return _swap(tables, table, record, update, retry_policy)


def restore_tag(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    *,
    branch: str = MAIN_BRANCH,
    snapshot_id: int | None,
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Repeat the ledger under a tag, where the tag is gone and the caller knows that this ledger is the newest: its
    epochs stay.

    :param snapshot_id: of the ledger that the caller has seen
    :raises LedgerError: it is another one by now
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        if state.condition is Condition.PRESENT:
            return None
        if state.snapshot_id != snapshot_id or not state.newest:
            raise LedgerError(f"{table}: the ledger has changed since it was looked at: {state.reason}; plan again")
        return state.sections

    record = SnapshotRecord(kind=SnapshotKind.CARRY, branch=branch, landing=landing, lane=lane)
    return _swap(tables, table, record, update, retry_policy, newest=True)


def carry_forward(
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
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Repeat the ledger in a snapshot at the head, with a new control position of one section if given.

    :param was: the position that the new one was made from: where another one stands by now, that one stays
    :param decision: what a person decided, which the table's history is to keep

    :raises LedgerError: there is no such section, or the ledger is gone, or its rollback was not dealt with
    """

    def moved(section: LedgerSection) -> LedgerSection:
        return section if was not in (None, section.control) else replace(section, control=control or section.control)

    kind = SnapshotKind.CARRY
    return change_section(
        tables,
        table,
        landing,
        lane,
        kind,
        moved,
        branch=branch,
        control_end=control_end,
        decision=decision,
        retry_policy=retry_policy,
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
    retry_policy: RetryPolicy | None = None,
) -> LedgerState:
    """Replace the section of a landing's lane by what ``change`` makes of it, unless that is ``None``.

    :raises LedgerError: there is no such section, or the ledger is gone, or its rollback was not dealt with
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        now = state.section(landing, lane)
        if now is None:
            raise LedgerError(f"{table} has no section for lane {lane} of landing {landing}: plan again")
        new = change(now)
        return None if new is None else tuple(new if s is now else s for s in state.sections)

    decisions = () if decision is None else (decision,)
    record = SnapshotRecord(
        kind=kind, branch=branch, landing=landing, lane=lane, control_end=control_end, decisions=decisions
    )
    return _swap(tables, table, record, update, retry_policy)


def set_section(
    tables: Tables,
    table: str,
    landing: str,
    lane: str,
    make: Callable[[LedgerSection | None], LedgerSection],
    *,
    branch: str = MAIN_BRANCH,
    others: OtherSections = OtherSections.ASK,
    decision: Decision | None = None,
) -> LedgerState:
    """Set a landing's section as a person decided, also where the ledger is gone; other sections get a new epoch if the
    table was rolled back. Where the ledger was cut they come back, under new epochs, from the newest snapshot that has
    them.

    :param make: the section, made of the one that is there. It is asked again at every look of the compare-and-swap, so
        that what lands meanwhile is not forgotten. Its epoch must be new, so that nothing that was pending is appended
    :raises LedgerError: the epoch is the present one
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        now = state.section(landing, lane)
        section = make(now)
        if now == section:
            return None
        if now is not None and now.epoch == section.epoch:
            raise LedgerError(
                f"{table}: a ledger that is set by hand needs a new epoch, {section.epoch} is the present one"
            )
        return _with(state, section, _others_back(state, table, section, others))

    decisions = () if decision is None else (decision,)
    record = SnapshotRecord(kind=SnapshotKind.INIT, branch=branch, landing=landing, lane=lane, decisions=decisions)
    return _swap(tables, table, record, update)


def attest_section(
    tables: Tables,
    table: str,
    section: LedgerSection,
    *,
    seen: LedgerState,
    others: tuple[LedgerSection, ...] | None = None,
    rows_of_others: OtherSections = OtherSections.ASK,
    word: str,
    branch: str = MAIN_BRANCH,
    decision: Decision | None = None,
) -> LedgerState:
    """Set a landing's section to what a person says the table holds. Sections that the ledger has too keep what they
    say; all of them get a new epoch unless the ledger was in order. Where the ledger was cut, those of others come back
    from the newest snapshot that has them.

    :param seen: what the person was shown; another ledger by now is not overwritten
    :param others: sections of other landings that the word is about too; ``None``: it is about this landing only
    :param rows_of_others: the person's word on them, where the ledger is lost and ``others`` says nothing
    :param word: where the word came from, for the snapshot's summary (``lakecommit.attested``)
    :raises LedgerError: the ledger has changed since
    """

    def update(state: LedgerState) -> tuple[LedgerSection, ...]:
        now, shown = ((one.table_uuid, one.condition, one.snapshot_id) for one in (state, seen))
        if now != shown:
            raise LedgerError(
                f"{table}: the ledger is in snapshot {state.snapshot_id} ({state.condition}) now, it was in "
                f"{seen.snapshot_id} ({seen.condition}) when it was looked up: a run is under way; look again"
            )
        back = state.remembered if state.condition is Condition.CUT else others
        return _with(state, section, _others_back(state, table, section, rows_of_others) if back is None else back)

    record = SnapshotRecord(
        kind=SnapshotKind.INIT,
        branch=branch,
        landing=section.landing,
        lane=section.lane,
        extra={"attested": word},
        decisions=() if decision is None else (decision,),
    )
    return _swap(tables, table, record, update)


def prune_sections(
    tables: Tables,
    table: str,
    own: tuple[str, str],
    prune: Callable[[tuple[LedgerSection, ...]], Mapping[tuple[str, str], LedgerSection | None]],
    *,
    branch: str = MAIN_BRANCH,
) -> LedgerState:
    """Take out of a ledger what is gone for good.

    :param own: landing and lane of whoever asks
    :param prune: what is left of each section that lost something, ``None`` for nothing; asked at every look of the
        compare-and-swap. What is left has a new epoch, so that no report of what it lost is taken again
    :raises LedgerError: the ledger is gone, or its rollback was not dealt with
    """
    changed: dict[tuple[str, str], LedgerSection | None] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, table)
        changed.clear()
        changed.update(prune(state.sections))
        left = ((s, changed.get((s.landing, s.lane), s)) for s in state.sections)
        return tuple(new for _, new in left if new is not None) if changed else None

    def decide(loaded: Table) -> Change[None] | None:
        state = read_ledger(loaded.metadata, branch)
        sections = update(state)
        extra = {PRUNED: json.dumps(sorted(changed))}
        record = SnapshotRecord(kind=SnapshotKind.INIT, branch=branch, landing=own[0], lane=own[1], extra=extra)
        return None if sections is None else ledger_change(table, state, record, sections, None)

    return read_ledger(compare_and_swap(tables, table, branch, decide).metadata, branch)


def _with(
    state: LedgerState, section: LedgerSection, others: Iterable[LedgerSection] = ()
) -> tuple[LedgerSection, ...]:
    """The ledger with this section, and those of *others* that it lacks; epochs that a rollback ended are new."""
    own = (section.landing, section.lane)
    kept = [s for s in state.sections if (s.landing, s.lane) != own]
    there = {own, *((s.landing, s.lane) for s in kept)}
    if state.condition in (Condition.ROLLED_BACK, Condition.PICKED):
        kept = [replace(s, epoch=uuid4()) for s in kept]
    back = (replace(s, epoch=uuid4()) for s in others if (s.landing, s.lane) not in there)
    return (*kept, *back, section)


def _others_back(
    state: LedgerState, table: str, section: LedgerSection, word: OtherSections
) -> tuple[LedgerSection, ...]:
    """The sections of others that a ledger which is gone had. After a cut the rows are there as they were; nobody knows
    of a branch that was rolled back to before all of them.

    :raises LedgerError: others had a section in a ledger that is lost, and nobody has said what of their rows is there
    """
    others = tuple(s for s in state.remembered if (s.landing, s.lane) != (section.landing, section.lane))
    if not others or word is OtherSections.GONE:
        return ()
    if state.condition is Condition.CUT or word is OtherSections.THERE:
        return others
    names = ", ".join(sorted({f"{s.landing} ({s.lane})" for s in others}))
    raise LedgerError(
        f"the ledger of {table} is {state.condition}: {state.reason}; it had sections of {names} too, and nothing "
        f"tells whether their rows are in the table. Roll the branch to snapshot {state.tag_id or 'ID'}, or say it: "
        f"`--others there` (their ledger comes back) or `--others gone` (each of them says `ledger init` for itself)"
    )


def _check_uuid(state: LedgerState, table: str, expected: UUID | None) -> None:
    if expected is not None and state.table_uuid != expected:
        raise LedgerError(
            f"{table} is table {state.table_uuid} now, the control log remembers {expected}: it was dropped and made "
            "anew. If it holds what was landed: `lakecommit ledger attest SPEC --from-log`; if not, state where it "
            "goes on with `lakecommit ledger init SPEC --from OFFSETS`"
        )


def _swap(
    tables: Tables,
    table: str,
    record: SnapshotRecord,
    update: Update,
    retry_policy: RetryPolicy | None = None,
    *,
    newest: bool = False,
) -> LedgerState:
    def decide(loaded: Table) -> Change[None] | None:
        state = read_ledger(loaded.metadata, record.branch)
        sections = update(state)
        return None if sections is None else ledger_change(table, state, record, sections, None, newest=newest)

    swapped = compare_and_swap(tables, table, record.branch, decide, retry_policy)
    return read_ledger(swapped.metadata, record.branch)
