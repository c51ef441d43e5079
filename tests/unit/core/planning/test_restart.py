# SPDX-License-Identifier: Apache-2.0
"""Where a table goes on after a user's decision: only what is named moves, and nothing that is landed is read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.planning.restart import Restart, StatedOffsets, restart
from tests.support.story import P0, P1, P2, STEADY, Ranges, coverage, ledger

OTHER = SourcePartition("returns", 0, "topic-2")
ANEW = SourcePartition("orders", 0, "topic-9")
LOG = {P0: Watermark(start=0, stable=100, high=100), P1: Watermark(start=30, stable=90, high=95)}


def at(ends: Mapping[SourcePartition, int], starts: Mapping[SourcePartition, int] | None = None) -> LedgerSection:
    """A ledger that has everything below these offsets."""
    begin = {P0: 0, P1: 0} if starts is None else starts
    return ledger(covered=[(p, begin.get(p, 0), end) for p, end in ends.items()], starts=begin).section


def restarted(
    offsets: Mapping[SourcePartition, int],
    section: LedgerSection | None,
    *,
    marks: Mapping[SourcePartition, Watermark] = LOG,
    passed: Ranges = (),
    firsts: Mapping[SourcePartition, int] | None = None,
    back: bool = True,
) -> Restart:
    stated = StatedOffsets(offsets=offsets, back=back)
    return restart(stated, marks, section, passed=coverage(passed), firsts=firsts or {})


def ends(r: Restart) -> dict[SourcePartition, int]:
    return {p: r.covered[p].reach(r.starts.get(p, 0)) for p in {*r.starts, *r.covered.parts}}


def test_what_is_named_goes_forward_and_the_others_stay() -> None:
    r = restarted({P0: 70}, at({P0: 50, P1: 40}))
    assert ends(r) == {P0: 70, P1: 40}
    assert r.given_up == coverage([(P0, 50, 70)])
    assert not r.back


def test_it_never_goes_back_over_what_is_landed() -> None:
    r = restarted({P0: 10, P1: 35}, at({P0: 50, P1: 40}))
    assert ends(r) == {P0: 50, P1: 40}
    assert not r.given_up


def test_what_was_passed_without_a_row_is_not_read_again() -> None:
    r = restarted({}, at({P0: 10}), passed=[(P0, 10, 50), (P0, 60, 70), (P1, 5, 9)])
    assert ends(r) == {P0: 50, P1: 0}
    assert r.covered == coverage([(P0, 0, 50)])
    assert not r.given_up


def test_what_is_landed_behind_a_hole_stays_landed() -> None:
    hole = ledger(covered=[(P0, 0, 10), (P0, 20, 30)], starts={P0: 0, P1: 0}).section
    assert restarted({P1: 30}, hole).covered[P0] == RangeSet.of((0, 10), (20, 30))
    over = restarted({P0: 15}, hole)
    assert over.covered[P0] == RangeSet.of((0, 15), (20, 30))
    assert over.given_up == coverage([(P0, 10, 15)])
    past = restarted({P0: 40}, hole)
    assert past.covered[P0] == RangeSet.of((0, 40))
    assert past.given_up == coverage([(P0, 10, 20), (P0, 30, 40)])


def test_what_is_landed_behind_a_hole_is_read_again_from_the_stated_offset_on() -> None:
    hole = ledger(covered=[(P0, 0, 10), (P0, 20, 30), (P1, 30, 40), (P1, 50, 60)], starts={P0: 0, P1: 30}).section

    def again(stated: int, p: SourcePartition = P0) -> tuple[Coverage, Coverage, RangeSet]:
        reset = StatedOffsets(offsets={p: stated}, again=True)
        found = restart(reset, LOG, hole, passed=coverage([]), firsts={})
        return found.again, found.given_up, found.covered[p]

    assert again(25) == (coverage([(P0, 25, 30)]), coverage([(P0, 10, 20)]), RangeSet.of((0, 25)))
    assert again(15) == (coverage([(P0, 20, 30)]), coverage([(P0, 10, 15)]), RangeSet.of((0, 15)))
    assert again(5) == (coverage([(P0, 5, 10), (P0, 20, 30)]), Coverage(), RangeSet.of((0, 5)))
    assert again(30)[2] == RangeSet.of((0, 30))
    # The source has removed what is before 30.
    assert again(0, P1) == (coverage([(P1, 30, 40), (P1, 50, 60)]), Coverage(), RangeSet())


def test_a_partition_that_is_newer_than_its_topics_initial_entry_keeps_what_it_has() -> None:
    section = at({P0: 50, P1: 40}, starts={P0: 0})
    assert ends(restarted({}, section)) == {P0: 50, P1: 40}
    assert ends(restarted({P1: 60}, section)) == {P0: 50, P1: 60}
    assert P1 not in restarted({P1: 60}, section).starts
    assert ends(restarted({P1: 60}, at({P0: 50}, starts={P0: 0}))) == {P0: 50, P1: 60}


def test_what_the_source_has_lost_is_no_concern_of_a_decision_on_another_partition() -> None:
    r = restarted({P0: 60}, at({P0: 50, P1: 10}))
    assert ends(r) == {P0: 60, P1: 10}
    assert not r.removed


def test_an_offset_that_the_source_has_removed_is_handed_back() -> None:
    assert restarted({P1: 20}, at({P1: 10})).removed == coverage([(P1, 20, 30)])
    assert restarted({P1: 20}, None, firsts={P0: 0}).removed == coverage([(P1, 20, 30)])
    assert not restarted({P1: 20}, at({P1: 40})).removed
    assert not restarted({P1: 30}, at({P1: 10})).removed


def test_a_log_shorter_than_the_ledger_is_missing_back_over_only_where_that_was_reported() -> None:
    section = at({P0: 120, P1: 110}, starts={P0: 105, P1: 0})
    r = restarted({P0: 80}, section)
    assert ends(r) == {P0: 80, P1: 110}
    assert r.starts[P0] == 80
    assert r.back == coverage([(P0, 80, 120)])
    earliest = restarted({P0: 0, P1: 30}, section, back=False)
    assert ends(earliest) == {P0: 120, P1: 110}
    assert not earliest.back


def test_without_a_ledger_what_is_not_named_begins_where_it_would_or_is_untold() -> None:
    assert ends(restarted({P0: 7}, None, firsts={P0: 1, P1: 33})) == {P0: 7, P1: 33}
    r = restarted({P0: 7}, None, firsts={P0: 1})
    assert r.unstated == (P1,)
    assert not restarted({P0: 7, P1: 40}, None).unstated


def test_a_topic_made_anew_is_another_one_and_what_was_landed_of_the_old_one_is_no_part_of_it() -> None:
    marks = {ANEW: Watermark(start=3, stable=9, high=9)}
    r = restarted({}, at({P0: 50, P1: 40}), marks=marks, firsts={ANEW: 3})
    assert ends(r) == {ANEW: 3}
    assert restarted({ANEW: 5}, at({P0: 50}), marks=marks).starts == {ANEW: 5}


def test_what_is_landed_of_a_topic_that_is_not_read_now_is_kept() -> None:
    section = at({P0: 50, P1: 40, OTHER: 20}, starts={P0: 0, P1: 0, OTHER: 5})
    r = restarted({P0: 60}, section)
    assert ends(r) == {P0: 60, P1: 40, OTHER: 20}
    assert r.starts[OTHER] == 5


@STEADY
@given(
    named=st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 40)),
    have=st.dictionaries(st.sampled_from([P0, P1, P2]), st.integers(0, 40)),
    passed=st.dictionaries(st.sampled_from([P0, P1, P2]), st.tuples(st.integers(0, 40), st.integers(0, 40))),
    back=st.booleans(),
)
def test_the_same_decision_again_changes_nothing_and_nothing_landed_is_forgotten(
    named: dict[SourcePartition, int],
    have: dict[SourcePartition, int],
    passed: dict[SourcePartition, tuple[int, int]],
    back: bool,
) -> None:
    marks = {p: Watermark(start=5, stable=40, high=40) for p in (P0, P1, P2)}
    section = at(have, starts={P0: 0, P1: 0})
    without = [(p, min(r), max(r)) for p, r in passed.items()]
    once = restarted(named, section, marks=marks, passed=without, back=back)
    assert not section.covered - once.covered
    assert not once.back
    assert set(once.given_up.parts) <= set(named)
    again = restarted(named, replace(section, starts=once.starts, covered=once.covered), marks=marks, back=back)
    assert (again.starts, again.covered) == (once.starts, once.covered)
    assert not again.given_up


def test_what_others_had_landed_before_the_first_offset_stays_known_where_a_log_lost_its_end() -> None:
    section = ledger(covered=[(P0, 0, 50), (P1, 0, 50)], starts={P0: 10, P1: 0}).section
    stated = StatedOffsets(offsets={P0: 40})
    found = restart(stated, LOG, section, passed=coverage([]), firsts={}, diverged={P0: 40})
    assert found.covered == coverage([(P0, 0, 40), (P1, 0, 50)])
    assert found.back == coverage([(P0, 40, 50)])


def test_a_log_that_differs_before_the_first_offset_is_left_to_the_stream_from_there() -> None:
    section = ledger(covered=[(P0, 0, 8), (P0, 10, 50), (P1, 0, 50)], starts={P0: 10, P1: 0}).section
    stated = StatedOffsets(offsets={P0: 100}, fill=True)
    found = restart(stated, LOG, section, passed=coverage([]), firsts={}, diverged={P0: 6})
    assert found.covered == coverage([(P0, 0, 6), (P1, 0, 50)])
    assert found.filled == coverage([(P0, 6, 100)])


def test_what_a_log_has_in_place_of_lost_records_before_the_stated_offset_is_given_up_by_name() -> None:
    def given_up(stated: int) -> Coverage:
        section, reset = at({P0: 120, P1: 110}), StatedOffsets(offsets={P0: stated}, back=True)
        return restart(reset, LOG, section, passed=coverage([]), firsts={}, diverged={P0: 70}).given_up

    assert given_up(80) == coverage([(P0, 70, 80)])
    assert not given_up(60)
