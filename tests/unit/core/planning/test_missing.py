# SPDX-License-Identifier: Apache-2.0
"""Planning: what is missing, how much of it a window takes, and how it is cut."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import ClassVar
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.commands import UNBLOCK
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.core.model import LIVE, Budget, Slice
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import (
    SLICE_BYTES,
    Missing,
    RangesByTables,
    Watermark,
    WindowLimits,
    choose,
    explain,
    find_missing,
    mean_size,
    needs_size_check,
)
from airflow_provider_lakecommit.core.planning.slicing import cut, window_of
from airflow_provider_lakecommit.core.state import LandingState, TableLedger
from airflow_provider_lakecommit.exceptions import SourceError
from tests.support.story import DEAD, ORDERS, P0, P1, P2, STEADY, VOID_EPOCH, Ranges, Story, coverage, ledger, spans

A = [(P0, 0, 10)]
NEVER = Budget(max_records=5, max_ratio=1.0)


def marks(**ends: int) -> dict[SourcePartition, Watermark]:
    """``marks(p0=10)``: partition 0 holds offsets 0 to 9, all of them stable."""
    at = {"p0": P0, "p1": P1, "p2": P2}
    return {at[name]: Watermark(start=0, stable=end, high=end) for name, end in ends.items()}


def missing_of(
    story: Story, *ledgers: TableLedger, now: Mapping[SourcePartition, Watermark], claims: Ranges = ()
) -> Missing:
    """Partitions that ``now`` does not name are empty."""
    return find_missing(story.landing_state(*ledgers), {**marks(p0=0, p1=0, p2=0), **now}, coverage(claims))


def a_missing(**by_tables: Ranges) -> Missing:
    names = {"both": (ORDERS, DEAD), "orders": (ORDERS,), "dead": (DEAD,)}
    return Missing(ranges={names[k]: coverage(r) for k, r in by_tables.items()})


class TestFindMissing:
    def test_all_between_the_ledger_and_the_last_stable_offset(self) -> None:
        found = missing_of(Story(), ledger(covered=[(P0, 0, 4)]), now=marks(p0=10, p1=3))
        assert found.ranges == {(ORDERS,): coverage([(P0, 4, 10), (P1, 0, 3)])}
        assert len(found) == 9

    def test_nothing_when_the_ledger_is_at_the_end(self) -> None:
        assert not missing_of(Story(), ledger(covered=A), now=marks(p0=10)).ranges

    def test_a_stream_begins_at_its_start(self) -> None:
        found = missing_of(Story(), ledger(starts={P0: 7}), now=marks(p0=10))
        assert found.ranges == {(ORDERS,): coverage([(P0, 7, 10)])}

    def test_a_partition_that_came_later_begins_at_0(self) -> None:
        found = missing_of(Story(), ledger(starts={P0: 10}), now=marks(p0=10, p1=2))
        assert found.ranges == {(ORDERS,): coverage([(P1, 0, 2)])}

    def test_what_is_accepted_is_not_missing(self) -> None:
        story = Story()
        story.opens("a", [[(P0, 2, 5)]])
        story.reports("a", [(P0, 2, 5)])
        assert missing_of(story, ledger(), now=marks(p0=10)).ranges == {(ORDERS,): coverage([(P0, 0, 2), (P0, 5, 10)])}

    def test_what_is_claimed_is_not_missing(self) -> None:
        found = missing_of(Story(), ledger(), now=marks(p0=10), claims=[(P0, 0, 9)])
        assert found.ranges == {(ORDERS,): coverage([(P0, 9, 10)])}

    @pytest.mark.parametrize("have", [ledger(covered=[(P0, 4, 6)]), ledger(others=[(P0, 4, 6)])])
    def test_what_the_table_has_behind_a_hole_is_not_missing(self, have: TableLedger) -> None:
        assert missing_of(Story(), have, now=marks(p0=10)).ranges == {(ORDERS,): coverage([(P0, 0, 4), (P0, 6, 10)])}

    def test_ranges_are_distinguished_by_the_tables_that_lack_them(self) -> None:
        found = missing_of(Story(), ledger(ORDERS, covered=[(P0, 0, 6)]), ledger(DEAD), now=marks(p0=10))
        assert found.ranges == {(DEAD,): coverage([(P0, 0, 6)]), (ORDERS, DEAD): coverage([(P0, 6, 10)])}

    def test_nothing_is_missing_beyond_a_blocked_range_of_its_partition(self) -> None:
        story, blocked = Story(), [(P0, 4, 6)]
        story.opens("a", [blocked])
        story.reports("a", blocked, blocked="too many")
        found = missing_of(story, ledger(), now=marks(p0=10, p1=3))
        assert found.ranges == {(ORDERS,): coverage([(P0, 0, 4), (P1, 0, 3)])}
        assert found.notes == {P0: f"blocked at 4: decide with `{UNBLOCK}` (or --raise N, --skip)"}

    def test_an_open_transaction_is_named_and_not_read(self) -> None:
        found = missing_of(Story(), ledger(), now={P0: Watermark(start=0, stable=4, high=9)})
        assert found.ranges == {(ORDERS,): coverage([(P0, 0, 4)])}
        assert "an open transaction holds the last stable offset at 4" in found.notes[P0]

    def test_a_ledger_between_stable_and_high_is_no_error(self) -> None:
        assert not missing_of(Story(), ledger(covered=A), now={P0: Watermark(start=0, stable=4, high=10)}).ranges

    def test_offsets_that_retention_removed_are_named_with_the_table_and_the_command(self) -> None:
        with pytest.raises(SourceError, match=r"orders\[0\] \[4, 6\).*shop\.orders;.*--from.*LC1303"):
            missing_of(Story(), ledger(covered=[(P0, 0, 4)]), now={P0: Watermark(start=6, stable=9, high=9)})

    def test_retention_that_removed_only_what_has_landed_is_no_error(self) -> None:
        found = missing_of(Story(), ledger(covered=[(P0, 0, 6)]), now={P0: Watermark(start=6, stable=9, high=9)})
        assert found.ranges == {(ORDERS,): coverage([(P0, 6, 9)])}

    def test_retention_that_removed_what_is_staged_is_no_error(self) -> None:
        story = Story()
        story.opens("a", [A])
        story.reports("a", A)
        found = missing_of(story, ledger(), now={P0: Watermark(start=8, stable=12, high=12)})
        assert found.ranges == {(ORDERS,): coverage([(P0, 10, 12)])}

    def test_a_partition_that_ends_before_the_ledger_is_an_error(self) -> None:
        with pytest.raises(SourceError, match=r"orders\[0\].*10,.*7.*LC1302"):
            missing_of(Story(), ledger(covered=A), now=marks(p0=7))

    def test_a_topic_made_anew_is_an_error(self) -> None:
        anew = SourcePartition("orders", 0, "topic-2")
        with pytest.raises(SourceError, match="LC1304"):
            find_missing(Story().landing_state(), {anew: Watermark(start=0, stable=1, high=1)}, Coverage())

    def test_fewer_partitions_than_the_ledger_knows_are_an_error(self) -> None:
        with pytest.raises(SourceError, match="LC1305"):
            find_missing(Story().landing_state(), marks(p0=10, p2=10), Coverage())


RANGES = st.tuples(st.integers(0, 30), st.integers(0, 30)).map(lambda ab: OffsetRange(min(ab), max(ab)))
SETS = st.lists(RANGES, max_size=4).map(lambda ranges: RangeSet.of(*ranges))
COVERAGES = st.dictionaries(st.sampled_from([P0, P1, P2]), SETS, max_size=3).map(Coverage)


@st.composite
def missings(draw: st.DrawFn) -> Missing:
    """Disjoint coverages for three sets of tables, as :func:`find_missing` gives them."""
    both, orders, dead = draw(COVERAGES), draw(COVERAGES), draw(COVERAGES)
    return Missing(ranges={(ORDERS, DEAD): both, (ORDERS,): orders - both, (DEAD,): dead - both - orders})


ENDS = marks(p0=30, p1=30, p2=30)


def whole(ranges: Mapping[tuple[str, ...], Coverage]) -> Coverage:
    return Coverage.of(item for c in ranges.values() for item in c.items())


class TestRemovedFromTheSource:
    """Offsets that the source does not have any more, and some table does not have yet."""

    NOW: ClassVar = {P0: Watermark(start=6, stable=12, high=12)}

    def test_what_the_data_table_lacks_stops_the_landing(self) -> None:
        with pytest.raises(SourceError, match=r"orders\[0\] \[4, 6\).*LC1303"):
            missing_of(Story(), ledger(covered=[(P0, 0, 4)]), ledger(DEAD, covered=A), now=self.NOW)

    def test_what_only_a_table_next_to_it_lacks_waits_there_alone(self) -> None:
        found = missing_of(Story(), ledger(covered=A), ledger(DEAD, covered=[(P0, 0, 4)]), now=self.NOW)
        assert found.ranges == {(DEAD,): coverage([(P0, 6, 10)]), (ORDERS, DEAD): coverage([(P0, 10, 12)])}
        assert found.removed == {DEAD: coverage([(P0, 4, 6)])}

    def test_what_both_lack_stops_the_landing(self) -> None:
        both = (ledger(covered=[(P0, 0, 4)]), ledger(DEAD, covered=[(P0, 0, 4)]))
        with pytest.raises(SourceError, match=r"\[4, 6\).*\[4, 6\).*shop.orders_dead.*LC1303"):
            missing_of(Story(), *both, now=self.NOW)


class TestChoose:
    def test_without_limits_everything_is_taken(self) -> None:
        chosen = choose(a_missing(orders=A), WindowLimits())
        assert chosen == {(ORDERS,): coverage(A)}

    def test_a_limit_is_shared_evenly_and_the_rest_goes_to_who_needs_it(self) -> None:
        ranges: Ranges = [(P0, 0, 2), (P1, 0, 100), (P2, 0, 100)]
        chosen = choose(a_missing(orders=ranges), WindowLimits(max_records=20))
        assert chosen == {(ORDERS,): coverage([(P0, 0, 2), (P1, 0, 9), (P2, 0, 9)])}

    def test_a_limit_takes_the_oldest_whatever_table_lacks_it(self) -> None:
        found = a_missing(both=[(P0, 10, 20)], dead=[(P0, 0, 5)])
        chosen = choose(found, WindowLimits(max_records=5))
        assert whole(chosen) == coverage([(P0, 0, 5)])

    def test_a_limit_in_bytes_counts_with_what_a_record_took_so_far(self) -> None:
        limits = WindowLimits(max_bytes=1000, record_bytes=100)
        assert len(whole(choose(a_missing(orders=[(P0, 0, 50)]), limits))) == 10

    @pytest.mark.parametrize(
        ("limits", "records"),
        [
            (WindowLimits(), None),
            (WindowLimits(max_records=7), 7),
            (WindowLimits(max_bytes=10_240), 10),
            (WindowLimits(max_bytes=10), 1),
            (WindowLimits(max_records=7, max_bytes=5 * 1024), 5),
        ],
    )
    def test_the_tighter_limit_counts(self, limits: WindowLimits, records: int | None) -> None:
        assert limits.window_records == records

    @STEADY
    @given(missings(), st.none() | st.integers(1, 90))
    def test_a_window_is_as_full_as_its_limit_allows(self, found: Missing, limit: int | None) -> None:
        chosen = choose(found, WindowLimits(max_records=limit))
        need = len(found)
        assert len(whole(chosen)) == (need if limit is None else min(need, limit))

    @STEADY
    @given(missings(), st.integers(1, 90))
    def test_what_is_left_is_newer_than_what_is_taken(self, found: Missing, limit: int) -> None:
        taken = whole(choose(found, WindowLimits(max_records=limit)))
        left = whole(found.ranges) - taken
        assert all(a.end <= b.start for p in left.parts for a in taken[p] for b in left[p])

    @STEADY
    @given(missings(), st.none() | st.integers(1, 90))
    def test_a_range_is_taken_for_the_tables_that_lack_it(self, found: Missing, limit: int | None) -> None:
        for tables, c in choose(found, WindowLimits(max_records=limit)).items():
            assert not c - found.ranges[tables]

    @STEADY
    @given(missings(), st.integers(3, 90))
    def test_a_limit_starves_no_partition(self, found: Missing, limit: int) -> None:
        taken = whole(choose(found, WindowLimits(max_records=limit)))
        assert set(taken.parts) == set(whole(found.ranges).parts)

    def test_explain_reports_why_each_end_was_chosen_and_what_is_left(self) -> None:
        found = Missing(
            ranges={(ORDERS,): coverage([(P0, 0, 90), (P1, 0, 5)])}, notes={P1: "an open transaction holds it"}
        )
        limits = WindowLimits(max_records=15)
        assert tuple(explain(choose(found, limits), found, marks(p0=90, p1=9, p2=4), limits)) == (
            "orders[0]: [0, 10) for shop.orders; the window's limit of 15 records leaves 80",
            "orders[1]: [0, 5) for shop.orders; an open transaction holds it",
            "orders[2]: nothing; nothing new",
        )

    def test_explain_names_the_last_stable_offset(self) -> None:
        found = a_missing(orders=A)
        lines = tuple(explain(choose(found, WindowLimits()), found, marks(p0=10), WindowLimits()))
        assert lines == ("orders[0]: [0, 10) for shop.orders; up to the last stable offset 10",)


def cut_of(
    chosen: RangesByTables, limits: WindowLimits, landing_state: LandingState | None = None
) -> tuple[Slice, ...]:
    state = landing_state or Story().landing_state()
    return cut(chosen, state, limits, window_of(chosen, state, landing="orders", lane=LIVE, spec_version="s1"))


def chosen_of(ranges: Ranges) -> RangesByTables:
    return {(ORDERS,): coverage(ranges)}


def over_budget(ranges: Ranges, **more: Directives) -> LandingState:
    story = Story()
    story.opens("a", [ranges])
    story.reports("a", ranges, blocked="too many")
    story.opens("hand", **more)
    return story.landing_state()


LIMITS = st.builds(WindowLimits, groups=st.integers(1, 4), slice_records=st.integers(1, 12))


class TestCut:
    def test_full_slices_are_cut_by_records_and_the_rest_follows(self) -> None:
        slices = cut_of(chosen_of([(P0, 0, 25)]), WindowLimits(slice_records=10))
        assert [s.spans for s in slices] == [spans([(P0, a, b)]) for a, b in [(0, 10), (10, 20), (20, 25)]]

    def test_small_rests_of_a_group_share_a_slice(self) -> None:
        slices = cut_of(chosen_of([(P0, 0, 3), (P1, 0, 3), (P2, 0, 3)]), WindowLimits(slice_records=10))
        assert [s.spans for s in slices] == [spans([(P0, 0, 3), (P1, 0, 3), (P2, 0, 3)])]

    def test_rests_of_two_groups_share_none(self) -> None:
        slices = cut_of(chosen_of([(P0, 0, 3), (P1, 0, 3), (P2, 0, 3)]), WindowLimits(groups=2, slice_records=10))
        assert [(s.group, s.spans) for s in slices] == [(0, spans([(P0, 0, 3), (P2, 0, 3)])), (1, spans([(P1, 0, 3)]))]

    def test_two_ranges_of_one_partition_share_none(self) -> None:
        slices = cut_of(chosen_of([(P0, 0, 3), (P0, 50, 53)]), WindowLimits(slice_records=10))
        assert [s.spans for s in slices] == [spans([(P0, 0, 3)]), spans([(P0, 50, 53)])]

    def test_the_older_range_of_a_partition_comes_first_also_when_it_is_a_small_rest(self) -> None:
        slices = cut_of(chosen_of([(P0, 1000, 1003), (P0, 2000, 2040)]), WindowLimits(slice_records=10))
        assert slices[0].spans == spans([(P0, 1000, 1003)])

    def test_partitions_take_turns_so_that_a_cut_off_tail_is_the_newest_of_each(self) -> None:
        slices = cut_of(chosen_of([(P0, 0, 20), (P1, 500, 520)]), WindowLimits(slice_records=10))
        assert [s.spans[0].range.start for s in slices] == [0, 500, 10, 510]

    def test_estimated_bytes_make_slices_smaller(self) -> None:
        limits = WindowLimits(slice_records=1000, record_bytes=SLICE_BYTES // 10)
        assert [len(s) for s in cut_of(chosen_of([(P0, 0, 20)]), limits)] == [10, 10]

    def test_a_record_larger_than_a_slice_makes_a_slice_of_one(self) -> None:
        assert WindowLimits(record_bytes=SLICE_BYTES * 2).per_slice(P0) == 1

    def test_partitions_of_other_sizes_are_cut_by_their_own(self) -> None:
        limits = WindowLimits(slice_records=8, record_bytes=1, sizes={P0: SLICE_BYTES // 2, P1: SLICE_BYTES // 4})
        slices = cut_of(chosen_of([(P0, 0, 3), (P1, 0, 6), (P2, 0, 9)]), limits)
        assert sorted(s.spans for s in slices) == sorted(
            # Two rests of half a slice each go together, one of an eighth does not fit in any more.
            spans(s)
            for s in ([(P0, 0, 2)], [(P1, 0, 4)], [(P2, 0, 8)], [(P0, 2, 3), (P1, 4, 6)], [(P2, 8, 9)])
        )

    def test_a_partition_that_seems_to_have_small_records_is_cut_as_the_others(self) -> None:
        assert WindowLimits(record_bytes=SLICE_BYTES // 4, sizes={P0: 1}).per_slice(P0) == 4

    @pytest.mark.parametrize(
        ("records", "limits", "worth"),
        [
            (256, WindowLimits(), False),
            (257, WindowLimits(), True),
            (10_000, WindowLimits(record_bytes=1 << 20), False),
            (49_999, WindowLimits(record_bytes=1000), False),
            (50_000, WindowLimits(record_bytes=1000), True),
            (10_000, WindowLimits(slice_records=100), False),
        ],
    )
    def test_sizes_matter_only_where_a_slice_could_be_too_big(
        self, records: int, limits: WindowLimits, worth: bool
    ) -> None:
        assert needs_size_check(a_missing(orders=[(P0, 0, records)]).coverage, limits) is worth

    def test_a_mean_size_is_that_of_all_records_whose_size_is_known(self) -> None:
        found = a_missing(orders=[(P0, 0, 3), (P1, 0, 1), (P2, 0, 1000)]).coverage
        assert mean_size(found, {P0: 10, P1: 70}) == 25
        assert mean_size(found, {}) == 0

    def test_what_failed_is_tried_alone_and_shares_no_slice_with_what_follows_or_with_others(self) -> None:
        story = Story()
        story.opens("a", [[(P0, 4, 6), (P1, 0, 3)]])
        story.reports("a", [(P0, 4, 6)], failed="boom")
        slices = cut_of(
            chosen_of([(P0, 4, 6), (P0, 8, 9), (P1, 0, 3), (P2, 0, 3)]),
            WindowLimits(slice_records=10),
            story.landing_state(),
        )
        assert {s.spans for s in slices} == {spans([(P0, 4, 6)]), spans([(P0, 8, 9)]), spans([(P1, 0, 3), (P2, 0, 3)])}
        (whole,) = cut_of(chosen_of([(P1, 0, 9)]), WindowLimits(slice_records=10), story.landing_state())
        assert whole.spans == spans([(P1, 0, 9)])

    def test_what_was_over_budget_together_is_tried_alone(self) -> None:
        both: Ranges = [(P0, 0, 3), (P1, 0, 3)]
        slices = cut_of(chosen_of([*both, (P2, 0, 3)]), WindowLimits(slice_records=10), over_budget(both))
        assert sorted(s.spans for s in slices) == [spans([(p, 0, 3)]) for p in (P0, P1, P2)]

    def test_a_raised_budget_goes_with_the_slices_it_is_for(self) -> None:
        raised = Directives(raised=((coverage([(P0, 0, 3)]), NEVER),))
        landing_state = over_budget([(P0, 0, 3)], log=raised)
        slices = cut_of(chosen_of([(P0, 0, 6), (P1, 0, 3)]), WindowLimits(slice_records=10), landing_state)
        assert {s.spans: s.budget for s in slices} == {
            spans([(P0, 0, 3)]): NEVER,
            spans([(P0, 3, 6), (P1, 0, 3)]): None,
        }

    def test_of_two_raised_budgets_the_newer_one_counts(self) -> None:
        first, second = ((coverage(A), Budget(max_records=n, max_ratio=1.0)) for n in (5, 50))
        landing_state = over_budget(A, log=Directives(raised=(first, second)))
        (of,) = cut_of(chosen_of(A), WindowLimits(slice_records=10), landing_state)
        assert of.budget == second[1]

    @pytest.mark.parametrize("suspect", [(P0, 8, 9), (P0, 1, 2)], ids=["beside it", "in it"])
    def test_no_range_next_to_a_raised_one_is_evaluated_by_its_budget(
        self, suspect: tuple[SourcePartition, int, int]
    ) -> None:
        """Nobody has given its records up. Both are in a partition whose ranges are all tried alone."""
        story = Story()
        story.opens("a", [[suspect]])
        story.reports("a", [suspect], failed="boom")
        raised = (coverage([(P0, 0, 3)]), Budget(max_records=9, max_ratio=1.0))
        story.opens("hand", log=Directives(raised=(raised,)))
        if suspect[1] == 1:
            story.opens("b", [[suspect]])
            story.reports("b", [suspect], failed="boom")
        slices = cut_of(chosen_of([(P0, 0, 9)]), WindowLimits(slice_records=10), story.landing_state())
        within = {s.budget is not None for s in slices if not s.coverage - coverage([(P0, 0, 3)])}
        assert within == {True}
        assert {s.budget for s in slices if s.coverage - coverage([(P0, 0, 3)])} == {None}
        assert {s.spans for s in slices} >= {spans([suspect])}

    def test_two_raised_ranges_that_touch_keep_their_budgets(self) -> None:
        first, second = ((coverage([(P0, at, at + 3)]), Budget(max_records=at + 1, max_ratio=1.0)) for at in (0, 3))
        landing_state = over_budget([(P0, 0, 6)], log=Directives(raised=(first, second)))
        slices = cut_of(chosen_of([(P0, 0, 6)]), WindowLimits(slice_records=10), landing_state)
        assert {s.spans: s.budget for s in slices} == {spans([(P0, 0, 3)]): first[1], spans([(P0, 3, 6)]): second[1]}

    def test_the_epoch_is_part_of_every_identity(self) -> None:
        chosen, now = chosen_of(A), Story().landing_state(ledger(epoch=VOID_EPOCH))
        (before,), (after,) = cut_of(chosen, WindowLimits()), cut_of(chosen, WindowLimits(), now)
        assert before.slice_id != after.slice_id

    @STEADY
    @given(missings(), LIMITS)
    def test_slices_are_disjoint_and_together_what_was_chosen(self, found: Missing, limits: WindowLimits) -> None:
        slices = cut_of(choose(found, limits), limits)
        for tables, c in found.ranges.items():
            mine = [s for s in slices if s.tables == tables]
            assert sum(len(s) for s in mine) == len(c)
            assert Coverage.of(item for s in mine for item in s.coverage.items()) == c

    @STEADY
    @given(missings(), LIMITS)
    def test_no_slice_is_larger_than_requested_or_of_two_groups(self, found: Missing, limits: WindowLimits) -> None:
        for s in cut_of(choose(found, limits), limits):
            assert 0 < len(s) <= limits.slice_records
            assert {span.partition.partition % limits.groups for span in s.spans} == {s.group}

    @STEADY
    @given(missings(), LIMITS)
    def test_no_slice_comes_before_an_older_one_of_its_partition(self, found: Missing, limits: WindowLimits) -> None:
        slices = cut_of(choose(found, limits), limits)
        for p in (P0, P1, P2):
            one = [s.spans[0].range.start for s in slices if len(s.spans) == 1 and s.spans[0].partition == p]
            assert all(a < b for a, b in pairwise(one))

    @STEADY
    @given(missings(), LIMITS)
    def test_the_same_inputs_cut_the_same_slices_under_different_ids(
        self, found: Missing, limits: WindowLimits
    ) -> None:
        slices = cut_of(choose(found, limits), limits)
        shuffled = Missing(ranges=dict(reversed(found.ranges.items())))
        assert cut_of(choose(shuffled, limits), limits) == slices
        assert len({s.slice_id for s in slices}) == len(slices)

    def test_the_window_is_named_by_what_is_read_and_under_which_epochs(self) -> None:
        def name(ranges: Ranges, landing_state: LandingState, spec: str = "s1", lane: str = LIVE) -> UUID:
            return window_of(chosen_of(ranges), landing_state, landing="orders", lane=lane, spec_version=spec)

        now = Story().landing_state()
        same, others = name(A, now), [name([(P0, 0, 9)], now), name(A, now, spec="s2"), name(A, now, lane="b")]
        assert same == name([(P0, 5, 10), (P0, 0, 5)], now)
        assert same not in [*others, name(A, Story().landing_state(ledger(epoch=VOID_EPOCH)))]
