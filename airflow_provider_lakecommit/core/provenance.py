# SPDX-License-Identifier: Apache-2.0
"""Which reading landed which offsets in a table, and whether rows are marked with it: part of the ledger.

A *reading* of a topic has a generation number, which only grows. A new one begins whenever offsets are read anew:
recreated topic, truncated log, other cluster, replay, or a reset that goes back. Rows of a *marked* reading have topic,
partition, generation and offset in columns, so the same offset of two readings is never confused.

An entry tells how many rows its reading made of its ranges: one per offset, none, or a sum. Of entries with a covered
offset the one with the greatest generation is current; the others describe rows that are still in the table. Covered
ranges without an entry are unmarked: another writer, cluster, operator or release put them in the ledger.

Joining entries loses precision, never rows: to count a part of ranges with one sum, the rest is counted in the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from airflow_provider_lakecommit.core.offsets import Coverage

COORDINATES = ("topic", "partition", "generation", "offset")
"""The columns of a marked reading, in this order."""
MOST_MIXED = 16
"""Entries with one sum for several offsets that a ledger keeps per reading; the oldest are joined."""


class RowsPerOffset(Enum):
    """How the rows of an entry are spread over its offsets."""

    NONE = 0
    ONE = 1
    MIXED = 2
    """Known for all of them together only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The offsets that one reading landed in a table, and the ``rows`` it made of them.

    :param columns: field ids of topic, partition, generation and offset in the table; empty for unmarked rows
    """

    generation: int
    coverage: Coverage
    rows: int
    columns: tuple[int, ...] = ()
    per_offset: RowsPerOffset = RowsPerOffset.MIXED

    @classmethod
    def counted(
        cls, generation: int, coverage: Coverage, rows: int, columns: tuple[int, ...] = (), *, one_each: bool = True
    ) -> Provenance:
        """Return an entry whose spread follows from its numbers.

        :param one_each: no offset has more than one row
        """
        spread = RowsPerOffset.MIXED
        if rows == 0:
            spread = RowsPerOffset.NONE
        elif one_each and rows == len(coverage):
            spread = RowsPerOffset.ONE
        return cls(generation=generation, coverage=coverage, rows=rows, columns=columns, per_offset=spread)

    @property
    def marked(self) -> bool:
        """Return True if the rows of any part can be found, or if there are none."""
        return bool(self.columns) or self.per_offset is RowsPerOffset.NONE

    @property
    def kind(self) -> tuple[int, tuple[int, ...], RowsPerOffset]:
        """Entries of one kind can be joined."""
        return self.generation, self.columns, self.per_offset

    def joined(self, other: Provenance) -> Provenance:
        return replace(self, coverage=self.coverage | other.coverage, rows=self.rows + other.rows)

    def rest(self, taken: Coverage, mixed_rows: int) -> Provenance:
        """Return the entry without some offsets.

        :param mixed_rows: remaining rows, if the entry does not state them
        """
        coverage = self.coverage - taken
        exact = {RowsPerOffset.NONE: 0, RowsPerOffset.ONE: len(coverage)}
        return replace(self, coverage=coverage, rows=exact.get(self.per_offset, mixed_rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The ``part`` of an entry that an operation is about."""

    entry: Provenance
    part: Coverage

    @property
    def uncounted(self) -> Coverage:
        """Return the offsets whose rows must be counted to know those of the part."""
        mixed = self.entry.per_offset is RowsPerOffset.MIXED
        return self.entry.coverage - self.part if mixed else Coverage()

    def expected(self, uncounted: int) -> int:
        """Return the rows of the part, given the counted rows of the rest."""
        exact = {RowsPerOffset.NONE: 0, RowsPerOffset.ONE: len(self.part)}
        return exact.get(self.entry.per_offset, self.entry.rows - uncounted)


def added(known: Sequence[Provenance], new: Iterable[Provenance]) -> tuple[Provenance, ...]:
    """Return the entries with further ones, joined where that loses nothing or where there are too many."""
    exact: dict[tuple[int, tuple[int, ...], RowsPerOffset], Provenance] = {}
    mixed: dict[tuple[int, tuple[int, ...], RowsPerOffset], list[Provenance]] = {}
    for entry in (*known, *new):
        if not entry.coverage:
            continue
        if entry.per_offset is RowsPerOffset.MIXED:
            mixed.setdefault(entry.kind, []).append(entry)
        else:
            exact[entry.kind] = exact[entry.kind].joined(entry) if entry.kind in exact else entry
    for entries in mixed.values():
        while len(entries) > MOST_MIXED:
            entries[:2] = [entries[0].joined(entries[1])]
    every = (*exact.values(), *(entry for entries in mixed.values() for entry in entries))
    return tuple(sorted(every, key=lambda e: e.generation))


def shares_of(known: Iterable[Provenance], covered: Coverage) -> tuple[Share, ...]:
    """Return the current entry of each covered offset, newest reading first; unmarked offsets are in none."""
    found, left = [], covered
    for entry in sorted(known, key=lambda e: e.generation, reverse=True):
        if part := entry.coverage & left:
            found.append(Share(entry=entry, part=part))
            left = left - part
    return tuple(found)


def without_rows(known: Iterable[Provenance], covered: Coverage) -> Coverage:
    """Return the offsets whose current reading made no row."""
    return Coverage.union(s.part for s in shares_of(known, covered) if s.entry.per_offset is RowsPerOffset.NONE)


def past_shares(known: Sequence[Provenance], covered: Coverage) -> tuple[Share, ...]:
    """Return the landed offsets of earlier readings that are not current: their rows are still in the table.

    :param covered: all that the ledger covers
    """
    current: dict[Provenance, Coverage] = {s.entry: s.part for s in shares_of(known, covered)}
    rest = ((e, e.coverage - current.get(e, Coverage())) for e in known if e.per_offset is not RowsPerOffset.NONE)
    return tuple(Share(entry=entry, part=part) for entry, part in rest if part)


def same_readings(one: Iterable[Provenance], other: Iterable[Provenance]) -> Coverage:
    """Return the offsets that two tables have of the same reading."""
    others = tuple(other)
    return Coverage.union(e.coverage & o.coverage for e in one for o in others if e.generation == o.generation)


def unmarked(shares: Iterable[Share], covered: Coverage) -> Coverage:
    """Return the covered offsets whose rows cannot be found."""
    return covered - Coverage.union(s.part for s in shares if s.entry.marked)


def without(known: Sequence[Provenance], taken: Iterable[Share], mixed: Iterable[int]) -> tuple[Provenance, ...]:
    """Return the entries without the shares whose rows were removed.

    :param mixed: by share, the counted rows of the rest of its entry
    """
    remaining: dict[Provenance, Provenance] = {}
    for share, rows in zip(taken, mixed, strict=True):
        # Of one entry a current and a past part may go.
        left = remaining.get(share.entry, share.entry)
        remaining[share.entry] = left.rest(share.part, left.rows - share.expected(rows))
    return added((), (remaining.get(entry, entry) for entry in known))
