# SPDX-License-Identifier: Apache-2.0
"""How far each partition of a landing is, and which of them are hot: those that hold most of what is behind.

Contract: pure. Offsets are one past the last. A partition is hot when it is behind by :data:`HOT_TIMES` as much as the
others are on average, and by at least :data:`HOT_LEAST` records: with few records any of them may be that by chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Ends", "PagePartition", "Place", "hot", "lags", "shown_partitions"]

MOST_PARTITIONS = 1000
HOT_TIMES = 3
HOT_LEAST = 100

Place = tuple[str, int]
Ends = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePartition:
    """How far one partition is: ends of what was planned, reported, published, and of the log when it was looked at."""

    topic: str
    partition: int
    planned: int | None = None
    reported: int | None = None
    published: int | None = None
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Offsets that no snapshot holds."""
        return None if self.end is None else max(0, self.end - (self.published or 0))

    @property
    def behind(self) -> int:
        """The same, and 0 where the end is not known."""
        return self.lag or 0


def shown_partitions(planned: Ends, reported: Ends, published: Ends, ends: Ends) -> tuple[PagePartition, ...]:
    """All that are known, at most :data:`MOST_PARTITIONS`."""
    return tuple(
        PagePartition(
            topic=place[0],
            partition=place[1],
            planned=planned.get(place),
            reported=reported.get(place),
            published=published.get(place),
            end=ends.get(place),
        )
        for place in sorted({*ends, *planned})[:MOST_PARTITIONS]
    )


def hot(partitions: Sequence[PagePartition]) -> frozenset[Place]:
    """Those that keep the landing behind while the others do not."""
    total, others = sum(p.behind for p in partitions), len(partitions) - 1
    return frozenset(
        (p.topic, p.partition)
        for p in partitions
        if others > 0 and p.behind >= max(HOT_LEAST, HOT_TIMES * (total - p.behind) / others)
    )


def lags(reported: Ends, published: Ends, ends: Ends) -> tuple[int | None, int | None]:
    """Records that nobody has read, and those that were read and that no snapshot holds; ``None`` where no partition is
    known.
    """
    read = [max(0, end - reported.get(p, published.get(p, 0))) for p, end in ends.items()]
    commit = [max(0, upto - published.get(p, 0)) for p, upto in reported.items()]
    return sum(read) if read else None, sum(commit) if commit else None
