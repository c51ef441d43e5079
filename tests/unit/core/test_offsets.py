# SPDX-License-Identifier: Apache-2.0
"""Range sets behave as the plain sets of integers that they replace."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from tests.support.story import STEADY

TOP = 40
RANGES = st.tuples(st.integers(0, TOP), st.integers(0, TOP)).map(lambda ab: OffsetRange(min(ab), max(ab)))
SETS = st.lists(RANGES, max_size=6).map(lambda ranges: RangeSet.of(*ranges))
PARTS = [SourcePartition("t", n, "id") for n in range(3)]
COVERAGES = st.dictionaries(st.sampled_from(PARTS), SETS).map(Coverage)


def ints(s: RangeSet) -> set[int]:
    return {o for r in s for o in range(r.start, r.end)}


def points(c: Coverage) -> set[tuple[SourcePartition, int]]:
    return {(p, o) for p, r in c.items() for o in range(r.start, r.end)}


def is_normal(s: RangeSet) -> bool:
    return all(s.ranges) and all(a.end < b.start for a, b in zip(s.ranges, s.ranges[1:], strict=False))


class TestOffsetRange:
    @pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2), (-2, -1)])
    def test_a_range_that_is_none_is_refused(self, start: int, end: int) -> None:
        with pytest.raises(ValueError, match=r"not an offset range: \[-?\d, -?\d\)"):
            OffsetRange(start, end)

    @pytest.mark.parametrize(
        ("a", "b", "overlap"), [((0, 5), (5, 9), False), ((0, 6), (5, 9), True), ((0, 9), (3, 4), True)]
    )
    def test_ranges_overlap_by_their_inner_offsets(self, a: tuple[int, int], b: tuple[int, int], overlap: bool) -> None:
        assert OffsetRange(*a).overlaps(OffsetRange(*b)) is overlap

    def test_a_range_without_offsets_is_false(self) -> None:
        assert not OffsetRange(4, 4)
        assert len(OffsetRange(4, 9)) == 5


class TestRangeSet:
    @STEADY
    @given(st.lists(RANGES, max_size=8))
    def test_of_covers_what_its_ranges_cover_and_is_normal(self, ranges: list[OffsetRange]) -> None:
        s = RangeSet.of(*ranges)
        assert ints(s) == {o for r in ranges for o in range(r.start, r.end)}
        assert is_normal(s)

    @STEADY
    @given(SETS, SETS)
    def test_union_intersection_and_difference_are_those_of_sets(self, a: RangeSet, b: RangeSet) -> None:
        assert ints(a | b) == ints(a) | ints(b)
        assert ints(a & b) == ints(a) & ints(b)
        assert ints(a - b) == ints(a) - ints(b)
        assert is_normal(a | b)
        assert is_normal(a & b)
        assert is_normal(a - b)

    @STEADY
    @given(SETS, SETS)
    def test_sets_are_equal_when_they_cover_the_same(self, a: RangeSet, b: RangeSet) -> None:
        assert (a == b) is (ints(a) == ints(b))

    @STEADY
    @given(SETS)
    def test_len_and_truth_are_those_of_sets(self, s: RangeSet) -> None:
        assert len(s) == len(ints(s))
        assert bool(s) is bool(ints(s))

    @STEADY
    @given(SETS, RANGES)
    def test_covers_and_overlaps_compare_all_or_any_offset(self, s: RangeSet, r: OffsetRange) -> None:
        offsets = set(range(r.start, r.end))
        assert s.covers(r) is (offsets <= ints(s))
        assert s.overlaps(r) is bool(offsets & ints(s))

    @STEADY
    @given(SETS, st.integers(0, TOP))
    def test_reach_is_the_first_offset_from_start_that_is_not_covered(self, s: RangeSet, start: int) -> None:
        assert s.reach(start) == next(o for o in range(start, TOP + 2) if o not in ints(s))


class TestCoverage:
    @STEADY
    @given(COVERAGES, COVERAGES)
    def test_algebra_is_that_of_sets_per_partition(self, a: Coverage, b: Coverage) -> None:
        assert points(a | b) == points(a) | points(b)
        assert points(a & b) == points(a) & points(b)
        assert points(a - b) == points(a) - points(b)
        assert a.overlaps(b) is bool(points(a) & points(b))
        assert len(a) == len(points(a))
        assert bool(a) is bool(points(a))

    @STEADY
    @given(COVERAGES, COVERAGES)
    def test_equality_and_hash_mean_the_same_offsets(self, a: Coverage, b: Coverage) -> None:
        assert (a == b) is (points(a) == points(b))
        assert hash(Coverage.of(a.items())) == hash(a)

    def test_a_partition_without_offsets_is_not_kept(self) -> None:
        assert Coverage({PARTS[0]: RangeSet()}) == Coverage()
        assert not Coverage({PARTS[0]: RangeSet()}).parts

    def test_a_topic_made_anew_is_another_partition(self) -> None:
        old, new = SourcePartition("t", 0, "id-1"), SourcePartition("t", 0, "id-2")
        assert not Coverage.of([(old, OffsetRange(0, 9))]).overlaps(Coverage.of([(new, OffsetRange(0, 9))]))

    def test_text_names_partitions_and_ranges(self) -> None:
        c = Coverage.of([(PARTS[1], OffsetRange(3, 5)), (PARTS[0], OffsetRange(0, 2)), (PARTS[0], OffsetRange(4, 6))])
        assert str(c) == "t[0] [0, 2) [4, 6), t[1] [3, 5)"
        assert str(Coverage()) == "nothing"


@pytest.mark.heavy
def test_sets_of_very_many_ranges_cost_as_much_as_they_are_long() -> None:
    """A report may name as many ranges as fit into a header: what they are compared with may be as long."""
    many = 100_000
    some = RangeSet.of(*((4 * n, 4 * n + 2) for n in range(many)))
    others = RangeSet.of(*((4 * n + 1, 4 * n + 3) for n in range(many)))
    assert len(some - others) == len(some & others) == many
    assert not any(some.overlaps(OffsetRange(4 * n + 2, 4 * n + 4)) for n in range(many))


def test_ranges_are_listed_by_partition() -> None:
    p = SourcePartition("orders", 1, "id")
    coverage = Coverage.of([(p, OffsetRange(5, 7)), (p, OffsetRange(0, 3))])
    assert coverage.to_dict() == {"orders[1]": [[0, 3], [5, 7]]}
    anew = coverage | Coverage.of([(SourcePartition("orders", 1, "new"), OffsetRange(0, 1))])
    assert anew.to_dict() == {"orders[1]@id": [[0, 3], [5, 7]], "orders[1]@new": [[0, 1]]}
