# SPDX-License-Identifier: Apache-2.0
"""The newest change of each key, among the slices of one publish.

Contract: the changes are read from the files of the slices: rows from data files, deletes from tombstone files. Two
changes are ordered by the order column, if any, then by their readings and offsets. All rows except those of the newest
changes are *superseded*, also if several slices, or one slice twice, change a key.

Memory: some 60 bytes per change, and its key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from airflow_provider_lakecommit.core import LedgerSection, RangeSet, Role, SourcePartition, current_readings
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.ledger.head import Head
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.iceberg.parquet.arrow_types import arrow_field
from airflow_provider_lakecommit.iceberg.parquet.deletes import DeletePositions
from airflow_provider_lakecommit.iceberg.parquet.key_set import KeySet, equal_rows, hashes, order_numbers
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, ParquetRows, live_of, one_array, opened
from airflow_provider_lakecommit.iceberg.parquet.rewrite import partition_constants, repeated
from airflow_provider_lakecommit.iceberg.schemas import mark_columns

_PARTITIONS = 1 << 32


class Order(NamedTuple):
    """The order of changes, one value per row. ``source`` numbers the pairs of topic and partition."""

    column: Numbers
    generation: Numbers
    offset: Numbers
    source: Numbers

    def take(self, rows: Numbers) -> Order:
        return Order(*(values[rows] for values in self))

    @classmethod
    def joined(cls, parts: Sequence[Order]) -> Order:
        none = np.zeros(0, np.int64)
        return cls(*(np.concatenate([none, *(part[i] for part in parts)]) for i in range(len(cls._fields))))


def readings_by(sections: Sequence[LedgerSection]) -> dict[SourcePartition, dict[int, RangeSet]]:
    """Return, by partition and generation, the offsets of which no later reading has a row."""
    found: dict[SourcePartition, dict[int, RangeSet]] = {}
    for e in current_readings(sections):
        for p, offsets in e.coverage.parts.items():
            of = found.setdefault(p, {})
            of[e.generation] = of.get(e.generation, RangeSet()) | offsets
    return found


def of_reading(order: Order, source: int, generation: int, offsets: RangeSet) -> Numbers:
    """Return which rows are of these offsets, by this reading."""
    out = np.zeros(len(order.source), bool)
    some = (order.source == source) & (order.generation == generation)
    for r in offsets.ranges:
        out |= some & (order.offset >= r.start) & (order.offset < r.end)
    return out


@dataclass(slots=True)
class Columns:
    """The columns that identify and order rows, as files have them.

    :param key: of the current schema of the table
    :param order: column that orders changes before their offsets
    :raises TableError: the table lacks one of them
    """

    schema: Schema
    key: tuple[str, ...]
    order: str | None
    sources: dict[tuple[str | None, int], int] = field(default_factory=dict)
    _fields: list[pa.Field] = field(init=False)
    _ids: list[int] = field(init=False)

    def __post_init__(self) -> None:
        marks = mark_columns(self.schema, Role.ROWS)
        names = (*self.key, *((self.order,) if self.order else ()))
        found = [f for name in names for f in self.schema.fields if f.name == name]
        if len(found) < len(names) or not marks:
            raise TableError(
                "LC3050",
                f"the table lacks columns that `upsert` needs: {', '.join(names)}, kafka_topic, kafka_partition, "
                "kafka_generation, kafka_offset. Add them, or change the spec",
            )
        found += [self.schema.find_field(i) for i in marks]
        self._ids, self._fields = [f.field_id for f in found], [_stored(f) for f in found]

    def keys(
        self, rows: ParquetRows, group: int, constants: Mapping[int, Any] = MappingProxyType({})
    ) -> list[pa.Array] | None:
        """Return the key columns of a row group; ``None`` if the file lacks one, so that no row has a key.

        :param constants: the values of columns that the file may lack, by field id
        """
        many = len(self.key)
        found = self._read(rows, group, range(many), constants)
        return None if any(rows.name(i) is None and i not in constants for i in self._ids[:many]) else found

    def no_keys(self) -> list[pa.Array]:
        """Return the key columns of no row."""
        return [pa.nulls(0, f.type) for f in self._fields[: len(self.key)]]

    def name(self, rows: ParquetRows, number: int) -> str | None:
        """Return the name of a key column in a file."""
        return rows.name(self._ids[number])

    @property
    def order_id(self) -> int | None:
        return self._ids[len(self.key)] if self.order else None

    def ids(self) -> Sequence[int]:
        """Return the ids of the key columns."""
        return self._ids[: len(self.key)]

    def orders(self, rows: ParquetRows, group: int, constants: Mapping[int, Any] = MappingProxyType({})) -> Order:
        """Return the order of the rows of a row group; ``constants`` as for :meth:`keys`."""
        which = range(len(self.key), len(self._ids))
        *column, topic, partition, generation, offset = self._read(rows, group, which, constants)
        first = order_numbers(column[0]) if column else np.zeros(len(topic), np.int64)
        return Order(
            first, order_numbers(generation), order_numbers(offset), self._sources(topic, order_numbers(partition))
        )

    def in_log_order(self, order: Order, sections: Sequence[LedgerSection]) -> Order:
        """Return an order with one generation for the records that a partition has now: their offsets order them,
        whichever stream read them, and when.
        """
        out = order.generation.copy()
        for p, of in readings_by(sections).items():
            if len(of) > 1:
                source, newest = self.sources.get((p.topic, p.partition), -1), max(of)
                for generation, offsets in of.items():
                    out[of_reading(order, source, generation, offsets)] = newest
        return order._replace(generation=out)

    def _sources(self, topics: pa.Array, partitions: Numbers) -> Numbers:
        names = topics.dictionary_encode()
        codes = pc.fill_null(names.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = pa.array(codes * _PARTITIONS + np.maximum(partitions, -1)).dictionary_encode()
        found = [divmod(pair, _PARTITIONS) for pair in pairs.dictionary.to_pylist()]
        known = [(None if c < 0 else names.dictionary[c].as_py(), p) for c, p in found]
        numbers = np.array([self.sources.setdefault(one, len(self.sources)) for one in known], np.int64)
        out: Numbers = numbers.take(pairs.indices.to_numpy())
        return out

    def _read(
        self, rows: ParquetRows, group: int, which: Iterable[int], constants: Mapping[int, Any] = MappingProxyType({})
    ) -> list[pa.Array]:
        numbers = list(which)
        names = [rows.name(self._ids[i]) for i in numbers]
        block = rows.group(group, [n for n in names if n is not None])
        made = []
        for i, name in zip(numbers, names, strict=True):
            kind = self._fields[i].type
            if name is None and self._ids[i] in constants:
                made.append(repeated(constants[self._ids[i]], kind, block.num_rows))
                continue
            array = pa.nulls(block.num_rows, kind) if name is None else one_array(block.column(name))
            array = array.storage if isinstance(array, pa.ExtensionArray) else array
            try:
                made.append(array if array.type == kind else array.cast(kind))
            except pa.ArrowException as e:
                raise TableError(
                    "LC3066",
                    f"file {rows.path} has column {name} as {array.type}, which cannot be read as {kind} ({e}): "
                    "rewrite it with another engine",
                ) from None
        return made


class LiveRows(NamedTuple):
    """A row group of a data file, and its rows without a position delete. ``keys`` are those of all rows, and ``None``
    if the file lacks a key column; the group begins at row ``at`` of file number ``file`` of the head. ``constants``
    are the values that the file's partition states.
    """

    file: int
    parquet: ParquetRows
    group: int
    at: int
    live: Numbers
    keys: list[pa.Array] | None
    constants: Mapping[int, Any]


def live_rows(table: Table, head: Head, positions: DeletePositions, columns: Columns) -> Iterator[LiveRows]:
    """Yield all row groups of a head.

    :raises StorageError: a file cannot be read
    """
    for number, (path, entry) in enumerate(head.entries.items()):
        dead, at = positions.of(table, entry.data_file, head.deletes.of(entry)), 0
        constants = partition_constants(table, entry.data_file)
        with opened(table.io, path, table.metadata.name_mapping()) as parquet:
            for group, many in enumerate(parquet.group_rows):
                live = live_of(dead, at, many)
                keys = columns.keys(parquet, group, constants)
                yield LiveRows(number, parquet, group, at, live, keys, constants)
                at += many


class Changes(NamedTuple):
    """Rows or deletes, by their keys and order, with the number of the file and the position in it."""

    keys: list[pa.Array]
    order: Order
    is_delete: Numbers
    file: Numbers
    row: Numbers

    @classmethod
    def joined(cls, parts: Sequence[Changes], columns: int) -> Changes:
        """:param columns: number of key columns"""
        none = np.zeros(0, np.int64)
        is_delete, file, row = (np.concatenate([none, *(part[i] for part in parts)]) for i in (2, 3, 4))
        return cls(
            keys=[pa.concat_arrays([p.keys[i] for p in parts]) if parts else pa.nulls(0) for i in range(columns)],
            order=Order.joined([p.order for p in parts]),
            is_delete=is_delete.astype(bool),
            file=file,
            row=row,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """One change per key: its row in one of the new ``files``, or a delete. ``old`` are the positions of superseded
    rows, by number of the file; ``deleted`` of them were superseded by a delete.
    """

    keys: KeySet
    order: Order
    is_delete: Numbers
    file: Numbers
    row: Numbers
    files: Sequence[DataFile]
    old: Mapping[int, Numbers]
    deleted: int


def newest_changes(io: FileIO, slices: Iterable[StagedSlice], columns: Columns) -> Newest:
    """Read the changes of some slices and return the newest one of each key."""
    files = [f for s in slices for f in s.files]
    paths = [
        *((f.file_path, n) for n, f in enumerate(files)),
        *((t.file_path, -1) for s in slices for t in s.tombstones),
    ]
    parts = (part for path, number in paths for part in _changes(io, path, number, columns))
    keys, order, is_delete, file, row = Changes.joined([*parts], len(columns.key))
    grouped = rank(keys, order)
    by_key, last, winner = grouped.by_key, grouped.last, grouped.winner
    lost = (by_key != winner) & ~is_delete[by_key]
    losers = by_key[lost]
    return Newest(
        keys=KeySet([k.take(pa.array(last)) for k in keys], grouped.hashed[last], grouped.seed),
        order=order.take(last),
        is_delete=is_delete[last],
        file=file[last],
        row=row[last],
        files=files,
        old={n: np.sort(row[losers[file[losers] == n]]) for n in np.unique(file[losers]).tolist()},
        deleted=int(is_delete[winner[lost]].sum()),
    )


class Grouped(NamedTuple):
    """Changes by key. ``by_key`` are their numbers, grouped by key, oldest first; ``winner`` is the newest of each
    one's key, and ``last`` are the winners.
    """

    by_key: Numbers
    winner: Numbers
    last: Numbers
    hashed: Numbers
    seed: int


def rank(keys: Sequence[pa.Array], order: Order) -> Grouped:
    """Return the changes by their keys."""
    seed, hashed, by_key, same = 0, *_by_key(keys, order, 0)
    while not _really_same(keys, by_key, same):
        seed += 1
        hashed, by_key, same = _by_key(keys, order, seed)
    last = by_key[~np.append(same, False)] if len(by_key) else by_key
    winner = last[np.cumsum(np.append(0, ~same))] if len(by_key) else by_key
    return Grouped(by_key=by_key, winner=winner, last=last, hashed=hashed, seed=seed)


def _changes(io: FileIO, path: str, number: int, columns: Columns) -> Iterator[Changes]:
    """:param number: of the file, -1 for one of tombstones"""
    with opened(io, path, None) as rows:
        at = 0
        for group, many in enumerate(rows.group_rows):
            keys = columns.keys(rows, group)
            if keys is None or any(k.null_count for k in keys):
                raise TableError("LC3051", f"file {path} has a row without a key: its range is read again")
            yield Changes(
                keys=keys,
                order=columns.orders(rows, group),
                is_delete=np.full(many, number < 0),
                file=np.full(many, number, np.int64),
                row=np.arange(at, at + many),
            )
            at += many


def _by_key(keys: Sequence[pa.Array], order: Order, seed: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return the hashes of all changes, the changes by hash and age, and whether the next one has the same hash."""
    hashed = hashes(keys, seed)
    by_key = np.lexsort((order.offset, order.generation, order.column, hashed))
    return hashed, by_key, hashed[by_key[:-1]] == hashed[by_key[1:]]


def _really_same(keys: Sequence[pa.Array], by_key: Numbers, same: Numbers) -> bool:
    """Return False if two different keys have one hash."""
    first = np.flatnonzero(same)
    these, others = (pa.array(by_key[rows]) for rows in (first, first + 1))
    return bool(equal_rows([k.take(these) for k in keys], [k.take(others) for k in keys]).all())


def _stored(field: NestedField) -> pa.Field:
    """Return a column as it is compared: a UUID as its bytes."""
    found = arrow_field(field)
    return found.with_type(found.type.storage_type) if isinstance(found.type, pa.BaseExtensionType) else found
