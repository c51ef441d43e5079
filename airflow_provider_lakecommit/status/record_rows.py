# SPDX-License-Identifier: Apache-2.0
"""Check that each landed record is one row, by the rows themselves: `verify --rows`.

Every data file of the head is read once, only the columns that identify the record and reading of a row, less the rows
of position deletes. Each reading of a topic is counted separately, so a recreated topic, a truncated log and a range
read again are no finding. These are faults: a row of a record that no ledger of the table has; several rows of a
record that may have only one; fewer records with rows than the table's history counts, unless other writers removed
some. Tables of one landing that share its records (`route`) are counted together. Counts of expired
snapshots, and ranges stated by users, are not compared. An unreadable file is a finding and hides no other.

It takes two bytes of memory for each offset between the first and the last landed offset of a partition and reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import FileFormat, ManifestContent, ManifestEntry
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from airflow_provider_lakecommit.core import (
    Coverage,
    OffsetRange,
    RangeSet,
    Role,
    RowsPerOffset,
    SourcePartition,
    shares_of,
    tables_for,
)
from airflow_provider_lakecommit.exceptions import StorageError, TableError
from airflow_provider_lakecommit.iceberg import (
    DeletePositions,
    Deletes,
    Numbers,
    Tables,
    deletes_of,
    opened,
    record_column_ids,
)
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.status.table_history import Finding, TableHistory, note_on, wrong_in
from airflow_provider_lakecommit.status.upserted import dead_rows
from airflow_provider_lakecommit.status.verify import DISPOSITIONS, pieces_in, replayed_in

MOST_RANGES = 5
"""Ranges in one finding."""
_NEEDED = 3
"""Columns without which a row does not identify its record: topic, partition, offset."""
_UNKNOWN = -1
Reading = tuple[str, int, int | None]
"""Topic, partition, and the generation of the reading, if rows have it."""


@dataclass(slots=True)
class _Partition:
    """Offsets from ``base`` on: how many rows each may have, and how many it has (255 means more)."""

    base: int
    allowed: Numbers
    observed: Numbers

    def add(self, offsets: Numbers) -> Numbers:
        inside = (offsets >= self.base) & (offsets < self.base + len(self.observed))
        if inside.any():
            counted = np.bincount(offsets[inside] - self.base)
            there = self.observed[: len(counted)]
            there[:] = np.minimum(there.astype(np.int64) + counted, 255)
        return offsets[~inside]

    def ranges(self, which: Numbers) -> RangeSet:
        edges = np.flatnonzero(np.diff(np.concatenate(([0], which.astype(np.int8), [0]))))
        return RangeSet(tuple(OffsetRange(int(a), int(b)) for a, b in (edges.reshape(-1, 2) + self.base).tolist()))


@dataclass(slots=True)
class _Tally:
    """The rows of the tables of one role, by topic, partition and reading. ``unmarked`` do not name their record."""

    partitions: dict[Reading, _Partition]
    beyond: dict[Reading, set[int]] = field(default_factory=dict)
    rows: int = 0
    unmarked: int = 0

    @classmethod
    def of(cls, allowed: Mapping[int | None, Coverage]) -> _Tally:
        """:param allowed: offsets that may have a row, by the generation in the rows"""
        spans: dict[Reading, list[RangeSet]] = {}
        for generation, covered in allowed.items():
            for p, ranges in covered.parts.items():
                spans.setdefault((p.topic, p.partition, generation), []).append(ranges)
        made = {}
        for place, some in spans.items():
            base, end = min(r.ranges[0].start for r in some), max(r.ranges[-1].end for r in some)
            rows = np.zeros(end - base, np.uint8)
            # Both may have an offset of a topic that was recreated under its name.
            for one in (one for ranges in some for one in ranges):
                rows[one.start - base : one.end - base] += 1
            made[place] = _Partition(base, rows, np.zeros(end - base, np.uint8))
        return cls(made)

    def add(self, topics: pa.Array, numbers: pa.Array, offsets: pa.Array, readings: pa.Array) -> None:
        """Count rows by their columns. A row that lacks topic, partition or offset is unmarked."""
        marked = pc.and_(pc.is_valid(topics), pc.and_(pc.is_valid(numbers), pc.is_valid(offsets)))
        self.rows += len(topics)
        self.unmarked += len(topics) - (pc.sum(marked).as_py() or 0)
        topics, numbers, offsets, readings = (c.filter(marked) for c in (topics, numbers, offsets, readings))
        named = topics.dictionary_encode() if not pa.types.is_dictionary(topics.type) else topics
        codes, of, at = named.indices.to_numpy(), numbers.to_numpy(), offsets.to_numpy()
        read_by = readings.fill_null(_UNKNOWN).to_numpy(zero_copy_only=False)
        for code, topic in enumerate(named.dictionary.to_pylist()):
            own = codes == code
            for number, reading in np.unique(np.stack([of[own], read_by[own]]), axis=1).T.tolist():
                place = topic, number, None if reading == _UNKNOWN else reading
                self._count(place, at[own & (of == number) & (read_by == reading)])

    def there(self, place: Reading, requested: OffsetRange) -> int | None:
        """Return how many offsets of a range have a row; ``None`` if one of them may have several."""
        if (p := self.partitions.get(place)) is None:
            return 0
        part = slice(max(0, requested.start - p.base), max(0, requested.end - p.base))
        return int(np.count_nonzero(p.observed[part])) if (p.allowed[part] <= 1).all() else None

    def _count(self, place: Reading, offsets: Numbers) -> None:
        known = self.partitions.get(place)
        beyond = offsets if known is None else known.add(offsets)
        if len(beyond):
            self.beyond.setdefault(place, set()).update(beyond.tolist())


def check_rows(
    landing: Landing, histories: Iterable[TableHistory], tables: Tables, progress: Callable[[str], None]
) -> list[Finding]:
    """Return all findings on the rows that a landing's tables have in their histories: runs may have added others."""
    known = {h.table: h for h in histories if h.snapshots}
    found: list[Finding] = []
    for role in Role:
        some = [known[table] for table in tables_for(landing.destinations, role) if table in known]
        if some:
            found += _of_role(landing, role, some, tables, progress)
    return found


def _of_role(
    landing: Landing, role: Role, histories: Sequence[TableHistory], tables: Tables, progress: Callable[[str], None]
) -> Iterator[Finding]:
    tally = _Tally.of(_allowed(histories))
    for h in histories:
        table = tables.load(h.table)
        if not (columns := record_column_ids(table.schema(), role)):
            text = "its rows cannot be counted by record: it has no columns that identify the record of a row"
            yield note_on(h.table, text)
            return
        progress(f"{h.table}: reading the record position of each row")
        head = table.snapshot_by_id(h.head_id or 0) or table.snapshot_by_name(landing.branch)
        yield from _read(table, h.table, head, columns, tally)
    one_each = role is Role.DEAD_LETTERS or landing.one_row_each
    yield from _evaluated(landing, role, histories, tally, one_each=one_each)


def _allowed(histories: Iterable[TableHistory]) -> dict[int | None, Coverage]:
    """Return the offsets that may have a row in one of the tables, by the generation in the rows."""
    found: dict[int | None, Coverage] = {}
    for section in (s for h in histories for s in h.snapshots[-1].sections.values()):
        entries = section.provenance
        known = Coverage.union(s.part for s in shares_of(entries, section.covered))
        some = [e for e in entries if e.per_offset is not RowsPerOffset.NONE]
        parts = [(e.generation if e.columns else None, e.coverage) for e in some]
        for generation, part in (*parts, (None, section.covered - known)):
            found[generation] = found.get(generation, Coverage()) | part
    return found


def _reading_of(history: TableHistory, p: SourcePartition, requested: OffsetRange) -> Reading | None:
    """Return where the rows of a range are counted, or ``None`` if several readings landed it."""
    for section in history.snapshots[-1].sections.values():
        part = section.covered & Coverage({p: RangeSet.of(requested)})
        if part[p].covers(requested):
            shares = shares_of(section.provenance, part)
            marked = {s.entry.generation if s.entry.columns else None for s in shares if s.entry.rows}
            rest = {None} if part - Coverage.union(s.part for s in shares) else set()
            readings = (marked | rest) or {s.entry.generation for s in shares}
            return (p.topic, p.partition, readings.pop()) if len(readings) == 1 else None
    return None


def _covered(history: TableHistory) -> Coverage:
    return Coverage.union(s.covered for s in history.snapshots[-1].sections.values())


def _read(table: Table, name: str, head: Snapshot | None, columns: tuple[int, ...], tally: _Tally) -> Iterator[Finding]:
    try:
        manifests = [] if head is None else head.manifests(table.io)
        deletes, positions = deletes_of(table, manifests), DeletePositions(name)
        entries = [
            e
            for m in manifests
            if m.content == ManifestContent.DATA
            for e in m.fetch_manifest_entry(table.io, discard_deleted=True)
        ]
    except Exception:  # a reader may raise anything for a corrupt manifest: the table's history reports it
        return
    if deletes.equality:
        text = f"{len(deletes.equality)} equality deletes apply to it: rows that they match are counted as present"
        yield note_on(name, text)
    for entry in entries:
        try:
            _read_file(table, entry, columns, deletes, positions, tally)
        except (StorageError, TableError) as e:
            yield wrong_in(name, str(e), entry.snapshot_id)


def _read_file(
    table: Table,
    entry: ManifestEntry,
    columns: tuple[int, ...],
    deletes: Deletes,
    positions: DeletePositions,
    tally: _Tally,
) -> None:
    file = entry.data_file
    if file.file_format != FileFormat.PARQUET or file.key_metadata:
        raise TableError("LC8601", f"file {file.file_path} is not read: only plain Parquet files are supported")
    deleted = positions.of(table, file, deletes.of(entry))
    with opened(table.io, file.file_path, table.metadata.name_mapping()) as rows:
        of_columns = [rows.name(column) for column in columns]
        names = [name for name in of_columns if name is not None]
        if None in of_columns[:_NEEDED]:
            tally.rows += file.record_count - len(deleted)
            tally.unmarked += file.record_count - len(deleted)
            return
        for block, live in rows.blocks(deleted, names):
            kept = block.filter(pa.array(live))
            found = [kept.column(name).combine_chunks() for name in names]
            no_reading = [pa.nulls(kept.num_rows, pa.int64())] if len(names) == _NEEDED else []
            tally.add(*found, *no_reading)


def _evaluated(
    landing: Landing, role: Role, histories: Sequence[TableHistory], tally: _Tally, *, one_each: bool
) -> Iterator[Finding]:
    """Yield the findings of the tally, over all tables of a role."""
    name = " and ".join(h.table for h in histories)
    if tally.unmarked:
        yield note_on(name, f"{tally.unmarked} of {tally.rows} rows do not identify their record")
    strange = {place: RangeSet.of(*((o, o + 1) for o in offsets)) for place, offsets in tally.beyond.items()}
    twice: dict[Reading, RangeSet] = {}
    for place, p in tally.partitions.items():
        unknown = p.ranges((p.observed > 0) & (p.allowed == 0))
        strange[place] = strange.get(place, RangeSet()) | unknown
        twice[place] = p.ranges((p.observed > p.allowed) & (p.allowed > 0)) if one_each else RangeSet()
    if any(strange.values()):
        yield wrong_in(name, f"it has rows of records that its ledger does not have: {_text(strange)}")
    if any(twice.values()):
        yield wrong_in(name, f"records are in it more than once: {_text(twice)}")
    yield from _missing(landing, role, histories, tally)


def _missing(landing: Landing, role: Role, histories: Sequence[TableHistory], tally: _Tally) -> Iterator[Finding]:
    """Yield records without a row, by the counts of each range in the history of the first table."""
    name = " and ".join(h.table for h in histories)
    everywhere = _covered(histories[0])
    for h in histories[1:]:
        everywhere &= _covered(h)
    first, disposition = histories[0], DISPOSITIONS[role]
    replayed = replayed_in(first, landing.name) if role is Role.ROWS else Coverage()
    # A newer row of its key has superseded a row that is not there.
    upserted = role is Role.ROWS and any(dead_rows(s.record) != (0, 0) for h in histories for s in h.snapshots)
    explained = any(h.fewer for h in histories) or tally.unmarked
    unknown: dict[Reading, RangeSet] = {}
    for p, pieces in sorted(pieces_in(first, landing.name).items()):
        for landed, counts in pieces.items():
            place = _reading_of(first, p, landed) if everywhere[p].covers(landed) else None
            there = None if place is None else tally.there(place, landed)
            if counts is None or there is None:
                place = p.topic, p.partition, None
                unknown[place] = unknown.get(place, RangeSet()) | RangeSet.of(landed)
                continue
            counted = getattr(counts, disposition) + len(replayed[p] & RangeSet.of(landed))
            text = f"of {p} {landed} {there} records have a row, but {counted} were counted"
            if there < counted and explained:
                yield note_on(name, f"{text}: other writers removed rows, or rows do not identify their record")
            elif there < counted and upserted:
                continue
            elif there != counted:
                yield wrong_in(name, text)
    if unknown:
        yield note_on(name, f"no remaining snapshot has the number of records with a row of {_text(unknown)}")


def _text(ranges: dict[Reading, RangeSet]) -> str:
    ordered = sorted(ranges, key=lambda place: (place[0], place[1], place[2] or 0))
    flat = [f"{place[0]}[{place[1]}] {r}" for place in ordered for r in ranges[place]]
    offsets = sum(len(r) for some in ranges.values() for r in some)
    return f"{', '.join(flat[:MOST_RANGES])}{' …' if len(flat) > MOST_RANGES else ''} ({offsets} offsets)"
