# SPDX-License-Identifier: Apache-2.0
"""The accounting of each range in the history of a table, by the snapshot that landed it.

A piece is the addition of one snapshot to a partition, with its counts. Unknown are ranges that a user set (``reset
offsets`` and ``reset assert``), ranges landed before the oldest remaining snapshot, and the rest of a piece that a
ledger gave back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from airflow_provider_lakecommit.core import Counts, Coverage, OffsetRange, RangeSet, SourcePartition

Pieces = dict[OffsetRange, Counts | None]
"""Ranges of one partition in order, each landed by one snapshot, with their counts; ``None`` if unknown."""
RangeAccounts = dict[SourcePartition, Pieces]


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
        kept = _without(out.get(p, {}), had[p] - has[p])
        new = has[p] - had[p]
        counted = new & ranges[p]
        kept.update(dict.fromkeys(new - counted))
        # The counts of a snapshot are totals of its ranges.
        counts = account.get(p) if counted == ranges[p] and len(counted.ranges) == 1 else None
        kept.update(dict.fromkeys(counted, counts))
        out[p] = {r: kept[r] for r in sorted(kept)}
    return {p: pieces for p, pieces in out.items() if pieces}


def _without(pieces: Pieces, lost: RangeSet) -> Pieces:
    """Return the rest of the pieces; the rest of a split piece has no counts of its own."""
    out: Pieces = {}
    for landed, counts in pieces.items():
        rest = RangeSet.of(landed) - lost
        out.update({landed: counts} if rest.covers(landed) else dict.fromkeys(rest))
    return out


def common_blocks(ours: RangeAccounts, theirs: RangeAccounts) -> Iterator[tuple[SourcePartition, OffsetRange]]:
    """Yield the smallest ranges at whose borders pieces of both tables start or end, for every partition of ours in
    order.
    """
    for p in sorted(ours):
        here, there = _borders(ours[p]), _borders(theirs.get(p, ()))
        for start, end in pairwise(sorted({min(here), *(here & there), max(here)})):
            yield p, OffsetRange(start, end)


def _borders(ranges: Iterable[OffsetRange]) -> set[int]:
    return {offset for landed in ranges for offset in (landed.start, landed.end)}


def counts_in(pieces: Mapping[OffsetRange, Counts | None], requested: OffsetRange) -> Counts | None:
    """Return the counts of a range; ``None`` if it is incomplete, or part of it is unknown."""
    inside = {r: c for r, c in pieces.items() if requested.start <= r.start and r.end <= requested.end}
    counts = [c for c in inside.values() if c is not None]
    if len(counts) < len(inside) or sum(map(len, inside)) < len(requested):
        return None
    return sum(counts, Counts())
