# SPDX-License-Identifier: Apache-2.0
"""The ratio of rejected records, evaluated per window: which slices wait, which are blocked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.budgets import Over, blocking, left_out, over_by_window, over_ratio
from airflow_provider_lakecommit.core.log import Directives, SliceReported
from airflow_provider_lakecommit.core.model import Budget, Counts, Plan, SliceReport, SpanReport
from airflow_provider_lakecommit.core.state import TableLedger
from tests.support.story import DEAD, ORDERS, P0, P1, STEADY, Ranges, Story, coverage, ledger, spans

BUDGET = Budget(max_records=100_000, max_ratio=0.05)
A, B, C, D = ([(P0, at, at + 1000)] for at in (0, 1000, 2000, 3000))
WINDOW = [A, B, C, D]


class Rejecting(Story):
    """A story whose reports count rejected records."""

    def rejects(self, run: str, ranges: Ranges, *rejected: int, **of_report: object) -> UUID:
        attempt = self.reports(run, ranges, **{"rejects": {"not_json": sum(rejected)}, **of_report})
        entry = self.entries[-1]
        assert isinstance(entry, SliceReported)
        counted = tuple(
            SpanReport(span=s, counts=Counts(landed=len(s) - n, rejected=n))
            for s, n in zip(spans(ranges), rejected, strict=True)
        )
        self.entries[-1] = replace(entry, report=replace(entry.report, spans=counted))
        return attempt

    def windows(self, own: str, *ledgers: TableLedger) -> list[Over]:
        return over_by_window(self.landing_state(*ledgers), self.entries, BUDGET, self.id(own), self.now)

    def over(self, own: str = "a", *ledgers: TableLedger) -> list[str]:
        return [str(a.coverage) for window in self.windows(own, *ledgers) for a in window.slices]

    def blocks(self, own: str = "a") -> list[SliceReport]:
        """Record what a commit decides."""
        ids = (UUID(int=(2 << 64) + n) for n in count())
        sent = [
            (a.commit_id, blocked)
            for window in self.windows(own)
            for a in (window.slices if window.decided else ())
            for blocked in blocking(window, a, self.plan_of(a.commit_id), BUDGET.max_ratio, lambda: next(ids))
        ]
        for commit_id, report in sent:
            self._log(SliceReported, next(run for run in self.plans if self.id(run) == commit_id), report=report)
        return [report for _, report in sent]

    def plan_of(self, commit_id: UUID) -> Plan:
        return next(plan for run, plan in self.plans.items() if self.id(run) == commit_id)


def texts(*ranges: Ranges) -> list[str]:
    return [str(coverage(r)) for r in ranges]


@pytest.mark.parametrize(
    ("cut", "rejected"),
    [
        pytest.param([[(P0, 0, 4000)]], [(40,)], id="one slice"),
        pytest.param(WINDOW, [(0,), (40,), (0,), (0,)], id="four slices, the bad records in one"),
        pytest.param(WINDOW, [(10,)] * 4, id="four slices, the bad records in all"),
    ],
)
def test_one_percent_is_within_the_ratio_however_the_window_is_sliced(
    cut: Sequence[Ranges], rejected: Sequence[tuple[int]]
) -> None:
    story = Rejecting()
    story.opens("a", cut)
    for ranges, n in zip(cut, rejected, strict=True):
        story.rejects("a", ranges, *n)
    assert story.over() == []


def test_a_slice_over_the_ratio_lands_if_its_window_is_within_it() -> None:
    story = Rejecting()
    story.opens("a", WINDOW)
    story.rejects("a", A, 190)
    assert story.over() == texts(A), "so far, the window has 19 %"
    for ranges in (B, C, D):
        story.rejects("a", ranges, 0)
    assert story.over() == []


def test_of_a_window_over_the_ratio_only_the_worst_slices_are_left_out() -> None:
    story = Rejecting()
    story.opens("a", WINDOW)
    for ranges, n in zip(WINDOW, (49, 300, 60, 0), strict=True):
        story.rejects("a", ranges, n)
    assert story.over() == texts(B)


@pytest.mark.parametrize(("rejected", "over"), [(19, False), (20, True)])
def test_below_one_divided_by_the_ratio_no_window_is_over(rejected: int, over: bool) -> None:
    story = Rejecting()
    story.opens("a", [[(P0, 0, 20)]])
    story.rejects("a", [(P0, 0, 20)], rejected)
    assert bool(story.over()) is over


def test_copies_of_a_report_count_once() -> None:
    story = Rejecting()
    story.opens("a", WINDOW[:2])
    story.rejects("a", A, 60)
    story.rejects("a", A, 60)
    story.rejects("a", B, 40)
    assert story.over() == []


def test_complete_windows_are_evaluated_apart() -> None:
    story = Rejecting()
    story.opens("a", [A])
    story.opens("b", [B], slot=1)
    story.rejects("a", A, 60)
    story.rejects("b", B, 0)
    (window,) = story.windows("b")
    assert ([str(a.coverage) for a in window.slices], window.decided) == (texts(A), True)


def test_a_window_under_way_is_not_decided() -> None:
    story = Rejecting()
    story.opens("a", WINDOW[:2])
    story.opens("b", [C], slot=1)
    story.rejects("a", A, 60)
    story.rejects("b", C, 0)
    (window,) = story.windows("b")
    assert not window.decided
    story.rejects("a", B, 0)
    assert story.windows("b") == []


@pytest.mark.parametrize(("rest", "over"), [(40, False), (41, True)])
def test_what_a_dead_window_left_is_evaluated_with_the_window_of_its_rest(rest: int, over: bool) -> None:
    story = Rejecting()
    story.opens("dies", WINDOW[:2])
    story.rejects("dies", A, 60)
    story.opens("b", [B], log=Directives(released=(story.id("dies"),)), slot=1)
    (window,) = story.windows("b")
    assert not window.decided
    story.rejects("b", B, rest)
    assert [w.decided for w in story.windows("b")] == [True] * over


def test_what_a_dead_window_left_waits_until_its_rest_is_read_or_blocked() -> None:
    story = Rejecting()
    story.opens("dies", WINDOW[:2])
    story.rejects("dies", A, 60)
    story.opens("decides", log=Directives(released=(story.id("dies"),)), slot=1)
    assert [w.decided for w in story.windows("decides")] == [False]
    story.opens("c", [B], slot=2)
    story.rejects("c", B, 1000, blocked="too many")
    story.opens("d", slot=3)
    assert [w.decided for w in story.windows("d")] == [True]


def test_failed_and_blocked_slices_do_not_count() -> None:
    story = Rejecting()
    story.opens("a", WINDOW[:3])
    story.rejects("a", A, 40)
    story.reports("a", B, failed="corrupt")
    story.rejects("a", C, 1000, blocked="too many")
    assert story.over() == []


def test_a_slice_with_a_budget_of_an_operator_is_not_evaluated_again() -> None:
    story = Rejecting()
    story.opens("a", [A], budget=Budget(max_records=900, max_ratio=1.0))
    story.rejects("a", A, 900)
    assert story.over() == []


def test_a_range_that_is_tried_again_under_the_own_budget_is_evaluated_with_its_window() -> None:
    story = Rejecting()
    story.opens("a", [A], budget=BUDGET)
    story.rejects("a", A, 900)
    assert story.over() == texts(A)


def test_rows_that_a_table_has_are_not_left_out() -> None:
    story = Rejecting()
    story.opens("a", [A, B], tables=(ORDERS, DEAD))
    story.rejects("a", A, 500)
    story.rejects("a", B, 100)
    assert story.over("a", ledger(ORDERS, covered=A), ledger(DEAD)) == texts(B)


def test_a_decision_takes_the_slice_back_and_blocks_its_range() -> None:
    story = Rejecting()
    story.opens("a", WINDOW[:2])
    story.rejects("a", A, 300, reject_reason="the value is not JSON", rejects={"not_json": 299, "unknown_field x": 1})
    other = story.rejects("a", B, 0)
    (sent,) = story.blocks()
    state = story.landing_state()
    assert [a.report.attempt for a in state.accepted[ORDERS]] == [other]
    assert [b.coverage for b in state.blocked] == [coverage(A)]
    assert sent.blocked == (
        "the value is not JSON (299 of 300 rejected records): slice orders[0][0, 1000): 300 rejected records of 2000 "
        "in its window are over dead_letters.max_ratio=0.05, 300 of 1000 in this slice"
    )
    assert not story.over()
    assert state.quarantined == ()
    assert state.lacking(story.plans["a"].slices) == ()


def test_of_a_slice_of_several_ranges_only_the_bad_one_is_blocked() -> None:
    both = [(P0, 0, 500), (P1, 0, 500)]
    story = Rejecting()
    story.opens("a", [both])
    story.rejects("a", both, 200, 5)
    assert [b.coverage for b in story.blocks()] == [coverage(both[:1])]
    state = story.landing_state()
    assert state.accepted[ORDERS] == ()
    assert [b.coverage for b in state.blocked] == [coverage(both[:1])]
    assert [s.coverage for s in state.lacking(story.plans["a"].slices)] == [coverage(both[1:])]
    assert not state.suspects, "its good range needs no slice of its own"


def test_an_operator_who_raised_the_budget_meanwhile_is_not_overruled() -> None:
    story = Rejecting()
    story.opens("a", [A])
    story.rejects("a", A, 300)
    raised = (coverage(A), Budget(max_records=300, max_ratio=1.0))
    story.opens("decides", log=Directives(raised=(raised,)), slot=1)
    story.blocks()
    assert story.landing_state().blocked == ()


def test_the_log_that_a_block_needs_is_kept() -> None:
    story = Rejecting()
    story.opens("a", [A])
    story.rejects("a", A, 300)
    story.blocks()
    story.closes("a")
    low = story.landing_state().low()
    assert low is not None
    assert [b.coverage for b in story.landing_state(since=low).blocked] == [coverage(A)]


def reports_of(counts: Sequence[tuple[int, int]]) -> list[SliceReport]:
    story = Rejecting()
    cut = [[(P0, 100 * n, 100 * n + bad + good)] for n, (bad, good) in enumerate(counts)]
    story.opens("a", cut)
    for ranges, (bad, _) in zip(cut, counts, strict=True):
        story.rejects("a", ranges, bad)
    return [e.report for e in story.entries if isinstance(e, SliceReported)]


@STEADY
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    st.data(),
)
def test_what_is_left_is_within_the_ratio_unless_it_may_not_be_left_out(
    counts: list[tuple[int, int]], ratio: float, data: st.DataObject
) -> None:
    reports = reports_of(counts)
    free = {r.attempt for r in reports if data.draw(st.booleans())}
    out = left_out(reports, free, ratio)
    rest = [r.spans[0].counts for r in reports if r not in out]
    assert {r.attempt for r in out} <= free
    assert all(r.spans[0].counts.rejected > ratio * r.spans[0].counts.records for r in out)
    over = over_ratio(sum(c.rejected for c in rest), sum(c.records for c in rest), ratio)
    candidates = [r for r in reports if r.attempt in free and r not in out]
    assert not over or not any(r.spans[0].counts.rejected > ratio * r.spans[0].counts.records for r in candidates)
    # A second evaluation finds no more.
    assert left_out([r for r in reports if r not in out], free, ratio) == ()


@pytest.mark.parametrize(
    ("rejected", "records", "over"),
    [(4, 4, False), (5, 5, True), (19, 19, True), (19, 20, False), (20, 20, True), (5, 6, False)],
)
def test_a_window_of_nothing_but_rejects_is_over_the_ratio_though_it_is_small(
    rejected: int, records: int, over: bool
) -> None:
    assert over_ratio(rejected, records, 0.05) is over
    assert not over_ratio(rejected, records, 1.0), "all may be rejected"
