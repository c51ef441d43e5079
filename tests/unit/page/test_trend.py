# SPDX-License-Identifier: Apache-2.0
"""What a landing did over hours and days: bounded, summed by minute and by quarter of an hour."""

from __future__ import annotations

from airflow_provider_lakecommit.page.trend import MEASURES, STEPS, Trend

NOON = 1_800_000_000.0 - 1_800_000_000 % 900


def test_amounts_are_summed_and_the_most_of_a_peak_is_kept() -> None:
    trend = Trend()
    trend.add(NOON + 5, NOON + 5, {"read": 10, "read_lag": 7, "commit_lag": None})
    trend.add(NOON + 50, NOON + 50, {"read": 5, "read_lag": 3})
    trend.add(NOON + 130, NOON + 130, {"read": 1})
    steps = trend.steps(NOON + 190)
    assert [*steps] == [60, 900]
    (begin, minutes), (begin_of_quarters, quarters) = steps[60], steps[900]
    assert begin == NOON
    assert minutes["read"] == [15, 0, 1, 0]
    assert minutes["read_lag"] == [7, None, None, None]
    assert minutes["commit_lag"] == [None] * 4
    assert (begin_of_quarters, quarters["read"]) == (NOON, [16])
    assert set(minutes) == set(MEASURES)


def test_it_is_bounded_and_what_is_too_old_or_of_the_future_spoils_nothing() -> None:
    trend = Trend()
    (step, size), _ = STEPS
    for n in range(3 * size):
        trend.add(NOON + n * step, NOON + n * step, {"read": n})
    now = NOON + (3 * size - 1) * step
    assert trend.steps(now)[step][1]["read"] == list(range(2 * size, 3 * size))
    trend.add(NOON, now, {"read": 1e9})
    assert trend.steps(now)[step][1]["read"][0] == 2 * size
    trend.add(now + 1e12, now, {"read": 1000})
    assert trend.steps(now)[step][1]["read"][-1] == 3 * size - 1 + 1000, "said to be later than now, so it is now's"
    assert trend.steps(now + 10 * size * step)[step][1]["read"] == []
