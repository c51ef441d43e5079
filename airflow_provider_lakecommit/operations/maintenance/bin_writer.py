# SPDX-License-Identifier: Apache-2.0
"""Write one bin to one data file.

Contract: the rows keep their order, source by source, without deleted rows; in a table with a sort order they are
sorted. So each row's position in the new file follows from its position in its source, and rows that are deleted while
the bin is written are deleted by position in the new file (:meth:`WrittenBin.moved`) instead of being written again: a
compaction and a landing, or another engine's deletes, never starve each other.

Memory: a row group and a block of a source; in a sorted table the whole bin, which is small then.

Failure story: an error removes the unfinished file. A killed process leaves it to a sweep, which finds it by the mark
in its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg import GroupedFile, Layout, Numbers, live_blocks, trouble_of
from airflow_provider_lakecommit.operations.maintenance.bins import Bin, Source


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
        for source in self.bin.sources:
            dead = self.dead[source.path]
            if source.path == path:
                moved = begin + positions - np.searchsorted(dead, positions)
                return moved if self.positions is None else self.positions[moved]
            begin += source.file.record_count - len(dead)
        raise KeyError(path)


def write_bin(table: Table, layout: Layout, one: Bin, dead: Mapping[str, Numbers], path: str) -> WrittenBin:
    """Write a bin to a new file.

    :param dead: positions of deleted rows by source, sorted, each once
    :raises TableError: a source cannot be read in the columns of the table
    :raises StorageError: the storage cannot be read or written
    """
    partition = one.sources[0].file.partition
    writing = GroupedFile(table.io.new_output(path), layout.format, layout.metrics, layout.arrow, partition)
    positions: Numbers | None = None
    try:
        blocks: Iterator[pa.Table] = (b for s in one.sources for b in _blocks(table, layout, s, dead[s.path]))
        if layout.sorting:
            blocks, positions = _sorted(layout, list(blocks))
        for block in blocks:
            writing.add(block)
        file = writing.close(one.sources[0].file.spec_id, layout.sorting.order_id)
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
    expected = sum(s.file.record_count - len(dead[s.path]) for s in one.sources)
    if written != expected:
        raise TableError(
            "LC7714",
            f"{'.'.join(table.name())}: the {len(one.sources)} files from {one.sources[0].path} on have {written} live "
            f"rows, their manifests say {expected}. Nothing was committed for them; run `lakecommit verify`",
        )
    return WrittenBin(bin=one, dead=dead, file=file, positions=positions)


def _blocks(table: Table, layout: Layout, source: Source, dead: Numbers) -> Iterator[pa.Table]:
    return live_blocks(table, source.path, dead, layout.file_schema, layout.arrow)


def _sorted(layout: Layout, blocks: list[pa.Table]) -> tuple[Iterator[pa.Table], Numbers]:
    """Return the rows in the order of the table, and the new position of each."""
    rows = pa.concat_tables([b.cast(layout.arrow) for b in blocks]).combine_chunks()
    order = layout.sorting.order(rows)
    positions = np.empty(len(order), np.int64)
    positions[order] = np.arange(len(order))
    step = layout.format.group_rows
    return (rows.take(order[at : at + step]) for at in range(0, len(order), step)), positions
