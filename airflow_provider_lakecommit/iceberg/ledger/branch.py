# SPDX-License-Identifier: Apache-2.0
"""Windows that land on their own branch: what ``main`` lacks of it, its publication, and its restart.

Contract: :func:`move_main` is one request that moves ``main`` and its tag to a snapshot of the branch, and asserts the
positions of both branches and the tag: after any kill or repetition, ``main`` has the snapshot once or not at all.
``main`` only moves forward: it takes publications from this branch and nothing else. :func:`restart` puts the branch
back on ``main``, with the ledger of ``main``; what it drops is read again, by new epochs.

Failure story: if ``main`` has anything that the branch lacks (snapshots of another writer, a rollback), it is not
moved: a publication would hide or undo it, and a user decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from typing import Any
from uuid import uuid4

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AssertTableUUID

from airflow_provider_lakecommit.core import (
    LIVE,
    RESET_ASSERT,
    RESET_BLOCKED,
    Coverage,
    Decision,
    LedgerSection,
    is_filled,
    kept_decisions,
    total_of,
)
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import (
    Condition,
    LedgerState,
    ancestry,
    main_below,
    read_ledger,
    severed,
    tag_name,
    with_later,
)
from airflow_provider_lakecommit.iceberg.ledger.stage import (
    Attempt,
    Change,
    Staging,
    at_ref,
    moved,
    pinned,
    stage,
    stage_move,
    stage_restart,
    stage_untagged,
)
from airflow_provider_lakecommit.iceberg.ledger.summary import (
    SnapshotKind,
    SnapshotRecord,
    has_ledger,
    record_of,
    sections_of,
    to_summary,
)
from airflow_provider_lakecommit.iceberg.ledger.swap import compare_and_swap

_NO_ROWS = (SnapshotKind.ORIGIN, SnapshotKind.EPOCH, SnapshotKind.CARRY, SnapshotKind.INIT)
RESTARTED = "restarted-on"
"""Summary key of a restart: the snapshot of ``main`` that the branch was put on."""
RELEASED = "released"
"""Summary key of a decision to publish a snapshot without its checks."""
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpublished:
    """What a branch has and ``main`` lacks: its ``snapshots``, newest first; ``records`` are those of landings, and
    ``released_id`` the newest that a user has released: it and all before it need no check. ``apart`` describes what
    ``main`` has and the branch lacks, ``rolled_back`` that ``main`` was rolled back; without both, ``main`` can move to
    the branch. ``cut``: the branch descends from ``main``, and snapshots between them have expired.
    """

    main_id: int | None
    head_id: int | None
    snapshots: tuple[Snapshot, ...] = ()
    records: tuple[SnapshotRecord, ...] = ()
    released_id: int | None = None
    apart: str = ""
    rolled_back: str = ""
    cut: bool = False

    @property
    def rows(self) -> int:
        """Return the rows of its snapshots, and the records that delete one."""
        return sum(r.rows + total_of(r.accounting.values()).deleted for r in self.records if r.publishes)

    @property
    def changes_rows(self) -> bool:
        """Return True if an unreleased snapshot changes rows, or is of another writer."""
        same = {r.snapshot_id for r in self.records if r.kind in _NO_ROWS}
        unreleased = takewhile(lambda s: s.snapshot_id != self.released_id, self.snapshots)
        return any(s.snapshot_id not in same for s in unreleased)


def unpublished(metadata: TableMetadata, branch: str) -> Unpublished:
    """Compare ``main`` with a branch."""
    line, main = list(ancestry(metadata, branch)), metadata.refs.get(MAIN_BRANCH)
    published = {s.snapshot_id for s in ancestry(metadata, MAIN_BRANCH)}
    ahead = tuple(takewhile(lambda s: s.snapshot_id not in published, line))
    records = tuple(r for s in ahead if (r := record_of(s)) is not None)
    # A decision that main had before it was rolled back is done: it does not undo the rollback.
    tag = metadata.refs.get(tag_name(MAIN_BRANCH))
    pending = list(takewhile(lambda r: tag is None or r.snapshot_id != tag.snapshot_id, records))
    restarted = any(main and r.extra.get(RESTARTED) == str(main.snapshot_id) for r in pending)
    descends = main is None or main_below(metadata, branch) is not None
    return Unpublished(
        main_id=main.snapshot_id if main else None,
        head_id=line[0].snapshot_id if line else None,
        snapshots=ahead,
        records=records,
        released_id=next((r.snapshot_id for r in pending if RELEASED in r.extra), None),
        apart="" if descends else _apart(metadata, branch, line),
        rolled_back="" if restarted else _rolled_back(metadata),
        cut=main is not None and descends and len(ahead) == len(line),
    )


def _apart(metadata: TableMetadata, branch: str, line: Sequence[Snapshot]) -> str:
    there = {s.snapshot_id for s in line}
    own = [s for s in ancestry(metadata, MAIN_BRANCH) if s.snapshot_id not in there]
    listed = ", ".join(
        f"{s.snapshot_id} ({s.summary.operation.value if s.summary else 'unknown'})" for s in own[:_SHOWN]
    )
    more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
    expired = line and own and severed(line[-1], own[-1])
    lacks = "lacks, or had before its older ones expired" if expired else "lacks"
    return f"main has snapshots that branch {branch} {lacks}: {listed}{more}"


def _rolled_back(metadata: TableMetadata) -> str:
    state = read_ledger(metadata, MAIN_BRANCH)
    return (
        "" if state.condition in (Condition.PRESENT, Condition.ABSENT) else f"main is {state.condition}: {state.reason}"
    )


def ensure_branch(tables: Tables, name: str, table: Table, branch: str, *, dry: bool = False) -> Table:
    """Return a table with the branch: it begins at ``main``, with the tag of its ledger. A dropped branch is restored
    at its own tag, with all that it had.

    A table without snapshots gets an empty one first: catalogs refuse branches of others.

    :param dry: change nothing; the branch is only simulated
    :raises CatalogError: the catalog is unavailable
    """
    metadata, own_tag = table.metadata, tag_name(branch)
    if branch in metadata.refs:
        return table
    main, own = metadata.refs.get(MAIN_BRANCH), metadata.refs.get(own_tag)
    begins, tag = own or main, None if own else metadata.refs.get(tag_name(MAIN_BRANCH))
    if dry:
        at = -1 if begins is None else begins.snapshot_id
        made = SnapshotRef.model_validate({"snapshot-id": at, "type": SnapshotRefType.BRANCH})
        refs = {**metadata.refs, branch: made, **({} if tag is None else {own_tag: tag})}
        with_branch = metadata.model_copy(update={"refs": refs})
        return Table(table.name(), with_branch, table.metadata_location, table.io, table.catalog)
    if begins is None:
        compare_and_swap(tables, name, MAIN_BRANCH, _first, staging=stage_untagged)
        return ensure_branch(tables, name, tables.load(name), branch)
    updates = [moved(metadata, branch, begins.snapshot_id)]
    if tag is not None:
        updates.append(pinned(own_tag, tag.snapshot_id))
    needs = (
        AssertTableUUID(uuid=metadata.table_uuid),
        at_ref(branch, None),
        at_ref(MAIN_BRANCH, main.snapshot_id if main else None),
        at_ref(own_tag, own.snapshot_id if own else None),
    )
    try:
        tables.commit(table, needs, tuple(updates))
    except Exception:
        # Another run has made it, or the answer was lost: read the table.
        if branch not in (again := tables.load(name)).metadata.refs:
            raise
        return again
    return tables.load(name)


def _first(table: Table) -> Change[None] | None:
    return None if MAIN_BRANCH in table.metadata.refs else Change(why=None)


def require_together(found: Unpublished, table: str, branch: str, *, brings_back: bool = False) -> None:
    """Refuse a publication if ``main`` has something that the branch lacks.

    :param brings_back: rows that ``main`` was rolled back from may return
    :raises LedgerError: names it
    """
    brings_back = brings_back or found.released_id is not None
    if why := found.apart or ("" if brings_back else found.rolled_back):
        release = "" if found.apart else f"`{RESET_BLOCKED} SPEC --release` publishes all the same, "
        raise LedgerError(
            "LC3060",
            f"{table}: {why}. Nothing is published: main takes publications from branch {branch} only. {release}"
            f"`{RESET_BLOCKED} SPEC --drop` resets the branch to the current main, and the next run reads the "
            "unpublished records again",
        )


def move_main(tables: Tables, table: str, branch: str, snapshot_id: int, *, landing: str) -> bool:
    """Publish a snapshot of a branch; returns False if ``main`` has it already.

    :param landing: the landing whose checks it passed: snapshots of others are only published if they are released
    :raises LedgerError: ``main`` or the branch has moved elsewhere, or another landing has unpublished snapshots
    :raises CommitUnknownError: a request was sent, and its outcome stayed unknown
    :raises CatalogError: the catalog or the storage was unreachable
    """

    def line(loaded: Table) -> list[Snapshot]:
        return list(dropwhile(lambda s: s.snapshot_id != snapshot_id, ancestry(loaded.metadata, branch)))

    def decide(loaded: Table) -> Change[None] | None:
        found = unpublished(loaded.metadata, branch)
        require_together(found, table, branch)
        if not line(loaded):
            raise LedgerError(
                "LC3061", f"{table}: branch {branch} was moved while it was checked: the next run checks it again"
            )
        passed = list(dropwhile(lambda s: s.snapshot_id != snapshot_id, found.snapshots))
        checked = takewhile(lambda s: s.snapshot_id != found.released_id, passed)
        others = {r.landing for s in checked if (r := record_of(s)) is not None} - {landing}
        if found.cut and passed and found.released_id is None:
            known = {s.key: s.covered for s in read_ledger(loaded.metadata, MAIN_BRANCH).sections}
            sections = sections_of(next(filter(has_ledger, passed)))
            others |= {s.landing for s in sections if s.covered != known.get(s.key)} - {landing}
        if others:
            raise LedgerError(
                "LC3062",
                f"{table}: branch {branch} also has unpublished snapshots of {', '.join(sorted(others))}, whose checks "
                f"have not passed: state another `publish.branch` in one of the landings. `{RESET_BLOCKED} SPEC "
                "--release` publishes all of them",
            )
        return Change(why=None) if passed else None

    def staged(loaded: Table, on: str, _: Change[Any]) -> Attempt:
        ledger = next(filter(has_ledger, line(loaded)))
        return stage_move(loaded, on, snapshot_id, ledger_id=ledger.snapshot_id, source=branch)

    return compare_and_swap(tables, table, MAIN_BRANCH, decide, staging=staged).landed is not None


def release(tables: Tables, table: str, branch: str, *, landing: str, head_id: int | None, decision: Decision) -> int:
    """Record that the next commit publishes a branch without its checks; returns the snapshot of the decision.

    :param head_id: the previewed head of the branch
    :raises LedgerError: the branch has moved since, or ``main`` has snapshots of another writer
    """

    def sections(state: LedgerState, loaded: Table) -> Iterable[LedgerSection]:
        require_together(unpublished(loaded.metadata, branch), table, branch, brings_back=True)
        return state.sections

    record = SnapshotRecord(kind=SnapshotKind.CARRY, branch=branch, landing=landing, lane=LIVE, decisions=(decision,))
    return _decided(tables, table, record, head_id, sections, stage)


def restart(tables: Tables, table: str, branch: str, *, landing: str, head_id: int | None, decision: Decision) -> int:
    """Put a branch back on ``main``; returns the snapshot. Every entry has a new epoch, so that nothing pending is
    appended, and what the branch had is read again. A suspended landing stays suspended.

    :param head_id: the previewed head of the branch
    :raises LedgerError: the branch has moved since, or it is unknown what ``main`` has
    """

    def sections(_: LedgerState, loaded: Table) -> Iterable[LedgerSection]:
        before = _before(loaded.metadata, unpublished(loaded.metadata, branch), table)
        return (replace(s, epoch=uuid4()) for s in before)

    def staged(loaded: Table, on: str, change: Change[Any]) -> Attempt:
        return stage_restart(loaded, on, MAIN_BRANCH, change.summary)

    record = SnapshotRecord(kind=SnapshotKind.EPOCH, branch=branch, landing=landing, lane=LIVE, decisions=(decision,))
    return _decided(tables, table, record, head_id, sections, staged)


def _decided(
    tables: Tables,
    table: str,
    record: SnapshotRecord,
    head_id: int | None,
    sections: Callable[[LedgerState, Table], Iterable[LedgerSection]],
    staging: Staging,
) -> int:
    """Record a decision about a branch in its ledger, if it is at the previewed snapshot."""
    branch = record.branch

    def decide(loaded: Table) -> Change[None]:
        found = unpublished(loaded.metadata, branch)
        if found.head_id != head_id:
            raise LedgerError(
                "LC3063",
                f"{table}: branch {branch} is at snapshot {found.head_id} now, and was at {head_id} in the preview: "
                f"run `{RESET_BLOCKED}` again to see the new preview",
            )
        state = read_ledger(loaded.metadata, branch)
        kept = kept_decisions(state.decisions, record.decisions)
        extra = {RESTARTED: str(found.main_id)} if record.kind is SnapshotKind.EPOCH else {RELEASED: str(head_id)}
        recorded = replace(record, decisions=kept, extra=extra)
        return Change(summary=to_summary(recorded, sections(state, loaded)), why=None)

    made = compare_and_swap(tables, table, branch, decide, staging=staging).snapshot_id
    if made is None:
        raise LedgerError("LC3065", f"{table}: the decision about branch {branch} was not written: run it again")
    return made


def _before(metadata: TableMetadata, found: Unpublished, table: str) -> tuple[LedgerSection, ...]:
    """Return the ledger of ``main`` with topics that were added since, and the first entry of each stream that has
    published nothing yet; if that has expired, its newest one without what it has read.

    :raises LedgerError: ``main`` may have rows of a ledger that it does not reach any more
    """
    line = list(ancestry(metadata, MAIN_BRANCH))
    holder = next(filter(has_ledger, line), None)
    sections = {} if holder is None else {s.key: s for s in sections_of(holder)}
    for snapshot in reversed(found.snapshots):
        record = record_of(snapshot)
        if record is not None and record.kind is SnapshotKind.ORIGIN:
            own = (s for s in sections_of(snapshot) if s.key == (record.landing, record.lane))
            sections = {**{s.key: s for s in own}, **sections}
    ahead = [s for s in found.snapshots if has_ledger(s)]
    newest = sections_of(ahead[0]) if ahead else ()
    unread = {s.key: _unread(s) for s in newest if not is_filled(s.lane)}
    tag = metadata.refs.get(tag_name(MAIN_BRANCH))
    known = metadata.snapshot_by_id(tag.snapshot_id) if tag else ahead[-1] if ahead else None
    lost = holder is None and line and known is not None and severed(line[-1], known)
    if lost and (found.apart or unread.keys() - sections.keys()):
        raise LedgerError(
            "LC3067",
            f"{table}: main does not reach back to its ledger, as snapshots before {line[-1].snapshot_id} have "
            "expired, so it is unknown which records it has. Nothing was dropped. State it with a copy of the spec "
            f"without `publish`: `{RESET_ASSERT} SPEC --snapshot ID`, with the snapshot of tag "
            f"{tag_name(MAIN_BRANCH)}, if the rows match its ledger, or `--at TOPIC:PARTITION=OFFSET,…`; then drop",
        )
    return tuple(with_later({**unread, **sections}.values(), newest))


def _unread(section: LedgerSection) -> LedgerSection:
    left = section.covered - Coverage.union(e.coverage for e in section.provenance)
    return replace(section, covered=left, evaluated={}, positions={}, provenance=(), replayed=Coverage())
