# SPDX-License-Identifier: Apache-2.0
"""The progress of each partition of a landing, and the hot ones, which have most of the lag.

A hot partition lags :data:`HOT_TIMES` the average of the others, and at least :data:`HOT_LEAST` records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

HOT_TIMES = 3
HOT_LEAST = 100

Place = tuple[str, int]
Ends = Mapping[Place, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePartition:
    """The progress of one partition: planned, reported, published and log ends at the time of the last read."""

    topic: str
    partition: int
    planned: int | None = None
    reported: int | None = None
    published: int | None = None
    end: int | None = None

    @property
    def lag(self) -> int | None:
        """Return the number of offsets without a snapshot."""
        return None if self.end is None else max(0, self.end - (self.published or 0))


def hot(partitions: Sequence[PagePartition]) -> frozenset[Place]:
    """Return those that delay the landing while the others do not."""
    behind = {(p.topic, p.partition): p.lag or 0 for p in partitions}
    total, others = sum(behind.values()), len(behind) - 1
    return frozenset(
        p for p, lag in behind.items() if others > 0 and lag >= max(HOT_LEAST, HOT_TIMES * (total - lag) / others)
    )


def lags(reported: Ends, published: Ends, ends: Ends) -> tuple[int | None, int | None]:
    """Return unread records, and read records without a snapshot; ``None`` without known partitions."""
    read = [max(0, end - reported.get(p, published.get(p, 0))) for p, end in ends.items()]
    commit = [max(0, upto - published.get(p, 0)) for p, upto in reported.items()]
    return sum(read) if read else None, sum(commit) if commit else None
