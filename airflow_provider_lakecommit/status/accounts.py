# SPDX-License-Identifier: Apache-2.0
"""The accounting of each range in the history of a table, by the snapshot that landed it.

A piece is the addition of one snapshot to a partition, with its counts. Unknown are ranges that a user set (``reset
offsets`` and ``reset assert``), ranges landed before the oldest remaining snapshot, and the rest of a piece that a
ledger gave back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from airflow_provider_lakecommit.core import Counts, Coverage, OffsetRange, RangeSet, SourcePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeAccount:
    """A range that one snapshot landed; ``counts`` is ``None`` if unknown."""

    range: OffsetRange
    counts: Counts | None


RangeAccounts = dict[SourcePartition, list[RangeAccount]]


def pieces_after(
    known: RangeAccounts, had: Coverage, has: Coverage, ranges: Coverage, account: Mapping[SourcePartition, Counts]
) -> RangeAccounts:
    """Return the pieces per partition after one more snapshot, in order of offsets, without overlaps.

    :param had: the landing's coverage before it
    :param has: the coverage after it
    :param ranges: the ranges that it accounts for
    """
    out = dict(known)
    for p in {*had.parts, *has.parts}:
        kept = _without(out.get(p, []), had[p] - has[p])
        new = has[p] - had[p]
        counted = new & ranges[p]
        kept += [RangeAccount(range=r, counts=None) for r in new - counted]
        # The counts of a snapshot are totals of its ranges.
        counts = account.get(p) if counted == ranges[p] and len(counted.ranges) == 1 else None
        kept += [RangeAccount(range=r, counts=counts) for r in counted]
        out[p] = sorted(kept, key=lambda piece: piece.range)
    return {p: pieces for p, pieces in out.items() if pieces}


def _without(pieces: Iterable[RangeAccount], lost: RangeSet) -> list[RangeAccount]:
    """Return the rest of the pieces; the rest of a split piece has no counts of its own."""
    out: list[RangeAccount] = []
    for piece in pieces:
        rest = RangeSet.of(piece.range) - lost
        out += [piece] if rest.covers(piece.range) else [RangeAccount(range=r, counts=None) for r in rest]
    return out


def common_blocks(ours: RangeAccounts, theirs: RangeAccounts) -> Iterator[tuple[SourcePartition, OffsetRange]]:
    """Yield the smallest ranges at whose borders pieces of both tables start or end, for every partition of ours in
    order.
    """
    for p in sorted(ours):
        here, there = _borders(ours[p]), _borders(theirs.get(p, []))
        for start, end in pairwise(sorted({min(here), *(here & there), max(here)})):
            yield p, OffsetRange(start, end)


def _borders(pieces: Iterable[RangeAccount]) -> set[int]:
    return {offset for piece in pieces for offset in (piece.range.start, piece.range.end)}


def counts_in(pieces: Iterable[RangeAccount], requested: OffsetRange) -> Counts | None:
    """Return the counts of a range; ``None`` if it is incomplete, or part of it is unknown."""
    inside = [p for p in pieces if requested.start <= p.range.start and p.range.end <= requested.end]
    counts = [p.counts for p in inside if p.counts is not None]
    if len(counts) < len(inside) or sum(len(p.range) for p in inside) < len(requested):
        return None
    return sum(counts, Counts())
