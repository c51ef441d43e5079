# SPDX-License-Identifier: Apache-2.0
"""Check that the replays of dead letters in a table's history add up.

A replay is a snapshot that records its offsets. These must have been landed before, by any stream of the landing, and
not been replayed before; they are in the ledger from then on, until their range is landed again; each gave a row, or is
counted as one that gave none; and no range has more replays than rejects. Expired snapshots, and ranges stated by
users, are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from airflow_provider_lakecommit.committer import SnapshotKind, SnapshotRecord, pruned_sections, replay_of
from airflow_provider_lakecommit.core import Coverage, LedgerSection, RangeSet
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.status.accounts import RangeAccounts
from airflow_provider_lakecommit.status.replaced import taken_from

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
        for piece in pieces.get(p, ()):
            many = len(ranges & RangeSet.of(piece.range))
            if piece.counts is not None and many > piece.counts.rejected:
                yield f"of {p} {piece.range} {many} dead letters were replayed, {piece.counts.rejected} were rejected"
