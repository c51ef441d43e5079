# SPDX-License-Identifier: Apache-2.0
"""Offset algebra: half-open ranges, sets of ranges, and coverage (a range set per source partition).

All values are immutable and normalised (sorted, disjoint, not touching), so equal values cover the same offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, order=True)
class SourcePartition:
    """One partition of a source topic. The topic id identifies a topic recreated under the same name."""

    topic: str
    partition: int
    topic_id: str = ""

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


@dataclass(frozen=True, slots=True, order=True)
class OffsetRange:
    """Offsets ``start <= o < end``.

    :raises ValueError: when ``start`` is negative or ``end < start``
    """

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"not an offset range: [{self.start}, {self.end})")

    def __len__(self) -> int:
        return self.end - self.start

    def __bool__(self) -> bool:
        return self.end > self.start

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"

    def overlaps(self, other: OffsetRange) -> bool:
        return self.start < other.end and other.start < self.end


def _end(r: OffsetRange) -> int:
    return r.end


def _start(r: OffsetRange) -> int:
    return r.start


def _normal(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    out: list[OffsetRange] = []
    for r in sorted((r for r in ranges if r.end > r.start), key=_start):
        if out and r.start <= out[-1].end:
            out[-1] = OffsetRange(out[-1].start, max(out[-1].end, r.end))
        else:
            out.append(r)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class RangeSet:
    """A set of offsets as sorted, disjoint, non-touching ranges."""

    ranges: tuple[OffsetRange, ...] = ()

    @classmethod
    def of(cls, *ranges: OffsetRange | tuple[int, int]) -> RangeSet:
        if len(ranges) == 1 and isinstance(only := ranges[0], OffsetRange):
            return cls((only,)) if only else NOTHING
        return cls(_normal(r if isinstance(r, OffsetRange) else OffsetRange(*r) for r in ranges))

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self.ranges)

    def __bool__(self) -> bool:
        return bool(self.ranges)

    def __len__(self) -> int:
        return sum(len(r) for r in self.ranges)

    def __str__(self) -> str:
        return " ".join(str(r) for r in self.ranges) or "nothing"

    def __or__(self, other: RangeSet) -> RangeSet:
        if not other.ranges:
            return self
        return RangeSet(_normal((*self.ranges, *other.ranges)))

    def __and__(self, other: RangeSet) -> RangeSet:
        return self - (self - other)

    def __sub__(self, other: RangeSet) -> RangeSet:
        if not other.ranges or not self.ranges:
            return self
        out: list[OffsetRange] = []
        cuts, index = other.ranges, 0
        for r in self.ranges:
            at = r.start
            while index < len(cuts) and cuts[index].start < r.end:
                if cuts[index].start > at:
                    out.append(OffsetRange(at, cuts[index].start))
                at = max(at, cuts[index].end)
                if at > r.end:
                    break
                index += 1
            if at < r.end:
                out.append(OffsetRange(at, r.end))
        return RangeSet(tuple(out))

    def covers(self, r: OffsetRange) -> bool:
        return not r or any(have.start <= r.start and r.end <= have.end for have in self.ranges)

    def overlaps(self, r: OffsetRange) -> bool:
        index = bisect_right(self.ranges, r.start, key=_end)
        return bool(r) and index < len(self.ranges) and self.ranges[index].start < r.end

    def reach(self, start: int) -> int:
        """Return the end of the interval that holds ``start``, or ``start``: how far one gets without a hole."""
        for r in self.ranges:
            if r.start <= start <= r.end:
                return r.end
        return start


NOTHING = RangeSet()


@dataclass(frozen=True, slots=True)
class Coverage:
    """A range set per source partition. Partitions without a range are not kept."""

    parts: Mapping[SourcePartition, RangeSet] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not all(self.parts.values()):
            object.__setattr__(self, "parts", {p: s for p, s in self.parts.items() if s})

    @classmethod
    def of(cls, ranges: Iterable[tuple[SourcePartition, OffsetRange]]) -> Coverage:
        lists: dict[SourcePartition, list[OffsetRange]] = {}
        for p, r in ranges:
            lists.setdefault(p, []).append(r)
        return cls({p: RangeSet.of(*rs) for p, rs in lists.items()})

    @classmethod
    def union(cls, coverages: Iterable[Coverage]) -> Coverage:
        return cls.of(item for coverage in coverages for item in coverage.items())

    def __getitem__(self, p: SourcePartition) -> RangeSet:
        return self.parts.get(p, NOTHING)

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Coverage) and dict(self.parts) == dict(other.parts)

    def __hash__(self) -> int:
        return hash(frozenset(self.parts.items()))

    def __len__(self) -> int:
        return sum(len(s) for s in self.parts.values())

    def items(self) -> list[tuple[SourcePartition, OffsetRange]]:
        """Return all ranges, ordered by partition and offset."""
        return [(p, r) for p in sorted(self.parts) for r in self.parts[p]]

    def __or__(self, other: Coverage) -> Coverage:
        return Coverage({**self.parts, **{p: self[p] | s for p, s in other.parts.items()}})

    def __sub__(self, other: Coverage) -> Coverage:
        return Coverage({p: s - other[p] for p, s in self.parts.items()})

    def __and__(self, other: Coverage) -> Coverage:
        return Coverage({p: s & other[p] for p, s in self.parts.items()})

    def to_dict(self) -> dict[str, list[list[int]]]:
        """Return readable JSON; processes exchange :mod:`~airflow_provider_lakecommit.control.coverage`.

        Topics recreated under one name have the topic id in their keys: ``orders[0]@id``.
        """
        names = Counter(map(str, self.parts))
        keys = {p: str(p) if names[str(p)] == 1 else f"{p}@{p.topic_id}" for p in sorted(self.parts)}
        return {key: [[r.start, r.end] for r in self.parts[p]] for p, key in keys.items()}

    def overlaps(self, other: Coverage) -> bool:
        return any(self[p].overlaps(r) for p, s in other.parts.items() for r in s)

    def __str__(self) -> str:
        return ", ".join(f"{p} {self.parts[p]}" for p in sorted(self.parts)) or "nothing"
