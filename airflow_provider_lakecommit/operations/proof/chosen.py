# SPDX-License-Identifier: Apache-2.0
"""Choose the landed ranges to compare with the source, and give the reasons for the others.

Contract: pure. A range is compared if the source still has its records, the landing would apply the rules by which it
was landed, and rows name their record. Every other covered range is counted under its first reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from airflow_provider_lakecommit.core import (
    Coverage,
    LedgerSection,
    OffsetRange,
    RangeSet,
    Share,
    SourcePartition,
    Truncation,
    Watermark,
    past_shares,
    shares_of,
    unmarked,
)
from airflow_provider_lakecommit.exceptions import SpecError

PIECE = 1_000
"""Least offsets of a sampled range; of two ranges, the first and the last, each may have fewer."""
REASONS = {
    "gone": "the source no longer has them (retention, truncation or a recreated topic)",
    "other_rules": "they were landed by other rules than the current ones",
    "unknown_rules": "no rules are recorded for them: a user skipped or stated them, or the record is too old",
    "replayed": "their dead letters were replayed",
    "unmarked": "their rows do not name their record",
    "earlier": "their rows are of a reading before a reset",
}
"""Reasons why ranges are not compared, in the order in which they apply."""
_SHARE = re.compile(r"(\d+(?:\.\d+)?)%")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What to compare: a ``share`` of each partition, or ``ranges`` by topic and partition; by default everything."""

    share: float = 1.0
    ranges: Mapping[tuple[str, int], RangeSet] = field(default_factory=dict)

    @property
    def is_all(self) -> bool:
        return self.share >= 1 and not self.ranges

    def of(self, covered: Coverage) -> Coverage:
        if self.ranges:
            stated = {p: self.ranges.get((p.topic, p.partition), RangeSet()) for p in covered.parts}
            covered = covered & Coverage(stated)
        return covered if self.share >= 1 else Coverage({p: spread(r, self.share) for p, r in covered.parts.items()})

    def missing(self, covered: Coverage) -> Iterator[str]:
        for (topic, partition), stated in self.ranges.items():
            landed = (r for p, r in covered.parts.items() if (p.topic, p.partition) == (topic, partition))
            if rest := stated - reduce(or_, landed, RangeSet()):
                yield f"{topic}[{partition}] {' '.join(map(str, rest))}"


def sample_of(
    texts: Sequence[str], parse: Callable[[Sequence[str], str], Mapping[tuple[str, int], RangeSet]]
) -> Sample:
    """Return the sample that options state: one share, or ranges; everything without options.

    :param parse: reads ranges, and names the option in its error
    :raises SpecError: a text is neither
    """
    shares = [share for text in texts if (share := share_of(text)) is not None]
    if shares and len(texts) > 1:
        raise SpecError("LC8607", "--sample takes one share such as 1%, or ranges such as orders:0=1500-2000, not both")
    return Sample(share=shares[0]) if shares else Sample(ranges=parse(texts, "--sample"))


def share_of(text: str) -> float | None:
    """Return the share that a text as ``1%`` states; ``None`` for any other text."""
    found = _SHARE.fullmatch(text.strip())
    share = float(found[1]) / 100 if found else 0.0
    return share if 0 < share <= 1 else None


def spread(ranges: RangeSet, share: float) -> RangeSet:
    """Return pieces that are spread evenly over the offsets of some ranges, the first and last of them included."""
    total = len(ranges)
    target = max(1, round(total * share))
    pieces = min(target, max(2, -(-target // PIECE)))
    sizes = [target // pieces + (n < target % pieces) for n in range(pieces)]
    starts = [n * (total - size) // max(1, pieces - 1) for n, size in enumerate(sizes)]
    found, at = [], 0
    for r in ranges:
        for start, size in zip(starts, sizes, strict=True):
            low, high = max(start, at), min(start + size, at + len(r))
            if low < high:
                found.append(OffsetRange(r.start + low - at, r.start + high - at))
        at += len(r)
    return RangeSet.of(*found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRanges:
    """The landed ranges of one table: those to compare by the generation of their reading, and the others by the name
    of the reason. ``generations`` are all that rows of the table may have; with ``unmarked``, landed rows may also have
    none.
    """

    compared: Mapping[int, Coverage]
    others: Mapping[str, Coverage]
    generations: frozenset[int]
    unmarked: bool = False

    @property
    def covered(self) -> Coverage:
        return Coverage.union((*self.compared.values(), *self.others.values()))


def source_has(marks: Mapping[SourcePartition, Watermark], truncated: Iterable[Truncation]) -> Coverage:
    """Return the offsets that the source has, and had when they were landed."""
    ends = {p: m.stable for p, m in marks.items()}
    for t in truncated:
        ends[t.partition] = min(ends.get(t.partition, 0), t.end or 0)
    return Coverage({p: RangeSet.of((min(m.start, ends[p]), ends[p])) for p, m in marks.items()})


def landed_ranges(
    ledgers: Mapping[str, Sequence[LedgerSection]],
    landing: str,
    columns: Mapping[str, Sequence[int]],
    has: Coverage,
    rules: str,
) -> dict[str, TableRanges]:
    """Return the ranges of a landing's tables.

    :param ledgers: all entries in the ledger of each table: topics of two clusters may have one name
    :param columns: by table, those that name the record of a row now; rows from before they were dropped and added
        again have nulls
    :param has: what the source has
    :param rules: the current ones
    """
    own = {name: [s for s in every if s.landing == landing] for name, every in ledgers.items()}
    # Of any table: no range is read by different rules for two of them, and the dead-letter table replays nothing.
    by_rules = Coverage.union(s.evaluated.get(rules, Coverage()) for some in own.values() for s in some)
    replayed = Coverage.union(s.replayed for some in own.values() for s in some)
    found = {}
    for name, every in ledgers.items():
        covered = Coverage.union(s.covered for s in own[name])
        marked = {s.key: _marked(s, columns[name]) for s in every}
        shares = [share for s in own[name] for share in marked[s.key]]
        whys = {
            "gone": covered - has,
            "other_rules": Coverage.union(c for s in own[name] for known, c in s.evaluated.items() if known != rules),
            "unknown_rules": covered - by_rules,
            "replayed": replayed & covered,
            "unmarked": covered - Coverage.union(share.part for share in shares),
        }
        others, left = {}, covered
        for why, ranges in whys.items():
            others[why], left = ranges & left, left - ranges
        compared: dict[int, Coverage] = {}
        for share in shares:
            if part := share.part & left:
                compared[share.entry.generation] = compared.get(share.entry.generation, Coverage()) | part
        past = (share.part for s in own[name] for share in past_shares(s.provenance, s.covered))
        others["earlier"] = Coverage.union(past)
        found[name] = TableRanges(
            compared=compared,
            others={n: c for n, c in others.items() if c},
            generations=frozenset(e.generation for s in every for e in s.provenance),
            unmarked=any(unmarked(marked[s.key], s.covered) for s in every),
        )
    return found


def _marked(section: LedgerSection, columns: Sequence[int]) -> list[Share]:
    """Return the readings whose rows name their record in these columns, or that made none."""
    shares = shares_of(section.provenance, section.covered)
    return [s for s in shares if s.entry.marked and s.entry.columns in ((), (*columns,))]
