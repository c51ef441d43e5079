# SPDX-License-Identifier: Apache-2.0
"""Compare the keys of an upserting landing's table with the newest changes of their keys at the source.

Contract: the table has one row for each key whose newest compared change is a row, made by that change or a newer one.
It has none for a key whose newest compared change is a delete, or a newer one. A change that was landed and is not
compared (a sample, other rules, removed) may be newer: a missing key that may have one is *undecided*, and so is a key
with changes in several partitions, whose order is that of their publication. A row that names no record is older than
every change of its key in the live stream, unless its order column is greater.

Memory: the keys of all compared changes, and one row group of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO

from airflow_provider_lakecommit.core import LIVE, Coverage, LedgerSection
from airflow_provider_lakecommit.iceberg import (
    Columns,
    DeletePositions,
    KeySet,
    Numbers,
    Order,
    live_rows,
    opened,
    rank,
)
from airflow_provider_lakecommit.operations.backfill.ranges import RowRanges
from airflow_provider_lakecommit.operations.proof.chosen import TableRanges
from airflow_provider_lakecommit.operations.proof.compare import Differences, Example
from airflow_provider_lakecommit.operations.proof.range_rows import HeadRows

UNDECIDED, COMPACTED = "undecided", "compacted"


class Changes(NamedTuple):
    """The newest change of each key; ``mixed`` keys have changes in several partitions."""

    keys: KeySet
    order: Order
    is_delete: Numbers
    mixed: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Landed:
    """Landed ranges: ``compared`` by the generation of their reading, and ``others``. ``topics`` are the first
    generations of each topic by its id: changes of one topic are ordered by their offsets, whichever reading had them.
    With ``unmarked``, landed rows may name no record.
    """

    compared: Mapping[int, Coverage]
    others: Coverage
    topics: Mapping[str, int]
    readings: Mapping[tuple[str, int, int], str]
    """Topic ids by topic, partition and generation."""
    unmarked: bool = False

    @classmethod
    def of(cls, sections: Sequence[LedgerSection], ranges: TableRanges, compared: Mapping[int, Coverage]) -> Landed:
        """Return the landed ranges of a table, of which some were compared, by the generation of their reading."""
        entries = [e for section in sections for e in section.provenance]
        readings = {(p.topic, p.partition, e.generation): p.topic_id for e in entries for p in e.coverage.parts}
        topics: dict[str, int] = {}
        for (_, _, generation), topic_id in readings.items():
            topics[topic_id] = min(generation, topics.get(topic_id, generation))
        return cls(
            compared={g: c for g, c in compared.items() if c},
            others=ranges.covered - Coverage.union(compared.values()),
            topics=topics,
            readings=readings,
            # A row that names no record stays when a backfill has its key.
            unmarked=ranges.unmarked or any(s.lane != LIVE for s in sections),
        )

    def aged(self, order: Order, columns: Columns) -> Order:
        """Return an order whose generations are the first ones of the rows' topics."""
        out = order.generation.copy()
        for (topic, partition, generation), topic_id in self.readings.items():
            source = columns.sources.get((topic, partition), -1)
            out[(order.source == source) & (order.generation == generation)] = self.topics[topic_id]
        return order._replace(generation=out)

    def may_be_newer(self, order: Order, columns: Columns) -> Numbers:
        """Return which changes, of an :meth:`aged` order, may have a newer one among the others."""
        out = np.zeros(len(order.offset), bool)
        for p, ranges in self.others.parts.items():
            own = order.source == columns.sources.get((p.topic, p.partition), -1)
            first = self.topics.get(p.topic_id)
            later = order.offset < ranges.ranges[-1].end - 1
            if first is None or columns.order is not None:
                out |= own
            else:
                out |= own & ((order.generation < first) | ((order.generation == first) & later))
        return out


def newest_of(io: FileIO, rows: Sequence[str], tombstones: Sequence[str], columns: Columns, landed: Landed) -> Changes:
    """Read the changes in the files of a proof, and return the newest of each key."""
    parts = [part for path in rows for part in _changes(io, path, columns)]
    live = sum(len(order.offset) for _, order in parts)
    parts += [part for path in tombstones for part in _changes(io, path, columns)]
    keys = [pa.concat_arrays([none, *(k[i] for k, _ in parts)]) for i, none in enumerate(columns.no_keys())]
    order = landed.aged(Order.joined([o for _, o in parts]), columns)
    grouped = rank(keys, order)
    sources = order.source[grouped.by_key] != order.source[grouped.winner]
    mixed = np.isin(grouped.last, grouped.winner[sources])
    found = KeySet([k.take(pa.array(grouped.last)) for k in keys], grouped.hashed[grouped.last], grouped.seed)
    return Changes(found, order.take(grouped.last), grouped.last >= live, mixed)


def _changes(io: FileIO, path: str, columns: Columns) -> Iterator[tuple[list[pa.Array], Order]]:
    with opened(io, path, None) as rows:
        for group in range(len(rows.group_rows)):
            if (keys := columns.keys(rows, group)) is not None:
                yield keys, columns.orders(rows, group)


def compare_keys(
    rows_of: HeadRows, changes: Changes, columns: Columns, landed: Landed, removed: Iterable[tuple[int, Coverage]]
) -> Differences:
    """Return the keys whose row is not that of their newest change; compaction may have removed ``removed`` records."""
    out, marks = Differences(), rows_of.ids
    compared, gone = RowRanges(marks, landed.compared.items()), RowRanges(marks, removed)
    there = np.zeros(len(changes.is_delete), np.int64)
    for block in live_rows(rows_of.table, rows_of.head, DeletePositions(rows_of.name), columns):
        live, keys = pa.array(block.live), block.keys or ()
        found = columns.orders(block.parquet, block.group, block.constants)
        order = landed.aged(found.take(np.flatnonzero(block.live)), columns)
        rows, which = changes.keys.find([k.filter(live) for k in keys]) if keys else (np.zeros(0, np.int64),) * 2
        new, old = changes.order.take(which), order.take(rows)
        np.add.at(there, which, 1)
        older = _older(old, new)
        nameless = _nameless(old, columns) & older & (not landed.unmarked)
        unsure = ~nameless & (changes.mixed[which] | (new.source != old.source))
        out.counts[UNDECIDED] += int(unsure.sum())
        stale = ~unsure & older & ~nameless
        deleted = changes.is_delete[which]
        _note(out, "stale", new, columns, np.flatnonzero(nameless), _outdated(None, new, deleted))
        _note(out, "stale", old, columns, np.flatnonzero(stale), _outdated(old, new, deleted))
        # A row that claims a compared record whose key has only older changes, or none.
        claims = np.ones(len(order.offset), bool)
        claims[rows[~_older(new, old) | unsure]] = False
        if claims.any():
            at = np.flatnonzero(claims)
            names = [n for i in marks if (n := block.parquet.name(i)) is not None]
            read = block.parquet.group(block.group, names).filter(live).take(pa.array(at))
            if len(names) == len(marks):
                named = [read.column(n).combine_chunks() for n in names]
                own, excused = compared.of_rows(*named), gone.of_rows(*named)
                out.counts[COMPACTED] += int((own & excused).sum())
                _note(out, "foreign", order, columns, at[own & ~excused])
    missing = (there == 0) & ~changes.is_delete
    unsure = missing & (changes.mixed | landed.may_be_newer(changes.order, columns))
    out.counts[UNDECIDED] += int(unsure.sum())
    _note(out, "lost", changes.order, columns, np.flatnonzero(missing & ~unsure))
    _note(out, "doubled", changes.order, columns, np.flatnonzero(there > 1))
    out.counts = +out.counts
    return out


def _older(one: Order, other: Order) -> Numbers:
    """Return which changes are older than others of the same key and partition."""
    by_reading = (one.generation < other.generation) | (
        (one.generation == other.generation) & (one.offset < other.offset)
    )
    older: Numbers = (one.column < other.column) | ((one.column == other.column) & by_reading)
    return older


def _nameless(order: Order, columns: Columns) -> Numbers:
    """Return which rows do not name topic, partition and offset of their record."""
    named = [n for (topic, partition), n in columns.sources.items() if topic is not None and partition < 1 << 31]
    out: Numbers = ~np.isin(order.source, named) | (order.offset < 0)
    return out


def _outdated(old: Order | None, new: Order, deleted: Numbers) -> Callable[[int], tuple[str, str, str]]:
    """Return column and values of the example of a row: of an old change, or, without one, of no known record."""

    def values(n: int) -> tuple[str, str, str]:
        what = "a delete" if deleted[n] else "a row"
        there = "a row that names no record" if old is None else str(old.offset[n])
        return "kafka_offset", f"{what} of this key at {new.offset[n]}", there

    return values


def _note(
    out: Differences,
    kind: str,
    order: Order,
    columns: Columns,
    rows: Numbers,
    values: Callable[[int], tuple[str, ...]] = lambda _: (),
) -> None:
    names = list(columns.sources)
    for n in rows.tolist():
        topic, partition = names[int(order.source[n])]
        out.note(1, Example(kind, topic or "", partition, int(order.offset[n]), *values(n)))
