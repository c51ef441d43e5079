# SPDX-License-Identifier: Apache-2.0
"""Since when something is behind, by when the ends of the topics were where."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.page.lag_clock import LEAST_READINGS, MOST_READINGS, LagClock

P0, P1 = ("orders", 0), ("orders", 1)


def clock_of(*ends: int, step: float = 10.0) -> LagClock:
    clock = LagClock()
    for n, end in enumerate(ends):
        clock.add(n * step, 1e9, {P0: end})
    return clock


def test_what_is_behind_was_written_after_the_last_check_that_had_none_of_it() -> None:
    clock = clock_of(100, 200, 300)
    assert clock.since({P0: 250}) == 10.0
    assert clock.seconds({P0: 250}, 25.0) == 15.0
    assert (clock.since({P0: 300}), clock.seconds({P0: 300}, 99.0)) == (None, 0.0)


def test_nothing_is_known_of_a_backlog_from_before_the_first_check() -> None:
    clock = clock_of(100, 200)
    assert (clock.since({}), clock.seconds({P0: 50}, 30.0)) == (None, None)
    assert LagClock().seconds({P0: 5}, 1.0) is None


def test_an_idle_topic_is_behind_from_its_last_idle_check_on() -> None:
    clock = clock_of(100, 100, 100, 150)
    assert len(clock.readings) == 2
    assert clock.since({P0: 100}) == 20.0


def test_one_partition_that_is_behind_is_enough_and_a_new_one_is_another() -> None:
    clock = LagClock()
    clock.add(0, 9, {P0: 100})
    clock.add(5, 9, {P0: 200, P1: 10})
    assert clock.since({P0: 300}) == 0
    assert clock.since({P0: 200, P1: 10}) is None


def test_a_clock_that_is_ahead_or_a_check_that_comes_late_spoils_nothing() -> None:
    clock = clock_of(100)
    clock.add(1e12, 20.0, {P0: 200})
    clock.add(5.0, 30.0, {P0: 1})
    assert clock.readings == [(0.0, {P0: 100}), (20.0, {P0: 200})]


def test_what_was_reached_is_forgotten_and_a_table_of_many_partitions_keeps_few_checks() -> None:
    clock = clock_of(*range(100, 140))
    clock.forget({P0: 120})
    assert clock.readings[0] == (200.0, {P0: 120})
    assert clock.since({P0: 121}) == 210.0
    wide = LagClock()
    for n in range(100):
        wide.add(n, 1e9, {("orders", p): n for p in range(5000)})
    assert len(wide.readings) <= LEAST_READINGS


@given(st.lists(st.integers(0, 50), min_size=1, max_size=400), st.integers(0, 20_000))
def test_thinned_checks_report_an_upper_bound_that_is_no_more_than_a_fourth_too_long(
    more: list[int], upto: int
) -> None:
    clock, ends, exact = LagClock(), 0, None
    at = 0.0
    for n, m in enumerate(more):
        ends, at = ends + m, 10.0 * n
        clock.add(at, 1e9, {P0: ends})
        exact = at if ends <= upto else exact
    assert len(clock.readings) <= MOST_READINGS
    lag = clock.seconds({P0: upto}, at)
    if ends <= upto:
        assert lag == 0
    elif exact is None:
        assert lag is None or lag >= 0
    elif lag is not None:
        true = at - exact
        assert true <= lag <= true * 1.25 + 20
