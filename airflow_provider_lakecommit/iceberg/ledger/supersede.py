# SPDX-License-Identifier: Apache-2.0
"""Find the rows of a table that the changes of a publish supersede, and write delete files for them.

Contract: one search per publish, on the head that the compare-and-swap asserts. Files whose bounds or buckets exclude
all keys are not read; of the others only the key columns are. **The row with the greatest order stays**, regardless of
the order of publishes: a change that is older than the table's row is itself superseded. The others are deleted by
:mod:`~airflow_provider_lakecommit.iceberg.ledger.delete_files`.

The order of two rows of one topic partition and one topic is that of their offsets. In the live stream everything that
an older reading landed is older, and so is a row of another partition: there the ledger mostly proves that no row can
be newer, and then none is checked. In a backfill a row of another partition stays, except one of a topic that was
recreated since. A row of the recreated topic is always newer than a change of its predecessor.

Failure story: after a lost swap only new files are searched.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow.compute as pc
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import IcebergType, IntegerType, LongType, PrimitiveType, UUIDType

from airflow_provider_lakecommit.core import LIVE, RangeSet, attempt_of, current_readings
from airflow_provider_lakecommit.iceberg.ledger.delete_files import (
    THREADS,
    DeleteFiles,
    Superseded,
    require_known_rows,
    require_parquet,
)
from airflow_provider_lakecommit.iceberg.ledger.head import HeadReader
from airflow_provider_lakecommit.iceberg.ledger.ledger import LedgerState
from airflow_provider_lakecommit.iceberg.ledger.newest import (
    Columns,
    Newest,
    Order,
    newest_changes,
    of_reading,
    readings_by,
)
from airflow_provider_lakecommit.iceberg.ledger.slice_checks import StagedSlice
from airflow_provider_lakecommit.iceberg.ledger.upsert_rule import UpsertRule, check_key_columns
from airflow_provider_lakecommit.iceberg.parquet.parquet_rows import Numbers, opened
from airflow_provider_lakecommit.iceberg.parquet.partitions import transformed
from airflow_provider_lakecommit.iceberg.parquet.rewrite import partition_constants

_NOTHING = np.zeros(0, np.int64)


class _Found(NamedTuple):
    """Rows of a file with keys of the publish, and these keys."""

    rows: Numbers
    keys: Numbers
    scanned: int


class Readings(NamedTuple):
    """Generations by source: of the changes' topics, and of earlier and later topics of the same names.

    ``current`` has the offsets of which earlier readings have the newest row, by source and generation.
    """

    own: dict[int, set[int]]
    former: dict[int, set[int]]
    later: dict[int, set[int]]
    current: dict[tuple[int, int], RangeSet]


class Superseding:
    """The search of one publish, over all its heads."""

    def __init__(self, name: str, branch: str, landing: str, lane: str, rule: UpsertRule) -> None:
        self._name, self._lane, self._rule = name, lane, rule
        self._heads, self._branch, self._deletes = HeadReader(name), branch, DeleteFiles(name, landing)
        self._of: tuple[object, ...] = ()
        self._found: dict[str, _Found] = {}
        self._buckets: dict[tuple[int, int], Collection[int]] = {}
        self._columns: Columns
        self._newest: Newest

    def on(self, table: Table, state: LedgerState, slices: Sequence[StagedSlice]) -> Superseded:
        """Return what slices supersede on this head.

        :raises TableError: rows of the table are not known
        :raises LedgerError: the columns of the key were replaced
        :raises StorageError: the storage cannot be read or written
        """
        check_key_columns(self._name, table.metadata, state, self._rule.key)
        self._prepare(table, slices)
        head = self._heads.read(table, self._branch)
        require_known_rows(head, table, self._name)
        chosen = [e for e in head.entries.values() if self._may_have(table, e.data_file)]
        with ThreadPoolExecutor(THREADS) as pool:
            found = list(pool.map(lambda e: self._search(table, e.data_file), chosen))
            hit = [(e, hits) for e, hits in zip(chosen, found, strict=True) if len(hits.rows)]
            of = self._deletes.positions.of
            dead = list(pool.map(lambda one: of(table, one[0].data_file, head.deletes.of(one[0])), hit))
        newest, readings = self._newest, None
        if hit and not self._is_ordered(state, slices):
            readings = self._readings(state, slices)
        old, old_keys, beaten = dict[str, Numbers](), [_NOTHING], np.zeros(len(newest.file), bool)
        for (entry, hits), positions in zip(hit, dead, strict=True):
            rows, keys, lost = self._older(table, entry.data_file, hits, positions, readings)
            beaten[lost] = True
            if len(rows):
                old[entry.data_file.file_path] = rows
                old_keys.append(keys)
        beaten_rows, by_delete = beaten & ~newest.is_delete, newest.is_delete & ~beaten
        new = dict(newest.old)
        for n in np.unique(newest.file[beaten_rows]).tolist():
            new[n] = np.sort(np.concatenate([new.get(n, _NOTHING), newest.row[beaten_rows & (newest.file == n)]]))
        deleted = newest.deleted + int(by_delete[np.concatenate(old_keys)].sum())
        return Superseded(
            rewrite=self._deletes.rewrite(table, head, old, [(newest.files[n], rows) for n, rows in new.items()]),
            superseded=sum(map(len, (*new.values(), *old.values()))) - deleted,
            deleted=deleted,
            files_read=len(chosen),
            rows_read=sum(f.scanned for f in found),
        )

    # -- what is searched for -----------------------------------------------------------------------------------------

    def _prepare(self, table: Table, slices: Sequence[StagedSlice]) -> None:
        of = (table.metadata.current_schema_id, *(s.attempt for s in slices))
        if of != self._of:
            self._columns = Columns(table.schema(), self._rule.key, self._rule.order)
            self._newest = newest_changes(table.io, slices, self._columns)
            self._of, self._found, self._buckets = of, {}, {}

    def _may_have(self, table: Table, file: DataFile) -> bool:
        if not file.record_count or not len(self._newest.file):
            return False
        require_parquet(file, self._name)
        schema = table.schema()
        for number, field_id in enumerate(self._columns.ids()):
            kind = schema.find_field(field_id).field_type
            if isinstance(kind, UUIDType) and attempt_of(file.file_path) is None:
                # Iceberg's library for Java compares UUIDs as two signed numbers.
                continue
            low, high = (bound_of(kind, (b or {}).get(field_id)) for b in (file.lower_bounds, file.upper_bounds))
            if low is not None and high is not None and not self._newest.keys.may_have(number, low, high):
                return False
        return self._in_buckets(table, file)

    def _in_buckets(self, table: Table, file: DataFile) -> bool:
        """Return False if no key of the publish belongs to the buckets of a file's partition."""
        ids = list(self._columns.ids())
        for field_id, transform, bucket in buckets_of(table, file, ids):
            number, many = ids.index(field_id), transform.num_buckets
            if (number, many) not in self._buckets:
                kind, values = table.schema().find_type(field_id), self._newest.keys.values(number)
                self._buckets[number, many] = frozenset(pc.unique(transformed(values, transform, kind)).to_pylist())
            if bucket not in self._buckets[number, many]:
                return False
        return True

    def _search(self, table: Table, file: DataFile) -> _Found:
        """Return the rows of a file that have a key of the publish, also deleted ones: that never changes."""
        if file.file_path in self._found:
            return self._found[file.file_path]
        rows, keys, at, scanned = [_NOTHING], [_NOTHING], 0, 0
        constants = partition_constants(table, file)
        with opened(table.io, file.file_path, table.metadata.name_mapping()) as parquet:
            for group, many in enumerate(parquet.group_rows):
                block = self._columns.keys(parquet, group, constants) if self._group_may_have(parquet, group) else None
                if block is not None:
                    scanned += many
                    found, key = self._newest.keys.find(block)
                    rows.append(found + at)
                    keys.append(key)
                at += many
        made = _Found(np.concatenate(rows), np.concatenate(keys), scanned)
        self._found[file.file_path] = made
        return made

    def _group_may_have(self, parquet: Any, group: int) -> bool:
        for number in range(len(self._rule.key)):
            name = self._columns.name(parquet, number)
            bounds = None if name is None else parquet.group_bounds(group, name)
            kind = type(self._newest.keys.values(number)[0].as_py())
            if bounds is None or {kind, *map(type, bounds)} not in ({int}, {str}, {bytes}):
                continue
            if not self._newest.keys.may_have(number, *bounds):
                return False
        return True

    # -- what is newer ------------------------------------------------------------------------------------------------

    def _older(
        self, table: Table, file: DataFile, hits: _Found, dead: Numbers, readings: Readings | None
    ) -> tuple[Numbers, Numbers, Numbers]:
        """Return the live rows of a file that are older than the changes of their keys, these keys, and those of the
        changes that are older than a row.
        """
        live = ~np.isin(hits.rows, dead, assume_unique=True) if len(dead) else np.ones(len(hits.rows), bool)
        rows, keys = hits.rows[live], hits.keys[live]
        if readings is None or not len(rows) or self._surely_older(file):
            return rows, keys, _NOTHING
        stays = self._stays(table, file, rows, keys, readings)
        return rows[~stays], keys[~stays], keys[stays]

    def _is_ordered(self, state: LedgerState, slices: Iterable[StagedSlice]) -> bool:
        """Return True if the ledger proves that no row of the table is newer than a change of the live stream."""
        if self._lane != LIVE or self._rule.order is not None:
            return False
        # A backfill may have read offsets that the live stream goes around, also before the stream's reading began.
        current = current_readings(state.sections)
        known = [e for s in state.sections for e in s.provenance]
        for one in slices:
            first = {p: r.ranges[0].start for p, r in one.coverage.parts.items()}
            ids = {p.topic: p.topic_id for p in first}
            recent = [e for e in known if e.generation >= (one.generation or 0)]
            parts = ((p, e.coverage[p].ranges) for e in (*recent, *current) for p in first)
            if any(ranges and ranges[-1].end > first[p] for p, ranges in parts):
                return False
            # A backfill of the recreated topic was published before what was read of its predecessor.
            if any(p.topic_id != ids.get(p.topic, p.topic_id) for e in recent for p in e.coverage.parts):
                return False
        return True

    def _readings(self, state: LedgerState, slices: Sequence[StagedSlice]) -> Readings:
        """Return the readings of the ledger's topics that have the names of the slices' topics."""
        known = [(p, one.generation or 0) for one in slices for p in one.coverage.parts]
        ids, sources = {(p.topic, p.topic_id) for p, _ in known}, self._columns.sources
        names = {topic for topic, _ in ids}
        newest = max(generation for _, generation in known)
        known += [(p, e.generation) for s in state.sections for e in s.provenance for p in e.coverage.parts]
        found = Readings({}, {}, {}, {})
        for p, generation in known:
            if p.topic in names:
                number = sources.setdefault((p.topic, p.partition), len(sources))
                other = found.later if generation > newest else found.former
                (found.own if (p.topic, p.topic_id) in ids else other).setdefault(number, set()).add(generation)
        for p, of in readings_by(state.sections).items():
            if (p.topic, p.topic_id) in ids:
                source = sources[p.topic, p.partition]
                found.current.update({(source, g): offsets for g, offsets in of.items() if g < newest})
        return found

    def _surely_older(self, file: DataFile) -> bool:
        """Return True if the bounds of a file show that the order column of all its rows is less than any change's."""
        field_id, least = self._columns.order_id, self._newest.order.column
        high = None if field_id is None else bound_of(LongType(), (file.upper_bounds or {}).get(field_id))
        return high is not None and bool(high < least.min())

    def _stays(self, table: Table, file: DataFile, rows: Numbers, keys: Numbers, readings: Readings) -> Numbers:
        """Return which rows of a file are newer than the changes of their keys."""
        by_row, constants = np.argsort(rows), partition_constants(table, file)
        ordered, parts, at = rows[by_row], [], 0
        with opened(table.io, file.file_path, table.metadata.name_mapping()) as parquet:
            for group, many in enumerate(parquet.group_rows):
                first, last = np.searchsorted(ordered, [at, at + many])
                if last > first:
                    parts.append(self._columns.orders(parquet, group, constants).take(ordered[first:last] - at))
                at += many
        out = np.zeros(len(rows), bool)
        new = self._newest.order.take(keys[by_row])
        out[by_row] = is_newer(Order.joined(parts), new, readings, live=self._lane == LIVE)
        return out


def is_newer(old: Order, new: Order, readings: Readings, *, live: bool) -> Numbers:
    """Return which rows of a table are newer than a change of the same key."""
    same = old.source == new.source
    known, former, successor = (_is_of(old, by_source) for by_source in readings[:3])
    later = old.offset > new.offset
    if live:
        # What an earlier reading has at a later offset is newer only while it is the record of that offset.
        current = old.generation >= new.generation
        for (source, generation), offsets in readings.current.items():
            current |= of_reading(old, source, generation, offsets)
        by_offset = same & known & later & current
    else:
        # A reading of an older topic of this name is older; what another partition or writer has, cannot be compared.
        marked = old.generation >= 0
        by_offset = np.where(same & marked, known & later, ~former)
    newer: Numbers = (old.column > new.column) | ((old.column == new.column) & (by_offset | successor))
    return newer


def _is_of(rows: Order, readings: Mapping[int, Collection[int]]) -> Numbers:
    out = np.zeros(len(rows.source), bool)
    for source, generations in readings.items():
        out |= (rows.source == source) & np.isin(rows.generation, list(generations))
    return out


def buckets_of(
    table: Table, file: DataFile, field_ids: Collection[int]
) -> Iterator[tuple[int, BucketTransform[Any], int | None]]:
    """Yield the buckets of some columns that a file's partition states: the column's id, the transform, the bucket."""
    for at, one in enumerate(table.specs()[file.spec_id].fields):
        if isinstance(one.transform, BucketTransform) and one.source_id in field_ids:
            yield one.source_id, one.transform, file.partition[at]


def bound_of(kind: IcebergType, value: bytes | None) -> Any:
    """Return a bound of a column as keys are compared; ``None``: it is missing or unreadable."""
    if value is None or not isinstance(kind, PrimitiveType):
        return None
    if isinstance(kind, LongType) and len(value) == 4:
        # From before the column was widened.
        kind = IntegerType()
    try:
        found = from_bytes(kind, value)
    except (ValueError, TypeError, struct.error):
        return None
    return found.bytes if isinstance(found, UUID) else found
