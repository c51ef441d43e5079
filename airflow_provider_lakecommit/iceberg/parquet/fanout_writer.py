# SPDX-License-Identifier: Apache-2.0
"""Write rows of a table to Parquet data files, fanned out by the table's partition spec.

Contract: a :class:`FanoutWriter` needs no catalog: schema, spec, sort order, location and properties are in the plan.
The table's ``write.*`` properties define the layout (:mod:`~airflow_provider_lakecommit.iceberg.parquet.parquet`), and
files have the statistics of other writers (:mod:`~airflow_provider_lakecommit.iceberg.parquet.statistics`). Without a
sort order, rows keep their order within a partition. With one, each file is one sorted run, and only then has the
order's id.

Memory is bounded over all partitions together, by bytes, however many partitions there are. Rows wait until they fill a
good row group. Blocks of few partitions are distributed at once, without a copy if a block is of one partition; blocks
of many partitions wait whole in a *pile*, because thousands of small pieces would cost more than the rows. If too much
is waiting, the biggest partitions are written and the rest becomes the new pile. The maximum in memory is the waiting
rows, one block, and one row group. Open files are limited by number and by the bytes that their streams may buffer: the
least recently written one is closed, and its partition continues in another file. A file is closed when it reaches the
target size.

Failure story: file names hold the attempt's random UUID and its owner, and files are created exclusively, so no attempt
touches another's files. :meth:`abort` deletes this writer's files; it is called for an attempt that will not be
reported.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.typedef import Record

from airflow_provider_lakecommit.core import TableTarget, file_mark, file_name
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.parquet.layout import Layout
from airflow_provider_lakecommit.iceberg.parquet.null_parents import relabelled
from airflow_provider_lakecommit.iceberg.parquet.parquet import OpenFile
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers
from airflow_provider_lakecommit.iceberg.parquet.partitions import Key
from airflow_provider_lakecommit.redaction import redacted

log = logging.getLogger(__name__)

MIB = 1 << 20
BUFFER_BYTES = 64 * MIB
RUN_BYTES = 8 * MIB
"""Bytes of partitions that are copied out of the pile together."""
FEW_ROWS = 1024
"""Rows per partition of a block below which it waits in the pile."""
OPEN_FILES = 256
OPEN_BYTES = 64 * MIB
PART_BYTES = 10 * MIB
"""What the stream of an object store may hold back before it sends a part."""


@dataclass(slots=True)
class _Waiting:
    """Rows that wait."""

    pieces: list[pa.Table] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0

    def add(self, piece: pa.Table) -> None:
        self.pieces.append(piece)
        self.rows += piece.num_rows
        self.bytes += piece.nbytes


class FanoutWriter:
    """Write the rows of one slice to one table.

    :param owner: the landing and the stream of the files, for their names
    :param numbers: of the files of its attempt, which several writers may share
    :raises TableError: see :class:`~airflow_provider_lakecommit.iceberg.parquet.layout.Layout`
    """

    def __init__(
        self,
        target: TableTarget,
        io: FileIO,
        attempt: UUID,
        *,
        owner: tuple[str, str] | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        open_files: int = OPEN_FILES,
        open_bytes: int = OPEN_BYTES,
        providers: Collection[str] = (),
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._layout = layout = Layout(target, providers)
        self._io = io
        self._attempt, self._mark = attempt, "" if owner is None else file_mark(target.uuid, *owner)
        self._names = [f.name for f in layout.schema.fields]
        self._group_bytes = max(1, min(layout.format.group_bytes, buffer_bytes))
        self._buffer_bytes = buffer_bytes
        self._open_files, self._open_bytes = open_files, open_bytes
        self._waiting: dict[Key, _Waiting] = {}
        self._pile = _Waiting()
        self._buffered = 0
        self._open: dict[Key, OpenFile] = {}
        self._done: list[DataFile] = []
        self._made: list[str] = []
        self._numbers = count() if numbers is None else numbers
        self._closing = False

    def write(self, table: pa.Table) -> None:
        """Take rows in the schema of the table."""
        if table.column_names != self._names:
            raise TableError(
                "LC3333", f"{self._layout.table} has the columns {self._names}, the rows {table.column_names}"
            )
        if not table.num_rows:
            return
        block = relabelled(table, self._layout.arrow)
        if self._pile.rows or not self._put(block):
            self._pile.add(block)
            self._buffered += block.nbytes
        if self._buffered > self._buffer_bytes:
            self._relieve(self._buffer_bytes // 2)

    def close(self) -> list[DataFile]:
        """Write all that waits and finish all files."""
        self._closing = True
        self._relieve(0)
        for key in list(self._open):
            self._finish(key)
        pa.default_memory_pool().release_unused()
        return self._done

    def abort(self) -> None:
        """Delete every file of this writer. What cannot be deleted is logged: no table holds it."""
        for opened in self._open.values():
            with suppress(Exception):
                opened.give_up()
        self._open.clear()
        self._waiting.clear()
        self._pile = _Waiting()
        for path in self._made:
            try:
                self._io.delete(path)
            except FileNotFoundError:
                continue
            except Exception as e:
                why = redacted(str(e), self._io.properties)
                log.warning("Could not delete file %s of an abandoned attempt (%s); no table refers to it", path, why)

    def _put(self, block: pa.Table) -> bool:
        """Deal a block out to its partitions, unless its pieces would be too small."""
        if not self._layout.partitions:
            pieces: Iterable[tuple[Key, pa.Table]] = [((), block)]
        else:
            dealt = self._layout.partitions.deal(block)
            if len(dealt) > 1 and block.num_rows < FEW_ROWS * len(dealt):
                return False
            # One by one: a small piece of a block that was copied as a whole would keep the memory of all of it.
            pieces = ((key, rows) for key, numbers in dealt for rows in _taken(block, [numbers]))
        for key, piece in pieces:
            waiting = self._waiting.setdefault(key, _Waiting())
            waiting.add(piece)
            self._buffered += piece.nbytes
            is_group = waiting.rows >= self._layout.format.group_rows or waiting.bytes >= self._group_bytes
            if is_group and not self._layout.sorting:
                self._flush(key)
        return True

    def _flush(self, key: Key) -> None:
        waiting = self._waiting.pop(key)
        self._buffered -= waiting.bytes
        self._save(key, waiting.pieces)

    def _relieve(self, keep: int) -> None:
        """Write the biggest partitions until no more than *keep* bytes are left."""
        if self._pile.rows:
            self._relieve_pile(keep)
            return
        for key in sorted(self._waiting, key=lambda k: self._waiting[k].bytes, reverse=True):
            if self._buffered <= keep:
                return
            self._flush(key)

    def _relieve_pile(self, keep: int) -> None:
        # Pieces are older than the pile: blocks are dealt out only while there is none.
        pieces = [p for w in (*self._waiting.values(), self._pile) for p in w.pieces]
        self._waiting.clear()
        self._pile = _Waiting()
        table = _combined(pieces)
        dealt = self._layout.partitions.deal(table)
        row_bytes = max(1.0, table.nbytes / table.num_rows)
        sizes = np.array([len(numbers) for _, numbers in dealt])
        by_size = np.argsort(-sizes, kind="stable")
        left = table.num_rows - np.cumsum(sizes[by_size])
        many = int(np.searchsorted(-left, -keep / row_bytes)) + 1
        for run in _runs((dealt[i] for i in sorted(by_size[:many].tolist())), RUN_BYTES / row_bytes):
            for (key, _), rows in zip(run, _taken(table, [numbers for _, numbers in run]), strict=True):
                self._save(key, [rows])
        if rest := sorted(by_size[many:].tolist()):
            self._pile.add(table.take(np.concatenate([dealt[i][1] for i in rest])))
        self._buffered = self._pile.bytes

    def _save(self, key: Key, pieces: list[pa.Table]) -> None:
        """Rows of one partition to its file, in row groups. Sorted rows are a run, and get files of their own."""
        sorting = self._layout.sorting
        rows = _combined(pieces) if sorting else pa.concat_tables(pieces)
        order = sorting.order(rows) if sorting else None
        step = max(1, min(self._layout.format.group_rows, rows.num_rows * self._group_bytes // max(1, rows.nbytes)))
        for at in range(0, rows.num_rows, step):
            self._add(key, rows.slice(at, step) if order is None else rows.take(order[at : at + step]))
        if sorting or self._closing:
            self._finish(key)

    def _add(self, key: Key, group: pa.Table) -> None:
        opened = self._open.pop(key, None)
        if opened is None:
            opened = self._open[key] = self._create(key, group)
        else:
            self._open[key] = opened
            opened.write(group)
        if opened.written >= self._layout.format.file_bytes:
            self._finish(key)
        unsent = sum(min(o.written, PART_BYTES) for o in self._open.values())
        while len(self._open) > self._open_files or (self._open and unsent > self._open_bytes):
            oldest = next(iter(self._open))
            unsent -= min(self._open[oldest].written, PART_BYTES)
            self._finish(oldest)

    def _create(self, key: Key, group: pa.Table) -> OpenFile:
        place = self._layout.partitions.partition_of(key)
        name = file_name(self._attempt, self._mark, next(self._numbers))
        path = self._layout.locations.new_data_location(name, place)
        self._made.append(path)
        output, partition = self._io.new_output(path), place.partition if place else Record()
        return OpenFile(output, self._layout.format, self._layout.metrics, group, partition)

    def _finish(self, key: Key) -> None:
        opened = self._open.pop(key, None)
        if opened is not None:
            self._done.append(opened.close(self._layout.spec.spec_id, self._layout.sorting.order_id))


def _taken(table: pa.Table, parts: Sequence[Numbers]) -> Iterator[pa.Table]:
    """Yield the rows of some partitions, one table each; copied together, or not at all if one is the whole table."""
    whole = len(parts) == 1 and len(parts[0]) == table.num_rows
    together, at = table if whole else table.take(np.concatenate(parts)), 0
    for part in parts:
        yield together.slice(at, len(part))
        at += len(part)


def _runs(dealt: Iterable[tuple[Key, Numbers]], most: float) -> Iterator[list[tuple[Key, Numbers]]]:
    """Yield partitions in groups of at most so many rows, or one alone."""
    run: list[tuple[Key, Numbers]] = []
    rows = 0
    for part in dealt:
        if run and rows + len(part[1]) > most:
            yield run
            run, rows = [], 0
        run.append(part)
        rows += len(part[1])
    if run:
        yield run


def _combined(pieces: list[pa.Table]) -> pa.Table:
    """Return one table whose columns have one chunk. Pieces are released column by column, so that at most one column
    is in memory twice if nothing else holds the pieces.
    """
    schema = pieces[0].schema
    columns = [[c for p in pieces for c in p.column(i).chunks] for i in range(len(schema))]
    pieces.clear()
    whole = []
    while columns:
        chunks = columns.pop(0)
        whole.append(chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks))
        del chunks
    return pa.Table.from_arrays(whole, schema=schema)
