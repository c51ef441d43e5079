# SPDX-License-Identifier: Apache-2.0
"""Which reading landed which offsets: against a model that keeps one reading and its rows per offset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.provenance import (
    MOST_MIXED,
    Provenance,
    RowsPerOffset,
    added,
    past_shares,
    shares_of,
    unmarked,
    without,
)
from tests.support.effort import examples

P = SourcePartition("orders", 0, "id")
COLUMNS = (1, 2, 3, 4)
MOST = 12


def cover(*ranges: tuple[int, int]) -> Coverage:
    return Coverage.of((P, OffsetRange(a, b)) for a, b in ranges)


@dataclass
class Model:
    """Rows by generation and offset; ``covered`` are the offsets that the ledger has."""

    rows: dict[tuple[int, int], int] = field(default_factory=dict)
    covered: set[int] = field(default_factory=set)
    known: tuple[Provenance, ...] = ()
    generation: int = 1

    @property
    def coverage(self) -> Coverage:
        return cover(*((o, o + 1) for o in sorted(self.covered)))

    def land(self, start: int, rows: list[int]) -> None:
        span = range(start, min(start + len(rows), MOST))
        if not span or self.covered & set(span):
            return
        counted = rows[: len(span)]
        entry = Provenance.counted(
            self.generation, cover((span.start, span.stop)), sum(counted), COLUMNS, one_each=max(counted) < 2
        )
        self.known = added(self.known, [entry])
        self.covered |= set(span)
        self.rows |= {(self.generation, o): n for o, n in zip(span, counted, strict=True)}

    def go_back(self, to: int) -> None:
        self.generation += 1
        self.covered = {o for o in self.covered if o < to}

    def take(self, start: int, length: int) -> None:
        end = start + length
        ranges = self.coverage & cover((start, end))
        shares = shares_of(self.known, ranges)
        others = [self.count(s.entry.generation, s.uncounted) for s in shares]
        for share, rest in zip(shares, others, strict=True):
            assert share.expected(rest) == self.count(share.entry.generation, share.part)
        self.known = without(self.known, shares, others)
        self.covered -= set(range(start, end))
        taken = {(s.entry.generation, o) for s in shares for _, r in s.part.items() for o in range(r.start, r.end)}
        self.rows = {key: n for key, n in self.rows.items() if key not in taken}

    def count(self, generation: int, coverage: Coverage) -> int:
        offsets = {o for _, r in coverage.items() for o in range(r.start, r.end)}
        return sum(n for (g, o), n in self.rows.items() if g == generation and o in offsets)

    def check(self) -> None:
        current = shares_of(self.known, self.coverage)
        past = past_shares(self.known, self.coverage)
        assert not unmarked(current, self.coverage)
        assert sum(self.count(s.entry.generation, s.part) for s in (*current, *past)) == sum(self.rows.values())
        newest: dict[int, int] = {}
        for g, o in self.rows:
            newest[o] = max(newest.get(o, 0), g)
        for share in current:
            for _, r in share.part.items():
                assert all(newest[o] == share.entry.generation for o in range(r.start, r.end))
        assert sum(entry.rows for entry in self.known) == sum(self.rows.values())


STEPS = st.one_of(
    st.tuples(st.just("land"), st.integers(0, MOST - 1), st.lists(st.integers(0, 2), min_size=1, max_size=5)),
    st.tuples(st.just("go_back"), st.integers(0, MOST)),
    st.tuples(st.just("take"), st.integers(0, MOST - 1), st.integers(1, MOST)),
)


@settings(max_examples=examples(500), deadline=None)
@given(st.lists(STEPS, max_size=15))
def test_readings_are_distinguished_as_one_by_one(steps: list[Any]) -> None:
    model = Model()
    for name, *arguments in steps:
        getattr(model, name)(*arguments)
        model.check()


def test_entries_with_one_number_are_joined_when_they_are_many() -> None:
    many = [Provenance.counted(1, cover((n * 10, n * 10 + 10)), 7, COLUMNS) for n in range(100)]
    known = added((), many)
    assert len(known) == MOST_MIXED
    assert (sum(e.rows for e in known), Coverage.union(e.coverage for e in known)) == (700, cover((0, 1000)))


def test_ranges_with_a_row_each_or_none_cost_one_entry_however_many() -> None:
    full = [Provenance.counted(1, cover((n * 10, n * 10 + 10)), 10, COLUMNS) for n in range(100)]
    empty = [Provenance.counted(1, cover((2000 + n, 2001 + n)), 0, COLUMNS) for n in range(100)]
    assert len(added((), [*full, *empty])) == 2


@pytest.mark.parametrize(
    ("rows", "one_each", "spread"),
    [
        (0, True, RowsPerOffset.NONE),
        (10, True, RowsPerOffset.ONE),
        (10, False, RowsPerOffset.MIXED),
        (9, True, RowsPerOffset.MIXED),
        (30, True, RowsPerOffset.MIXED),
    ],
)
def test_how_rows_are_spread(rows: int, one_each: bool, spread: RowsPerOffset) -> None:
    assert Provenance.counted(1, cover((0, 10)), rows, COLUMNS, one_each=one_each).per_offset is spread


def test_ranges_without_an_entry_or_without_columns_are_unmarked() -> None:
    known = (
        Provenance.counted(1, cover((0, 10)), 10),
        Provenance.counted(1, cover((10, 20)), 10, COLUMNS),
        Provenance.counted(1, cover((20, 30)), 0),
    )
    covered = cover((0, 40))
    assert unmarked(shares_of(known, covered), covered) == cover((0, 10), (30, 40))


@pytest.mark.parametrize("rows", [10, 7])
def test_a_current_and_a_past_part_of_one_entry_leave_nothing_of_it(rows: int) -> None:
    entry = Provenance.counted(1, cover((0, 10)), rows, COLUMNS)
    current = shares_of([entry], cover((0, 6)))
    past = past_shares([entry], cover((0, 6)))
    assert without([entry], (*current, *past), [rows - 5, 5]) == ()
