# SPDX-License-Identifier: Apache-2.0
"""Read the ledger of a table: that of the newest landing snapshot on a branch's ancestry.

Contract: :func:`read_ledger` is a function of the table's metadata alone. Consumer groups, logs and caches do not
count. One tag per branch pins the snapshot with the ledger; each landing snapshot moves it in the same commit. So the
tag distinguishes a rollback (tag off the ancestry, an older ledger on it) from a first run (neither tag nor ledger),
and from a missing ledger. If another client cherry-picks a landing snapshot onto another head, its rows return without
its ledger: that is PICKED, until a user asserts what that landing has in the table.

Failure story: nothing is guessed. A tag without a ledger on the ancestry is LOST (rolled back to before the initial
entry) or CUT (the snapshots between head and ledger were expired), and :func:`require_ledger` turns these and PICKED
into a :class:`LedgerError` that names the command. A ledger without its tag, or inherited by a new branch, counts as
rolled back: it may not be the newest, so pending slices are voided and their ranges read again.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.core import (
    MAINTAIN,
    RESET_ASSERT,
    RESET_OFFSETS,
    Coverage,
    Decision,
    LedgerSection,
    is_filled,
)
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.ledger.summary import (
    LogPoint,
    SnapshotKind,
    SnapshotRecord,
    decisions_of,
    has_ledger,
    ledger_share,
    named_main,
    record_of,
    sections_of,
)

FOREIGN_LIMIT = 20
"""Foreign snapshots after the ledger at which it is refreshed."""
CROWDED = 0.7
"""Used share of the room for a ledger at which a warning is given."""
_PICKED_FROM = "source-snapshot-id"
"""Key of Iceberg in the summary of a cherry-picked snapshot: the id of its source."""
_EXPIRY_AGE = "history.expire.max-snapshot-age-ms"
_EXPIRY_AGE_DEFAULT_MS = 5 * 24 * 3600 * 1000


class Condition(StrEnum):
    """The condition of a branch's ledger, by the metadata."""

    PRESENT = "present"
    ABSENT = "absent"
    """Neither ledger nor tag: a first run is allowed."""
    ROLLED_BACK = "rolled back"
    """The ledger on the ancestry is not the newest, or may not be: it needs a new epoch first."""
    LOST = "lost"
    """The branch was rolled back to before the initial entry."""
    CUT = "cut"
    """The ancestry does not reach back to the ledger."""
    PICKED = "picked"
    """Rows of a landing snapshot off the branch were cherry-picked: no ledger counts them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerState:
    """The ledger of one branch of one table. The ``sections`` of a ledger that was rolled back are as
    :func:`with_later` describes. ``foreign_since`` counts foreign snapshots after the ledger's. ``newest``:
    neither the tag nor another snapshot of the metadata has a newer ledger. ``remembered`` are the entries of a lost or
    cut ledger, from the newest snapshot of the metadata that has them, ``undone`` those that a rollback took away;
    ``decisions`` are those of users, by the snapshot of ``remembered`` or the ledger's. ``share`` is the used part of a
    ledger's room, ``picked_id`` the landing snapshot with cherry-picked rows.
    """

    condition: Condition
    branch: str
    table_uuid: UUID
    sections: tuple[LedgerSection, ...] = ()
    head_id: int | None = None
    snapshot_id: int | None = None
    tag_id: int | None = None
    foreign_since: int = 0
    at_ms: int = 0
    reason: str = ""
    newest: bool = False
    remembered: tuple[LedgerSection, ...] = ()
    undone: tuple[LedgerSection, ...] = ()
    decisions: tuple[Decision, ...] = ()
    share: float = 0.0
    picked_id: int | None = None

    @property
    def crowding(self) -> str | None:
        """Return the warning about a ledger that is almost full, or ``None``."""
        if self.share < CROWDED:
            return None
        return (
            f"its ledger uses {self.share:.0%} of its size limit. Nothing can be landed once it is full: drop "
            f"obsolete entries (`{MAINTAIN} SPEC --only ledger`), or land fewer partitions or landings into this table"
        )

    @property
    def known_sections(self) -> tuple[LedgerSection, ...]:
        """Return the entries, or those of a lost or cut ledger."""
        return self.sections or self.remembered

    def section(self, landing: str, lane: str) -> LedgerSection | None:
        return next((s for s in self.sections if s.key == (landing, lane)), None)

    def own(self, landing: str, lane: str) -> LedgerSection:
        """Return the entry of a stream.

        :raises LedgerError: the ledger lacks it
        """
        if (found := self.section(landing, lane)) is None:
            raise LedgerError(
                "LC6010", f"the table of landing {landing} has no ledger entry for stream {lane}: plan first"
            )
        return found

    def covered(self, *, exclude: tuple[str, str] | None = None) -> Coverage:
        """Return what all landings and streams have in the table, except one."""
        return Coverage.union(s.covered for s in self.sections if s.key != exclude)

    def whole(self, section: LedgerSection) -> LedgerSection:
        """Return an entry together with what closed backfills of its landing have; the live stream continues there."""
        return replace(section, covered=section.covered | self.closed(section.landing))

    def closed(self, landing: str) -> Coverage:
        """Return what closed backfills of a landing have."""
        return Coverage.union(s.covered for s in self.sections if s.landing == landing and is_filled(s.lane))


def tag_name(branch: str) -> str:
    """Return the name of the tag that pins the ledger of a branch."""
    return f"lakecommit-{branch}"


def ancestry(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Yield the snapshots of a branch, newest first, as far as the metadata has them."""
    by_id = {s.snapshot_id: s for s in metadata.snapshots}
    ref = metadata.refs.get(branch)
    snapshot = by_id.get(ref.snapshot_id) if ref else None
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else by_id.get(parent)


def main_below(metadata: TableMetadata, branch: str) -> int | None:
    """Return the head of ``main`` if a branch descends from it: by its ancestry, or, where another engine has expired
    that, by a landing snapshot of the branch, which names the head.
    """
    main = metadata.refs.get(MAIN_BRANCH)
    if main is None or branch == MAIN_BRANCH:
        return None
    line = ancestry(metadata, branch)
    return main.snapshot_id if any(main.snapshot_id in (s.snapshot_id, named_main(s)) for s in line) else None


def read_ledger(metadata: TableMetadata, branch: str = MAIN_BRANCH) -> LedgerState:
    """Read the ledger of a branch.

    :raises TableError: the branch does not exist
    :raises WireError: the ledger is corrupt or of a later release
    """
    _check_refs(metadata, branch)
    line = list(ancestry(metadata, branch))
    tag = metadata.refs.get(tag_name(branch))
    found = next((n for n, s in enumerate(line) if has_ledger(s)), None)
    condition, reason = _condition(metadata, branch, line, found)
    holder = None if found is None else line[found]
    picked = None if holder is None else _picked(metadata, line, holder)
    if picked is not None:
        condition, reason = Condition.PICKED, picked.reason
    memory = _memory(metadata, branch) if condition in (Condition.LOST, Condition.CUT) else holder
    rolled_back = _memory(metadata, branch) if condition is Condition.ROLLED_BACK else None
    undone = () if rolled_back is None else sections_of(rolled_back)
    return LedgerState(
        condition=condition,
        branch=branch,
        table_uuid=metadata.table_uuid,
        sections=() if holder is None else tuple(with_later(sections_of(holder), undone)),
        head_id=line[0].snapshot_id if line else None,
        snapshot_id=None if holder is None else holder.snapshot_id,
        tag_id=None if tag is None else tag.snapshot_id,
        foreign_since=found or 0,
        at_ms=0 if holder is None else holder.timestamp_ms,
        reason=reason,
        newest=condition is Condition.PRESENT or _is_newest(metadata, branch, holder),
        remembered=() if memory is None or memory is holder else sections_of(memory),
        undone=undone,
        decisions=() if memory is None else decisions_of(memory),
        share=0.0 if holder is None else ledger_share(holder),
        picked_id=None if picked is None else picked.source_id,
    )


def require_ledger(state: LedgerState, table: str) -> None:
    """Refuse a table whose ledger is missing.

    :raises LedgerError: names the cause and the command that repairs it
    """
    if state.condition in (Condition.LOST, Condition.CUT, Condition.PICKED):
        cut = f"if the rows match that ledger, `{RESET_ASSERT} SPEC --snapshot {state.tag_id or 'ID'}`; if not, "
        raise LedgerError(
            "LC3008",
            f"the ledger of {table} (branch {state.branch}) is {state.condition}: {state.reason}. Nothing is landed "
            f"until you state what the table holds: {cut if state.condition is Condition.CUT else ''}what it holds, "
            f"`{RESET_ASSERT} SPEC --at TOPIC:PARTITION=OFFSET,…`, or the offsets to go on from, `{RESET_OFFSETS} SPEC "
            f"--from OFFSETS`; or roll the branch to snapshot {state.tag_id or 'ID'}, which holds the ledger",
        )


def with_later(sections: Iterable[LedgerSection], undone: Iterable[LedgerSection]) -> Iterator[LedgerSection]:
    """Yield entries with what snapshots that are undone have decided since. Topics that were added are read again from
    there, not from where a landing with ``start: latest`` would begin now. A pause stays, and so does its end, except
    in the entry of a connector that lands.
    """
    later = {s.key: s for s in undone}
    for s in sections:
        new, known = later.get(s.key, s), {p.topic for p in s.starts}
        added = new.starts.items() if new.cluster_id == s.cluster_id else ()
        starts = {**{p: at for p, at in added if p.topic not in known}, **s.starts}
        lands = s.sink is not None and s.sink.lands
        yield replace(s, starts=starts, suspended=new.suspended or (s.suspended if lands else ""))


def needs_refresh(state: LedgerState, metadata: TableMetadata, now_ms: int) -> bool:
    """Return True if there are so many foreign snapshots that an empty append must repeat the ledger."""
    if state.condition is not Condition.PRESENT or not state.foreign_since:
        return False
    age = expiry_age_ms(metadata) or _EXPIRY_AGE_DEFAULT_MS
    return state.foreign_since >= FOREIGN_LIMIT or now_ms - state.at_ms >= age // 4


def expiry_age_ms(metadata: TableMetadata) -> int | None:
    """Return the age up to which the table's owner keeps snapshots, if stated."""
    text = metadata.properties.get(_EXPIRY_AGE, "")
    return int(text) if text.isdecimal() and len(text) < 19 else None


def landing_snapshots(
    metadata: TableMetadata, branch: str = MAIN_BRANCH, *, landing: str | None = None, lane: str | None = None
) -> Iterator[SnapshotRecord]:
    """Yield the landing snapshots on a branch's ancestry, newest first, of one landing and stream or of all.

    :raises WireError: the summary of a snapshot is corrupt
    """
    for record in map(record_of, ancestry(metadata, branch)):
        if record is not None and landing in (None, record.landing) and lane in (None, record.lane):
            yield record


def unannounced(
    records: Iterator[SnapshotRecord], announced: Container[UUID], log_begin: LogPoint
) -> tuple[SnapshotRecord, ...]:
    """Return snapshots with slices whose tokens were never announced, oldest first.

    :param records: of one landing and stream, newest first
    :param announced: tokens in the control log from ``log_begin`` on
    :param log_begin: start of the read log. An announcement comes at or after the record's ``control_end``, so a record
        that ended before this point, or belongs to another log, cannot be checked: it and all before it count as
        announced
    """
    out: list[SnapshotRecord] = []
    for record in records:
        if not record.publishes:
            continue
        end = record.control_end
        same_log = end and (end.topic_id, end.partition) == (log_begin.topic_id, log_begin.partition)
        if end is None or not same_log or end.offset < log_begin.offset:
            break
        if record.token not in announced:
            out.append(record)
    return tuple(reversed(out))


def _check_refs(metadata: TableMetadata, branch: str) -> None:
    ref = metadata.refs.get(branch)
    if ref is None and branch != MAIN_BRANCH:
        raise TableError(
            "LC3009",
            f"the table in {metadata.location} has no branch {branch!r}: a landing with checks creates it with its "
            f"next run; else create it (ALTER TABLE … CREATE BRANCH `{branch}`), or land into main",
        )
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
        raise TableError("LC3010", f"{branch!r} of the table in {metadata.location} is a tag: name a branch")
    tag = metadata.refs.get(tag_name(branch))
    if tag is not None and tag.snapshot_ref_type != SnapshotRefType.TAG:
        raise TableError(
            "LC3011",
            f"the table in {metadata.location} has a branch {tag_name(branch)!r}, the name of the tag that pins the "
            "ledger: rename that branch",
        )


def _condition(metadata: TableMetadata, branch: str, line: list[Snapshot], found: int | None) -> tuple[Condition, str]:
    tag = metadata.refs.get(tag_name(branch))
    if found is not None:
        if tag is None:
            return Condition.ROLLED_BACK, f"tag {tag_name(branch)}, which marks the newest ledger, is missing"
        if any(s.snapshot_id == tag.snapshot_id for s in line):
            return Condition.PRESENT, ""
        return Condition.ROLLED_BACK, (
            f"the branch was rolled back from snapshot {tag.snapshot_id} to one on {line[found].snapshot_id}"
        )
    newest = metadata.snapshot_by_id(tag.snapshot_id) if tag else _orphan(metadata, branch)
    if newest is None:
        return Condition.ABSENT, ""
    if line and severed(line[-1], newest):
        return Condition.CUT, (
            f"the snapshots between {newest.snapshot_id}, which holds the ledger, and {line[-1].snapshot_id} "
            "have expired"
        )
    return Condition.LOST, f"snapshot {newest.snapshot_id}, which holds the ledger, is not on the branch any more"


class _Picked(NamedTuple):
    """A cherry-picked landing snapshot."""

    source_id: int
    reason: str


def _picked(metadata: TableMetadata, line: list[Snapshot], holder: Snapshot) -> _Picked | None:
    """Return the newest foreign snapshot with files of a landing snapshot off the branch that no assertion covers."""
    picks = [(n, int(named)) for n, s in enumerate(line) if (named := _source_of(s)).isdecimal()]
    if not picks:
        return None
    there, known = {s.snapshot_id for s in line}, {(s.landing, s.lane) for s in sections_of(holder)}
    for index, source_id in picks:
        source = None if source_id in there else metadata.snapshot_by_id(source_id)
        record = None if source is None else record_of(source)
        if record is None or not record.rows or (record.landing, record.lane) not in known:
            continue
        since = (r for s in line[:index] if (r := record_of(s)) is not None and r.kind is SnapshotKind.INIT)
        if all((r.landing, r.lane) != (record.landing, record.lane) for r in since):
            return _Picked(
                source_id,
                f"snapshot {line[index].snapshot_id} of another writer brought back the rows of snapshot {source_id} "
                f"(landing {record.landing}, {record.lane}), which is not on the branch",
            )
    return None


def _source_of(snapshot: Snapshot) -> str:
    """Return the snapshot that a foreign one was cherry-picked from. A landing's own snapshot returns unchanged."""
    if snapshot.summary is None or has_ledger(snapshot):
        return ""
    return snapshot.summary.additional_properties.get(_PICKED_FROM) or ""


def _is_newest(metadata: TableMetadata, branch: str, holder: Snapshot | None) -> bool:
    """Return True if no metadata refers to a ledger newer than this one."""
    tag = metadata.refs.get(tag_name(branch))
    if holder is None or tag is not None:
        return False
    last = _orphan(metadata, branch)
    return last is not None and last.snapshot_id == holder.snapshot_id


def _memory(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the newest snapshot of the metadata with the ledger that the branch lacks."""
    tag = metadata.refs.get(tag_name(branch))
    newest = metadata.snapshot_by_id(tag.snapshot_id) if tag else None
    return newest if newest is not None and has_ledger(newest) else _orphan(metadata, branch)


def _orphan(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return the newest landing snapshot of a branch that is still in the metadata though nothing refers to it."""
    ours = (s for s in metadata.snapshots if (r := record_of(s)) is not None and r.branch == branch)
    return max(ours, key=_age, default=None)


def severed(oldest: Snapshot, ledger: Snapshot) -> bool:
    """Return True if the ancestry ends early: its last parent is missing, or (some expire a snapshot by orphaning its
    child) everything left of it is younger than the ledger.
    """
    return oldest.parent_snapshot_id is not None or _age(oldest) > _age(ledger)


def _age(snapshot: Snapshot) -> tuple[int, int]:
    return snapshot.sequence_number or 0, snapshot.timestamp_ms
