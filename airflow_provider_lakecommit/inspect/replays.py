# SPDX-License-Identifier: Apache-2.0
"""Do the replays of dead letters in a table's history add up?

Contract: pure. A replay is a snapshot that says which offsets it is of. These must have been landed before, and not
been replayed before; they are in the ledger from then on; each gave a row, or is counted as one that gave none; and of
no range more were replayed than the table says were rejected. What was expired, or a person said, is compared with
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from airflow_provider_lakecommit.committer.summary import SnapshotKind, SnapshotRecord, pruned_sections, replay_of
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.exceptions import WireError
from airflow_provider_lakecommit.inspect.accounts import RangeAccounts

__all__ = ["Step", "is_replay", "replay_problems"]

Step = tuple[SnapshotRecord, LedgerSection | None, LedgerSection | None]
"""A snapshot, and a landing's section before and after it; before the oldest that is left nothing is known."""


def is_replay(record: SnapshotRecord) -> bool:
    """Are its rows dead letters? One that does not tell of which is none that can be believed."""
    try:
        return replay_of(record) is not None
    except WireError:
        return False


def replay_problems(
    landing: str, steps: Sequence[Step], pieces: RangeAccounts, *, one_each: bool
) -> Iterator[tuple[int | None, str]]:
    """What is wrong, each with its snapshot.

    :param steps: of one landing's lane, oldest first
    :param pieces: what the table accounts for of each range
    :param one_each: a record is one row at most
    """
    so_far = Coverage()
    for record, before, after in steps:
        try:
            told = replay_of(record) if record.landing == landing else None
        except WireError as e:
            yield record.snapshot_id, str(e)
            continue
        if told is not None:
            problems = _replay(told[0], told[1], record, before, one_each=one_each)
            yield from ((record.snapshot_id, text) for text in problems)
            if twice := told[0] & so_far:
                yield record.snapshot_id, f"replays {twice}, which was replayed before: its rows are there twice"
            so_far |= told[0]
        own = (landing, record.lane) not in pruned_sections(record)
        if before is not None and after is not None and own:
            yield from ((record.snapshot_id, text) for text in _carried(before, after, record, told))
    yield from ((None, text) for text in _more_than_rejected(so_far, pieces))


def _replay(
    ranges: Coverage, filtered: int, record: SnapshotRecord, before: LedgerSection | None, *, one_each: bool
) -> Iterator[str]:
    least = len(ranges) - filtered
    if record.rows < least or (one_each and record.rows > least):
        yield f"{record.rows} rows for {len(ranges)} dead letters, {filtered} of which gave none"
    if before is not None and (never := ranges - before.covered):
        yield f"replays {never}, which the table did not have"
    if before is not None and (closed := ranges & before.replayed):
        yield f"replays {closed}, which its ledger says was replayed before"


def _carried(
    before: LedgerSection, after: LedgerSection, record: SnapshotRecord, told: tuple[Coverage, int] | None
) -> Iterator[str]:
    wanted = before.replayed | (Coverage() if told is None else told[0])
    if forgotten := wanted - after.replayed:
        yield f"the ledger does not say any more that {forgotten} was replayed"
    if record.kind is not SnapshotKind.INIT and (gained := after.replayed - wanted):
        yield f"the ledger says that {gained} was replayed, the snapshot does not"


def _more_than_rejected(replayed: Coverage, pieces: RangeAccounts) -> Iterator[str]:
    for p, ranges in sorted(replayed.parts.items()):
        for piece in pieces.get(p, ()):
            many = len(ranges & RangeSet.of(piece.range))
            if piece.counts is not None and many > piece.counts.rejected:
                yield f"of {p} {piece.range} {many} dead letters were replayed, {piece.counts.rejected} were rejected"
