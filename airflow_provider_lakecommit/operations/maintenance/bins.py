# SPDX-License-Identifier: Apache-2.0
"""Choose the data files of a table to rewrite together, and write each choice to one data file.

Contract: the choice is pure. A bin has files of one partition and one partition spec, in the order of arrival, of at
most the target size together. It is worth rewriting if it has enough small files, or a file with many deleted rows.
Bins with the oldest files come first.

In the file that a bin is written to, the rows keep their order, source by source, without deleted rows; in a table with
a sort order they are sorted. So each row's position in the new file follows from its position in its source, and rows
that are deleted while the bin is written are deleted by position in the new file (:meth:`WrittenBin.moved`) instead of
being written again: a compaction and a landing, or another engine's deletes, never starve each other.

Memory: a row group and a block of a source; in a sorted table the whole bin, which is small then.

Failure story: an error removes the unfinished file. A killed process leaves it to a sweep, which finds it by the mark
in its name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg import GroupedFile, Layout, Numbers, live_blocks, trouble_of


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


Bin = tuple[Source, ...]
"""Files that become one file."""


def bins_of(
    sources: Iterable[Source], target: int, *, least: int = 5, dead_share: float = 0.05, tiered: bool = False
) -> list[Bin]:
    """Return the bins that are worth rewriting, oldest first.

    :param target: size of a file in bytes; files below three quarters of it are small
    :param least: number of small files that justifies a bin
    :param dead_share: share of deleted rows that does
    :param tiered: rewrite a file only with others that add up to half its size, so that frequent runs rewrite each row
        a few times in all
    """

    def many_dead(source: Source) -> bool:
        return source.dead > 0 and source.dead >= dead_share * source.file.record_count

    by_partition: defaultdict[Any, list[Source]] = defaultdict(list)
    for source in sources:
        if source.size < target * 3 // 4 or many_dead(source):
            by_partition[source.file.spec_id, source.file.partition].append(source)
    runs = (run for some in by_partition.values() for run in (_tiers(some) if tiered else [tuple(some)]))
    bins = (one for run in runs for one in _filled(run, target))
    worth = (b for b in bins if len(b) >= least or any(map(many_dead, b)))
    return sorted(worth, key=lambda b: min(s.age for s in b))


def size_of(one: Bin) -> int:
    return sum(s.size for s in one)


def within(bins: Iterable[Bin], most_bytes: int | None) -> list[Bin]:
    """Return the first bins that have so many bytes together, at least one."""
    out: list[Bin] = []
    size = 0
    for one in bins:
        size += size_of(one)
        if out and most_bytes is not None and size > most_bytes:
            break
        out.append(one)
    return out


def _tiers(sources: Iterable[Source]) -> Iterator[Bin]:
    """Yield runs of files, small ones first, in which no file is more than twice as large as all before it together."""
    by_size = sorted(sources, key=lambda s: (s.size, s.age))
    return _runs(by_size, lambda size, source: source.size > 2 * size)


def _filled(sources: Iterable[Source], target: int) -> Iterator[Bin]:
    by_age = sorted(sources, key=lambda s: (s.age, s.path))
    return _runs(by_age, lambda size, source: size + source.size > target)


def _runs(sources: Iterable[Source], begins: Callable[[int, Source], bool]) -> Iterator[Bin]:
    """Yield runs of files. A file ``begins`` the next one by the size of the run before it."""
    run: list[Source] = []
    size = 0
    for source in sources:
        if run and begins(size, source):
            yield tuple(run)
            run, size = [], 0
        run.append(source)
        size += source.size
    if run:
        yield tuple(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenBin:
    """A bin whose file is written; ``None``: no row was left. ``dead`` are the omitted positions, by source;
    ``positions`` are those of all rows in the file, if it is sorted.
    """

    bin: Bin
    dead: Mapping[str, Numbers]
    file: DataFile | None
    positions: Numbers | None = None

    def moved(self, path: str, positions: Numbers) -> Numbers:
        """Return the positions in the new file of live rows of a source."""
        begin = 0
        for source in self.bin:
            dead = self.dead[source.path]
            if source.path == path:
                moved = begin + positions - np.searchsorted(dead, positions)
                return moved if self.positions is None else self.positions[moved]
            begin += source.file.record_count - len(dead)
        raise KeyError(path)


def write_bin(table: Table, layout: Layout, one: Bin, dead: Mapping[str, Numbers], path: str) -> WrittenBin:
    """Write a bin to a new file.

    :param dead: positions of deleted rows by source, sorted, each once
    """
    partition = one[0].file.partition
    writing = GroupedFile(table.io.new_output(path), layout.format, layout.metrics, layout.arrow, partition)
    positions: Numbers | None = None
    try:
        blocks: Iterator[pa.Table] = (
            b for s in one for b in live_blocks(table, s.file, dead[s.path], layout.file_schema, layout.arrow)
        )
        if layout.sorting:
            blocks, positions = _sorted(layout, list(blocks))
        for block in blocks:
            writing.add(block)
        file = writing.close(one[0].file.spec_id, layout.sorting.order_id)
    except BaseException as e:
        writing.give_up()
        with suppress(Exception):
            table.io.delete(path)
        if isinstance(e, OSError):
            raise StorageError(
                "LC7713", f"file {path} cannot be written ({trouble_of(table.io, e)}): check the storage"
            ) from None
        raise
    written = 0 if file is None else file.record_count
    expected = sum(s.file.record_count - len(dead[s.path]) for s in one)
    if written != expected:
        raise TableError(
            "LC7714",
            f"{'.'.join(table.name())}: the {len(one)} files from {one[0].path} on have {written} live "
            f"rows, their manifests say {expected}. Nothing was committed for them; run `lakecommit verify`",
        )
    return WrittenBin(bin=one, dead=dead, file=file, positions=positions)


def _sorted(layout: Layout, blocks: list[pa.Table]) -> tuple[Iterator[pa.Table], Numbers]:
    """Return the rows in the order of the table, and the new position of each."""
    rows = pa.concat_tables([b.cast(layout.arrow) for b in blocks]).combine_chunks()
    order = layout.sorting.order(rows)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    step = layout.format.group_rows
    return (rows.take(order[at : at + step]) for at in range(0, len(order), step)), positions
