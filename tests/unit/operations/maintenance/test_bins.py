# SPDX-License-Identifier: Apache-2.0
"""Which files are rewritten together, by sizes and deleted rows alone."""

from __future__ import annotations

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

from airflow_provider_lakecommit.operations.maintenance.bins import Bin, Source, bins_of, size_of, within
from tests.fakes.lake import data_file

TARGET = 1000


def source(size: int, age: int = 1, *, partition: int = 0, dead: int = 0, rows: int = 100) -> Source:
    file = data_file(f"file:///{partition}/{age}-{size}", rows, partition=(partition,), file_size_in_bytes=size)
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.EXISTING,
        snapshot_id=1,
        sequence_number=age,
        file_sequence_number=age,
        data_file=file,
    )
    return Source(entry, dead)


def sizes(bins: list[Bin]) -> list[list[int]]:
    return [[s.size for s in one] for one in bins]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([source(10, n) for n in range(5)], [[10] * 5]),
        ([source(10, n) for n in range(4)], []),
        ([source(749, n) for n in range(5)], []),
        ([source(750, n) for n in range(9)], []),
        ([source(300, n) for n in range(7)], []),
        ([source(200, n) for n in range(11)], [[200] * 5, [200] * 5]),
        ([source(10, n, partition=n % 2) for n in range(9)], [[10] * 5]),
        ([source(900, 1, dead=5)], [[900]]),
        ([source(900, 1, dead=4)], []),
        ([source(10, 1, dead=4), source(10, 2)], []),
        ([source(5000, 1, dead=50)], [[5000]]),
        ([source(n * 10, 9 - n) for n in range(1, 7)], [[60, 50, 40, 30, 20, 10]]),
    ],
)
def test_bins(found: list[Source], expected: list[list[int]]) -> None:
    assert sizes(bins_of(found, TARGET)) == expected


def test_the_oldest_bin_comes_first_and_a_budget_leaves_the_rest() -> None:
    some = [source(10, 20 - n, partition=n // 5) for n in range(15)]
    bins = bins_of(some, TARGET)
    assert [min(s.age for s in b) for b in bins] == [6, 11, 16]
    assert within(bins, 100) == bins[:2]
    assert within(bins, 1) == bins[:1]
    assert within(bins, None) == bins


@given(st.lists(st.tuples(st.integers(1, 2000), st.integers(0, 3), st.integers(0, 100)), max_size=60))
def test_no_file_is_in_two_bins_and_none_is_beyond_the_target(files: list[tuple[int, int, int]]) -> None:
    found = [source(size, n, partition=p, dead=dead) for n, (size, p, dead) in enumerate(files)]
    for tiered in (False, True):
        bins = bins_of(found, TARGET, tiered=tiered)
        paths = [s.path for b in bins for s in b]
        assert len(paths) == len(set(paths))
        for one in bins:
            assert len({str(s.file.partition) for s in one}) == 1
            assert size_of(one) <= 1000 or len(one) == 1
            assert [s.age for s in one] == sorted(s.age for s in one)


def test_frequent_runs_rewrite_each_row_a_few_times_and_leave_few_files() -> None:
    """A window after the other, with a run after every hundred: what is rewritten grows with the logarithm."""
    windows = 10_000
    sources: list[Source] = []
    rewritten = most = 0
    for n in range(1, windows + 1):
        sources.append(source(100, n))
        if n % 100 == 0:
            for one in bins_of(sources, 10**9, tiered=True):
                rewritten += size_of(one)
                replaced = {s.path for s in one}
                sources = [s for s in sources if s.path not in replaced] + [source(size_of(one), one[-1].age)]
            most = max(most, len(sources))
    assert most < 20
    assert rewritten <= log2(windows) * windows * 100
