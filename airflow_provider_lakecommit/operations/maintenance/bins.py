# SPDX-License-Identifier: Apache-2.0
"""Choose the data files of a table to rewrite together.

Contract: pure. A bin has files of one partition and one partition spec, in the order of arrival, of at most the target
size together. It is worth rewriting if it has enough small files, or a file with many deleted rows. Bins with the
oldest files come first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.manifest import DataFile, ManifestEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class BinRules:
    """When files are rewritten. ``target`` is the size of a file in bytes, ``least`` the number of small files that
    justifies a bin, ``dead_share`` the share of deleted rows that does. ``tiered``: a file is only rewritten with
    others that add up to half its size, so that frequent runs rewrite each row a few times in all.
    """

    target: int
    least: int = 5
    dead_share: float = 0.05
    tiered: bool = False

    @property
    def small(self) -> int:
        """Return the size in bytes below which files are small."""
        return self.target * 3 // 4


@dataclass(frozen=True, slots=True)
class Source:
    """A data file, and the most rows that delete files may name in it."""

    entry: ManifestEntry
    dead: int = 0

    @property
    def file(self) -> DataFile:
        return self.entry.data_file

    @property
    def path(self) -> str:
        return self.file.file_path

    @property
    def size(self) -> int:
        return self.file.file_size_in_bytes

    @property
    def age(self) -> int:
        """Return the sequence number: older files have lower ones."""
        return self.entry.sequence_number or 0


@dataclass(frozen=True, slots=True)
class Bin:
    """Files that become one file."""

    sources: tuple[Source, ...]

    @property
    def size(self) -> int:
        return sum(s.size for s in self.sources)

    @property
    def age(self) -> int:
        return min(s.age for s in self.sources)


def bins_of(sources: Iterable[Source], rules: BinRules) -> list[Bin]:
    """Return the bins that are worth rewriting, oldest first."""
    by_partition: defaultdict[Any, list[Source]] = defaultdict(list)
    for source in sources:
        if source.size < rules.small or _many_dead(source, rules):
            by_partition[source.file.spec_id, source.file.partition].append(source)
    runs = (run for some in by_partition.values() for run in (_tiers(some) if rules.tiered else [some]))
    bins = (one for run in runs for one in _filled(run, rules.target))
    worth = (b for b in bins if len(b.sources) >= rules.least or any(_many_dead(s, rules) for s in b.sources))
    return sorted(worth, key=lambda b: b.age)


def within(bins: Iterable[Bin], most_bytes: int | None) -> list[Bin]:
    """Return the first bins that have so many bytes together, at least one."""
    out: list[Bin] = []
    size = 0
    for one in bins:
        size += one.size
        if out and most_bytes is not None and size > most_bytes:
            break
        out.append(one)
    return out


def _many_dead(source: Source, rules: BinRules) -> bool:
    return source.dead > 0 and source.dead >= rules.dead_share * source.file.record_count


def _tiers(sources: Iterable[Source]) -> Iterator[list[Source]]:
    """Yield runs of files, small ones first, in which no file is more than twice as large as all before it together."""
    run: list[Source] = []
    size = 0
    for source in sorted(sources, key=lambda s: (s.size, s.age)):
        if run and source.size > 2 * size:
            yield run
            run, size = [], 0
        run.append(source)
        size += source.size
    if run:
        yield run


def _filled(sources: Sequence[Source], target: int) -> Iterator[Bin]:
    run: list[Source] = []
    size = 0
    for source in sorted(sources, key=lambda s: (s.age, s.path)):
        if run and size + source.size > target:
            yield Bin(tuple(run))
            run, size = [], 0
        run.append(source)
        size += source.size
    if run:
        yield Bin(tuple(run))
