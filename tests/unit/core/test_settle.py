# SPDX-License-Identifier: Apache-2.0
"""Settlement: the greatest set that leaves no hole, in an order of which every head leaves no hole either."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import combinations, pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.settle import (
    Settlement,
    chunks,
    holes,
    passed_by_all,
    passed_ends,
    settle,
    valid_through,
)
from airflow_provider_lakecommit.core.state import AcceptedSlice, TableLedger
from tests.support.story import DEAD, NOON, ORDERS, P0, P1, P2, STEADY, Ranges, Story, coverage, ledger, plan, report_of

PARTS = [P0, P1, P2]


def test_nothing_of_a_stream_that_replaces_is_published_slice_by_slice() -> None:
    """Though the table has its range, it counts as missing, by whatever rules it was evaluated."""
    was = ledger(others=[(P0, 0, 100)])
    section = replace(was.section, lane="again", starts={P0: 20}, ends={P0: 60}, replaces=True)
    needed = replace(was, section=section, evaluated={"old": coverage([(P0, 0, 100)])}).as_needed
    assert (needed.others, needed.evaluated, needed.end(P0)) == (coverage([(P0, 0, 20), (P0, 60, 100)]), {}, 20)
    settled = settle(accepted([(P0, 20, 40)], [(P0, 40, 60)]), needed.section, needed.others)
    assert settled.ready == ()
    assert ["until all of its lane is" in why for _, why in settled.waiting] == [True, True]
    whole = replace(needed, section=replace(section, covered=coverage([(P0, 20, 60)])))
    assert whole.end(P0) == 60
    assert ledger(others=[(P0, 0, 100)]).as_needed.others == coverage([(P0, 0, 100)])


def accepted(*slices: Ranges, files: dict[str, int] | None = None) -> list[AcceptedSlice]:
    return [
        AcceptedSlice(
            report=report_of(s, attempt=UUID(int=n + 1), files=files),
            commit_id=UUID(int=0),
            offset=n,
            at=NOON,
            files={},
        )
        for n, s in enumerate(plan(slices, tables=(ORDERS, DEAD)).slices)
    ]


def ready(*slices: Ranges, covered: Ranges = (), starts: dict[SourcePartition, int] | None = None) -> list[int]:
    """Places of the slices that can be published, in the order they were given."""
    settled = settle(accepted(*slices), ledger(covered=covered, starts=starts).section)
    return sorted(s.offset for s in settled.ready)


class TestSettle:
    def test_nothing_accepted_settles_nothing(self) -> None:
        assert settle([], ledger().section) == Settlement(steps=(), waiting=())

    def test_a_slice_at_the_end_of_the_ledger_is_ready(self) -> None:
        assert ready([(P0, 5, 9)], covered=[(P0, 0, 5)]) == [0]

    def test_a_slice_behind_a_hole_waits_and_reports_behind_what(self) -> None:
        settled = settle(accepted([(P0, 6, 9)]), ledger(covered=[(P0, 0, 5)]).section)
        assert settled.ready == ()
        ((_, reason),) = settled.waiting
        assert reason == "orders[0] [6, 9) is staged behind offset 5 of orders[0]"

    def test_the_start_of_the_stream_counts_as_the_end_of_an_empty_ledger(self) -> None:
        assert ready([(P0, 100, 110)], starts={P0: 100}) == [0]
        assert ready([(P0, 100, 110)], starts={P0: 99}) == []

    def test_a_partition_that_came_later_begins_at_0(self) -> None:
        assert ready([(P2, 0, 4)], starts={P0: 7}) == [0]

    def test_a_chain_is_ready_whatever_the_order_of_its_reports(self) -> None:
        assert ready([(P0, 20, 30)], [(P0, 0, 10)], [(P0, 10, 20)]) == [0, 1, 2]

    def test_a_slice_of_two_partitions_waits_for_the_slower_one(self) -> None:
        assert ready([(P0, 0, 5), (P1, 5, 9)]) == []

    def test_what_is_behind_a_waiting_slice_waits_too(self) -> None:
        assert ready([(P0, 0, 5), (P1, 5, 9)], [(P0, 5, 9)], [(P1, 0, 4)]) == [2]

    def test_slices_that_need_each_other_are_ready_together_in_one_step(self) -> None:
        settled = settle(accepted([(P0, 0, 5), (P1, 5, 9)], [(P1, 0, 5), (P0, 5, 9)]), ledger().section)
        assert [len(step) for step in settled.steps] == [2]

    def test_a_range_on_both_sides_of_another_slice_is_ready_with_it(self) -> None:
        assert ready([(P0, 0, 3), (P0, 6, 9)], [(P0, 3, 6)]) == [0, 1]
        assert ready([(P0, 0, 3), (P0, 6, 9)]) == []

    def test_one_partition_that_waits_delays_no_other(self) -> None:
        assert ready([(P0, 5, 9)], [(P1, 0, 9)]) == [1]

    def test_an_island_of_the_ledger_joins_on_when_the_hole_before_it_is_filled(self) -> None:
        assert ready([(P0, 5, 7)], [(P0, 9, 12)], covered=[(P0, 0, 5), (P0, 7, 9)]) == [0, 1]

    def test_thousands_of_slices_of_one_partition_are_settled_in_one_pass(self) -> None:
        n = 4000
        slices = accepted(*([(P0, k * 10, k * 10 + 10)] for k in reversed(range(n))))
        settled = settle(slices, ledger().section)
        assert [s.coverage.items()[0][1].start for s in settled.ready] == [k * 10 for k in range(n)]


@st.composite
def jigsaws(draw: st.DrawFn) -> list[Ranges]:
    """Partitions cut into pieces, pieces put together to slices at random, some left out."""
    pieces: list[tuple[SourcePartition, int, int]] = []
    for p in PARTS[: draw(st.integers(1, 3))]:
        cuts = sorted({0, *draw(st.lists(st.integers(1, 12), max_size=4)), 12})
        pieces += [(p, a, b) for a, b in pairwise(cuts)]
    slices: dict[int, list[tuple[SourcePartition, int, int]]] = {}
    for piece in pieces:
        slices.setdefault(draw(st.integers(0, 7)), []).append(piece)
    return [s for _, s in sorted(slices.items()) if draw(st.integers(0, 4))]


def is_contiguous(c: Coverage) -> bool:
    return all(len(s.ranges) == 1 and s.ranges[0].start == 0 for s in c.parts.values())


def union(slices: list[AcceptedSlice]) -> Coverage:
    return Coverage.of(item for s in slices for item in s.coverage.items())


class TestSettleAgainstAllSubsets:
    @STEADY
    @given(jigsaws())
    def test_ready_is_the_greatest_set_that_leaves_no_hole(self, slices: list[Ranges]) -> None:
        given_slices = accepted(*slices)
        whole = [
            set(some)
            for n in range(len(slices) + 1)
            for some in combinations(range(len(slices)), n)
            if is_contiguous(union([given_slices[k] for k in some]))
        ]
        settled = settle(given_slices, ledger().section)
        assert {s.offset for s in settled.ready} == set().union(*whole)

    @STEADY
    @given(jigsaws())
    def test_every_slice_is_ready_or_waits(self, slices: list[Ranges]) -> None:
        settled = settle(accepted(*slices), ledger().section)
        offsets = [s.offset for s in settled.ready] + [s.offset for s, _ in settled.waiting]
        assert sorted(offsets) == list(range(len(slices)))

    @STEADY
    @given(jigsaws())
    def test_what_keeps_a_slice_waiting_is_an_offset_that_is_not_ready(self, slices: list[Ranges]) -> None:
        given_slices, section = accepted(*slices), ledger().section
        have = union(list(settle(given_slices, section).ready))
        for n, (p, behind) in holes([s.coverage for s in given_slices], Coverage(), section.starts).items():
            assert have[p].reach(0) <= behind
            assert any(r.end > behind for r in given_slices[n].coverage[p])

    @STEADY
    @given(jigsaws())
    def test_every_head_of_the_steps_leaves_no_hole(self, slices: list[Ranges]) -> None:
        steps = settle(accepted(*slices), ledger().section).steps
        for n in range(len(steps) + 1):
            assert is_contiguous(union([s for step in steps[:n] for s in step]))

    @STEADY
    @given(jigsaws(), st.integers(1, 4))
    def test_every_head_of_the_chunks_leaves_no_hole_and_none_is_lost(self, slices: list[Ranges], most: int) -> None:
        settled = settle(accepted(*slices), ledger().section)
        cut = chunks(settled, ORDERS, most)
        assert [s for c in cut for s in c] == list(settled.ready)
        assert all(cut)
        for n in range(len(cut) + 1):
            assert is_contiguous(union([s for c in cut[:n] for s in c]))


class TestChunks:
    def test_a_chunk_holds_at_most_so_many_files(self) -> None:
        settled = settle(accepted(*([(P0, k, k + 1)] for k in range(5))), ledger().section)
        assert [len(c) for c in chunks(settled, ORDERS, 2)] == [2, 2, 1]

    def test_slices_without_files_for_the_table_fill_no_chunk(self) -> None:
        settled = settle(accepted(*([(P0, k, k + 1)] for k in range(5)), files={ORDERS: 1}), ledger().section)
        assert [len(c) for c in chunks(settled, DEAD, 1)] == [5]

    def test_slices_that_need_each_other_stay_in_one_chunk(self) -> None:
        slices = accepted([(P0, 0, 5), (P1, 5, 9)], [(P1, 0, 5), (P0, 5, 9)])
        assert [len(c) for c in chunks(settle(slices, ledger().section), ORDERS, 1)] == [2]

    def test_nothing_ready_makes_no_chunk(self) -> None:
        assert chunks(settle([], ledger().section), ORDERS, 10) == []


class TestPassedEnds:
    def test_the_ledger_ends_where_nothing_is_staged(self) -> None:
        assert passed_ends(ledger(covered=[(P0, 0, 5)]), [], [P0, P1]) == {P0: 5, P1: 0}

    def test_staged_slices_without_rows_for_the_table_count_as_passed(self) -> None:
        empty = accepted([(P0, 5, 9)], files={ORDERS: 1})
        assert passed_ends(ledger(DEAD, covered=[(P0, 0, 5)]), empty, [P0]) == {P0: 9}

    def test_staged_slices_with_rows_do_not_count(self) -> None:
        full = accepted([(P0, 5, 9)])
        assert passed_ends(ledger(DEAD, covered=[(P0, 0, 5)]), full, [P0]) == {P0: 5}

    def test_an_empty_slice_behind_a_hole_does_not_count(self) -> None:
        empty = accepted([(P0, 6, 9)], files={ORDERS: 1})
        assert passed_ends(ledger(DEAD, covered=[(P0, 0, 5)]), empty, [P0]) == {P0: 5}


class TestPassedByAll:
    def covered_by(self, *ledgers: TableLedger, files: dict[str, int]) -> dict[str, Coverage]:
        story = Story()
        story.opens("a", [[(P0, 0, 10)], [(P0, 10, 20)]], tables=(ORDERS, DEAD))
        story.reports("a", [(P0, 0, 10)], files=files)
        story.reports("a", [(P0, 10, 20)], files=files)
        return passed_by_all(story.landing_state(*ledgers))

    def test_a_table_has_passed_what_the_other_one_has(self) -> None:
        data = ledger(covered=[(P0, 0, 10)])
        assert self.covered_by(data, ledger(DEAD), files={ORDERS: 1}) == {
            ORDERS: Coverage(),
            DEAD: coverage([(P0, 0, 10)]),
        }

    def test_what_both_have_passed_counts_for_both(self) -> None:
        whole = coverage([(P0, 0, 20)])
        assert self.covered_by(ledger(), ledger(DEAD), files={}) == {ORDERS: whole, DEAD: whole}

    def test_what_another_landing_has_in_the_other_table_is_not_lacked_there(self) -> None:
        data = ledger(others=[(P0, 0, 10)])
        assert self.covered_by(data, ledger(DEAD), files={ORDERS: 1})[DEAD] == coverage([(P0, 0, 10)])

    def test_staged_rows_are_not_passed(self) -> None:
        assert self.covered_by(ledger(), files={ORDERS: 1}) == {ORDERS: Coverage()}


class TestValidThrough:
    def story(self, *ends: dict[SourcePartition, int]) -> Story:
        story = Story()
        for n, e in enumerate(ends):
            story.opens(f"run {n}", ends=e, requested_at=NOON + timedelta(minutes=n))
        return story

    def through(self, story: Story, reached: dict[SourcePartition, int]) -> datetime | None:
        return valid_through(story.landing_state().cycles.values(), reached)

    def test_it_is_when_the_newest_reached_ends_were_requested(self) -> None:
        story = self.story({P0: 5}, {P0: 10}, {P0: 15})
        assert self.through(story, {P0: 12}) == NOON + timedelta(minutes=1)
        assert self.through(story, {P0: 15}) == NOON + timedelta(minutes=2)

    def test_a_clock_that_was_years_ahead_is_forgotten_with_the_next_cycle(self) -> None:
        story = self.story({P0: 5})
        story.opens("ahead", ends={P0: 10}, requested_at=NOON + timedelta(days=3650))
        assert self.through(story, {P0: 10}) == NOON + timedelta(days=3650)
        story.opens("right", ends={P0: 15}, requested_at=NOON + timedelta(minutes=2))
        assert self.through(story, {P0: 15}) == NOON + timedelta(minutes=2)

    def test_every_partition_must_have_been_reached(self) -> None:
        story = self.story({P0: 5, P1: 5})
        assert self.through(story, {P0: 9, P1: 4}) is None
        assert self.through(story, {P0: 9}) is None

    def test_a_cycle_that_could_not_request_ends_reports_nothing(self) -> None:
        assert self.through(self.story({}), {}) is None

    def test_an_empty_partition_is_reached_at_0(self) -> None:
        assert self.through(self.story({P0: 0}), {P0: 0}) == NOON

    def test_claims_report_nothing_about_it(self) -> None:
        story = self.story({P0: 5})
        story.opens("more", [[(P0, 5, 9)]], ends={P0: 9}, requested_at=NOON + timedelta(hours=1))
        assert self.through(story, {P0: 5}) == NOON
