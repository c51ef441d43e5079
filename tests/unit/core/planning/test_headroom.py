# SPDX-License-Identifier: Apache-2.0
"""How long unread offsets are kept: bounds that hold for logs whose timestamps are in any order."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_lakecommit.core.planning.headroom import (
    Headroom,
    Retention,
    duration_text,
    first_times,
    interval_of,
    next_time,
    oldest_unread,
    threshold_of,
)
from airflow_provider_lakecommit.core.planning.missing import Watermark
from tests.support.story import NOON, P0, STEADY, Story

DAY = timedelta(days=1)
WEEK = Retention(time=timedelta(days=7), bytes=None)


def headroom(offset: int = 5, retention: Retention | None = WEEK, **more: object) -> Headroom:
    return Headroom(partition=P0, offset=offset, at=NOON, retention=retention, **more)  # type: ignore[arg-type]


@STEADY
@given(
    minutes=st.lists(st.integers(-60 * 24 * 9, 60), min_size=1, max_size=30),
    offset=st.integers(0, 29),
    few=st.booleans(),
)
def test_the_bounds_hold_whatever_order_the_timestamps_are_in(minutes: list[int], offset: int, few: bool) -> None:
    """The model is the broker's rule: a record goes with its segment, after the newest timestamp at or below it."""
    stamps = [NOON + timedelta(minutes=m) for m in minutes]
    offset = min(offset, len(stamps) - 1)
    newest = list(accumulate(stamps, max))[offset]
    found = headroom(offset)
    times = [*first_times(WEEK, NOON, timedelta(hours=1), few=few)]
    for _ in range(40):
        for t in times:
            found = found.learn(t, next(((o, ts) for o, ts in enumerate(stamps) if ts >= t), None))
            assert found.low is None or found.low <= newest
            assert found.high is None or found.high >= newest
        following = next_time(found)
        if following is None:
            break
        times = [following]
    else:
        raise AssertionError(f"never sharp: {found}")
    if newest < NOON - DAY * 7:
        assert found.expires_at is None
        assert "may be removed at any time" in str(found)
    else:
        assert found.expires_at is not None
        assert timedelta(0) <= newest + DAY * 7 - found.expires_at <= DAY * 7 / 100 or found.low >= NOON  # type: ignore[operator]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}, (timedelta(seconds=1), None)),
        ({"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "9"}, (None, 9)),
        ({"cleanup.policy": "delete", "retention.ms": str(2**63 - 1), "retention.bytes": "-1"}, (None, None)),
        ({"cleanup.policy": "compact", "retention.ms": "1000", "retention.bytes": "9"}, (None, None)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "-1"}, (DAY / 86400, None)),
    ],
)
def test_only_topics_that_delete_lose_records_for_age_or_size(settings: dict[str, str], expected: object) -> None:
    kept = Retention.of(settings)
    assert (kept.time, kept.bytes) == expected


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (headroom(retention=None, why="no rights"), "at an unknown time (no rights)"),
        (headroom(), "at an unknown time (no answer in time)"),
        (headroom(retention=Retention(time=None, bytes=None)), "is never removed for its age (retention.ms)"),
        (headroom(retention=Retention(time=None, bytes=None, compacted=True)), "compacted"),
        (headroom(retention=Retention(time=None, bytes=7)), "by size: unknown (retention.bytes=7)"),
        (headroom(low=NOON - DAY), "offset 5 expires in 6 d at the earliest"),
        (headroom(high=NOON - DAY * 7 + timedelta(hours=1)), "may expire within 1 h"),
        (headroom(low=NOON - DAY * 8), "may be removed at any time"),
        (headroom(retention=Retention(time=timedelta(days=10**8), bytes=None), low=NOON), "unknown"),
    ],
)
def test_what_is_known_is_reported_and_what_is_not_is_unknown(found: Headroom, text: str) -> None:
    assert text in str(found)


def test_short_is_only_what_is_known_to_be_short() -> None:
    hour = timedelta(hours=1)
    edge = NOON - DAY * 7
    assert not headroom().short_of(hour)
    assert not headroom(low=edge + hour / 2).short_of(hour)
    assert headroom(low=edge + hour / 2, high=edge + hour / 2).short_of(hour)
    assert headroom(high=edge + hour).short_of(hour)
    assert not headroom(high=edge + 2 * hour).short_of(hour)
    assert not headroom(retention=None, high=edge).short_of(hour)


def test_a_plan_with_many_partitions_requests_one_time_only() -> None:
    hour = timedelta(hours=1)
    assert first_times(WEEK, NOON, hour, few=False) == (NOON - DAY * 7 + hour,)
    assert len(first_times(WEEK, NOON, hour, few=True)) == 4
    assert first_times(Retention(time=None, bytes=None), NOON, hour, few=True) == ()
    # A retention beyond the beginning of time is still a question that can be asked.
    assert first_times(Retention(time=timedelta(days=10**6), bytes=None), NOON, hour, few=True)[0].year == 1970


def test_the_oldest_unread_offset_is_of_the_slowest_table_and_not_of_what_is_reported() -> None:
    story = Story()
    story.opens("a", [[(P0, 0, 10)]])
    marks = {P0: Watermark(start=3, stable=20, high=25)}
    assert oldest_unread(story.landing_state(), marks) == {P0: 3}
    story.reports("a", [(P0, 0, 10)])
    assert oldest_unread(story.landing_state(), marks) == {P0: 10}
    assert oldest_unread(story.landing_state(), {P0: Watermark(start=0, stable=10, high=10)}) == {}


def test_the_interval_is_what_the_log_shows_and_the_threshold_the_larger_of_both() -> None:
    story = Story()
    assert interval_of(story.entries) is None
    for run in "abc":
        story.opens(run, [])
    interval = interval_of(story.entries)
    assert interval is not None
    assert threshold_of(timedelta(seconds=1), interval * 100) == interval * 200
    assert threshold_of(timedelta(hours=1), None) == timedelta(hours=1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (7200, "2 h"), (90061, "1 d 1 h")]
)
def test_a_duration_is_reported_in_its_two_largest_units(seconds: int, text: str) -> None:
    assert duration_text(timedelta(seconds=seconds)) == text
