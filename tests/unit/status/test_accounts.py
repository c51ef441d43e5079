# SPDX-License-Identifier: Apache-2.0
"""What histories say of ranges, laid side by side."""

from __future__ import annotations

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.status.accounts import RangeAccounts, common_blocks, counts_in, pieces_after

P = SourcePartition("orders", 0, "topic-id")


def covered(*ranges: tuple[int, int]) -> Coverage:
    return Coverage({P: RangeSet.of(*ranges)})


Step = tuple[Coverage, Coverage, Coverage, dict[SourcePartition, Counts]]


def step(had: Coverage, has: Coverage, ranges: Coverage, rejected: int = 0) -> Step:
    return had, has, ranges, {P: Counts(rejected=rejected)} if ranges else {}


def pieces_of(steps: list[Step]) -> RangeAccounts:
    pieces = RangeAccounts()
    for each in steps:
        pieces = pieces_after(pieces, *each)
    return pieces


def landed(*ends: int, rejected: int = 1) -> RangeAccounts:
    """By snapshots that end at these offsets, each with so many rejects."""
    starts = (0, *ends)
    steps = [
        step(covered((0, a)), covered((0, b)), covered((a, b)), rejected) for a, b in zip(starts, ends, strict=False)
    ]
    return pieces_of([step(Coverage(), Coverage(), Coverage()), *steps])


def listed(pieces: RangeAccounts) -> list[tuple[int, int, int | None]]:
    return [(r.start, r.end, None if c is None else c.rejected) for r, c in pieces.get(P, {}).items()]


def blocks(ours: RangeAccounts, theirs: RangeAccounts) -> list[tuple[int, int, int | None, int | None]]:
    found = [
        (block, *(counts_in(each.get(p, {}), block) for each in (ours, theirs)))
        for p, block in common_blocks(ours, theirs)
    ]
    return [(b.start, b.end, a and a.rejected, c and c.rejected) for b, a, c in found]


def test_each_snapshot_is_a_piece() -> None:
    assert listed(landed(10, 25)) == [(0, 10, 1), (10, 25, 1)]


def test_what_was_landed_before_the_oldest_snapshot_is_not_known() -> None:
    assert listed(pieces_of([step(Coverage(), covered((0, 25)), covered((10, 25)), 3)])) == [(0, 10, None), (10, 25, 3)]


def test_what_a_user_reported_is_not_known_and_what_is_given_back_is_missing() -> None:
    first = step(Coverage(), covered((0, 30)), covered((0, 30)), 2)
    back = step(covered((0, 30)), covered((0, 20)), Coverage())
    again = step(covered((0, 20)), covered((0, 35)), covered((20, 35)), 4)
    pieces = step(covered((0, 35)), covered((0, 50)), Coverage())
    assert listed(pieces_of([first, back, again, pieces])) == [(0, 20, None), (20, 35, 4), (35, 50, None)]


def test_counts_of_several_ranges_together_are_of_none_of_them() -> None:
    both = covered((0, 5), (10, 15))
    assert listed(pieces_of([step(Coverage(), both, both, 1)])) == [(0, 5, None), (10, 15, None)]


def test_blocks_end_where_pieces_of_both_do() -> None:
    assert blocks(landed(10, 20, 30), landed(20, 25, 30)) == [(0, 20, 2, 1), (20, 30, 1, 2)]


def test_a_block_that_a_table_lacks_or_has_in_part_has_no_counts_there() -> None:
    assert blocks(landed(10, 20), {}) == [(0, 20, 2, None)]
    assert blocks(landed(10, 20), landed(10)) == [(0, 10, 1, 1), (10, 20, 1, None)]
    assert blocks(landed(10, 30), landed(10, 20)) == [(0, 10, 1, 1), (10, 30, 1, None)]
    assert list(common_blocks({}, landed(10))) == []
    assert list(common_blocks(landed(10), {})) == [(P, OffsetRange(0, 10))]


def test_a_partition_that_a_ledger_gave_back_as_one_is_not_there() -> None:
    first = step(Coverage(), covered((0, 30)), covered((0, 30)), 2)
    pruned = pieces_of([first, step(covered((0, 30)), Coverage(), Coverage())])
    assert listed(pruned) == []
    assert blocks(pruned, landed(10)) == []
