# SPDX-License-Identifier: Apache-2.0
"""Whether snapshots that replaced ranges add up, for `verify`: rows of the history less replaced rows are the rows.

A replacement records the removed ranges, their number of rows, and how many rows of others were copied; the removed and
added files by its manifests must hold just as many. It removes no more rows than were landed of its ranges. A
compaction has as many rows out and deleted as in. An upserting append removes files without a live row. Any other
landing snapshot removes no file. A replaced file that is in the table again has rows that no ledger counts.

Check that the replays of dead letters in a table's history add up.

A replay is a snapshot that records its offsets. These must have been landed before, by any stream of the landing, and
not been replayed before; they are in the ledger from then on, until their range is landed again; each gave a row, or is
counted as one that gave none; and no range has more replays than rejects. Expired snapshots, and ranges stated by
users, are not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from airflow_provider_lakecommit.core import Coverage, LedgerSection, RangeSet
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.iceberg import (
    SUPERSEDED,
    SnapshotKind,
    SnapshotRecord,
    compacted_of,
    pruned_sections,
    replaced_of,
    replay_of,
)
from airflow_provider_lakecommit.status.accounts import RangeAccounts


def taken_from(record: SnapshotRecord, landing: str) -> Coverage:
    """Return the ranges that a snapshot records as removed from the ledger of a landing."""
    replaced = replaced_of(record) if record.landing == landing else None
    return Coverage() if replaced is None else replaced.ranges


def copied_rows(record: SnapshotRecord) -> int:
    """Return the number of rows in its files that were in the table before."""
    replaced, compacted = replaced_of(record), compacted_of(record)
    return (replaced.copied_rows if replaced else 0) + (compacted.rows_out if compacted else 0)


def replaced_rows(record: SnapshotRecord) -> int:
    replaced = replaced_of(record)
    return 0 if replaced is None else replaced.rows


def removal_problems(record: SnapshotRecord, removed: Collection[int], had: Coverage) -> Iterator[str]:
    """Yield problems of the removals of one snapshot.

    :param removed: the record counts of the files that its manifests mark as deleted
    :param had: coverage of its landing in the ledger before
    """
    if record.kind is SnapshotKind.COMPACT:
        yield from _compaction_problems(record, removed)
        return
    replaced = replaced_of(record)
    if replaced is None:
        if record.kind is SnapshotKind.REPLACE:
            yield "replaced ranges, but does not record which"
        elif removed and SUPERSEDED not in record.extra:
            yield f"removed {len(removed)} files of {sum(removed)} rows, but does not record it"
        return
    if sum(removed) != replaced.file_rows:
        yield (
            f"reports that it removed {replaced.rows} rows, copied {replaced.copied_rows} and left out "
            f"{replaced.deleted_rows} deleted ones, but the {len(removed)} removed files had {sum(removed)}"
        )
    if len(removed) != replaced.dropped_files + replaced.rewritten_files:
        text = f"{replaced.dropped_files} files dropped and {replaced.rewritten_files} rewritten"
        yield f"reports {text}, but {len(removed)} are removed"
    if unknown := replaced.ranges - had:
        yield f"reports that it replaced {unknown}, which the ledger did not have"


def _compaction_problems(record: SnapshotRecord, removed: Collection[int]) -> Iterator[str]:
    """Rows in are rows out and deleted rows, and the files that are gone held the rows in."""
    numbers = compacted_of(record)
    if numbers is None:
        yield "compacted files, but does not state their numbers"
        return
    if numbers.rows_in != numbers.rows_out + numbers.dead_rows:
        yield (
            f"compacted {numbers.rows_in} rows into {numbers.rows_out} and left out {numbers.dead_rows} deleted ones: "
            f"{numbers.rows_in - numbers.rows_out - numbers.dead_rows} are missing"
        )
    if (sum(removed), len(removed)) != (numbers.rows_in, numbers.files_in):
        yield (
            f"says that it compacted {numbers.files_in} files of {numbers.rows_in} rows, but took out {len(removed)} "
            f"of {sum(removed)}"
        )


def rows_problems(records: Sequence[SnapshotRecord], *, whole: bool) -> Iterator[tuple[int, bool, str]]:
    """Yield replacements that removed another number of rows than was landed: snapshot, whether it is wrong, reason.

    :param records: of one landing, oldest first
    :param whole: whether no older ones were expired
    """
    landed: dict[int, tuple[Coverage, int]] = {}
    for record in records:
        replaced = replaced_of(record)
        if replaced is not None:
            taken = replaced.ranges | replaced.past
            touched = {n: one for n, one in landed.items() if one[0].overlaps(taken)}
            most = sum(rows for _, rows in touched.values())
            exact = all(not ranges - taken for ranges, _ in touched.values())
            took = f"removed {replaced.rows} rows of {taken}"
            if whole and replaced.rows > most:
                yield record.snapshot_id, True, f"{took}, but at most {most} were landed"
            elif whole and exact and replaced.rows < most:
                yield record.snapshot_id, False, f"{took}, but {most} were landed: the rest was missing"
            landed = {n: (r - taken, rows) for n, (r, rows) in landed.items()}
        if ranges := record.ranges or replayed_rows(record):
            landed[record.snapshot_id] = ranges, record.rows


def replayed_rows(record: SnapshotRecord) -> Coverage:
    """Return the offsets of replayed dead letters; unreadable ones are a finding of another check."""
    try:
        replay = replay_of(record)
    except WireError:
        return Coverage()
    return Coverage() if replay is None else replay[0]


def back_again(removed: Iterable[str], head: Collection[str]) -> list[str]:
    there = set(head)
    return sorted(path for path in removed if path in there)


Lanes = Sequence[LedgerSection]
Step = tuple[SnapshotRecord, Lanes | None, Lanes | None]
"""A snapshot, and a landing's ledger entries before and after it; unknown before the oldest remaining one."""


def is_replay(record: SnapshotRecord) -> bool:
    """Return True if its rows are dead letters. Without its offsets a replay cannot be verified."""
    try:
        return replay_of(record) is not None
    except WireError:
        return False


def replay_problems(
    landing: str, steps: Sequence[Step], pieces: RangeAccounts, *, one_each: bool
) -> Iterator[tuple[int | None, str]]:
    """Yield the problems, each with its snapshot.

    :param steps: of one landing, oldest first
    :param pieces: the table's accounting of each range
    :param one_each: whether a record is at most one row
    """
    so_far = Coverage()
    for record, before, after in steps:
        taken = taken_from(record, landing)
        so_far -= taken
        try:
            replay = replay_of(record) if record.landing == landing else None
        except WireError as e:
            yield record.snapshot_id, str(e)
            continue
        if replay is not None:
            problems = _replay(replay[0], replay[1], record, before, one_each=one_each)
            yield from ((record.snapshot_id, text) for text in problems)
            if twice := replay[0] & so_far:
                yield record.snapshot_id, f"replays {twice}, which was replayed before: its rows are duplicated"
            so_far |= replay[0]
        pruned = any(name == landing for name, _ in pruned_sections(record))
        if before is not None and after is not None and not pruned:
            requested = _closed(before) - taken | (Coverage() if replay is None else replay[0])
            yield from ((record.snapshot_id, text) for text in _kept(requested, _closed(after), record))
    yield from ((None, text) for text in _more_than_rejected(so_far, pieces))


def _closed(sections: Iterable[LedgerSection]) -> Coverage:
    return Coverage.union(s.replayed for s in sections)


def _replay(
    ranges: Coverage, filtered: int, record: SnapshotRecord, before: Lanes | None, *, one_each: bool
) -> Iterator[str]:
    least = len(ranges) - filtered
    if record.rows < least or (one_each and record.rows > least):
        yield f"{record.rows} rows for {len(ranges)} dead letters, {filtered} of which gave none"
    if before is not None and (never := ranges - Coverage.union(s.covered for s in before)):
        yield f"replays {never}, which the table did not have"
    if before is not None and (closed := ranges & _closed(before)):
        yield f"replays {closed}, which was replayed before according to its ledger"


def _kept(requested: Coverage, closed: Coverage, record: SnapshotRecord) -> Iterator[str]:
    if forgotten := requested - closed:
        yield f"the ledger no longer records that {forgotten} was replayed"
    if record.kind is not SnapshotKind.INIT and (gained := closed - requested):
        yield f"the ledger records that {gained} was replayed, but the snapshot does not"


def _more_than_rejected(replayed: Coverage, pieces: RangeAccounts) -> Iterator[str]:
    for p, ranges in sorted(replayed.parts.items()):
        for landed, counts in pieces.get(p, {}).items():
            many = len(ranges & RangeSet.of(landed))
            if counts is not None and many > counts.rejected:
                yield f"of {p} {landed} {many} dead letters were replayed, {counts.rejected} were rejected"
