# SPDX-License-Identifier: Apache-2.0
"""Which hours an event reports."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from airflow_provider_lakecommit.telemetry.hours import MOST_HOURS, hour_key, whole_hours


def at(hour: int, minute: int = 0, day: int = 2) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("lines", "through", "expected"),
    [
        (None, None, []),
        (at(3), None, []),
        (None, at(3, 59), ["2026-01-02T02:00:00"]),
        (at(3), at(3, 59), []),
        (at(3), at(4), ["2026-01-02T03:00:00"]),
        (at(2), at(4, 1), ["2026-01-02T02:00:00", "2026-01-02T03:00:00"]),
        (at(23, day=1), at(1), ["2026-01-01T23:00:00", "2026-01-02T00:00:00"]),
        # An older plan's commit comes after a newer one's.
        (at(6), at(4, 1), []),
    ],
)
def test_hours_between_what_was_reported_and_valid_through(
    lines: datetime | None, through: datetime | None, expected: list[str]
) -> None:
    assert [hour_key(hour) for hour in whole_hours(lines, through)] == expected


def test_hours_are_utcs_wherever_the_clock_is() -> None:
    there = datetime(2026, 1, 2, 9, 29, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    assert [hour_key(hour) for hour in whole_hours(None, there)] == ["2026-01-02T02:00:00"]


def test_after_a_long_time_all_hours_are_reported_by_several_events_oldest_first() -> None:
    reported, through, observed = at(0), at(0) + timedelta(hours=400, minutes=5), list[datetime]()
    while hours := whole_hours(reported, through):
        assert len(hours) <= MOST_HOURS
        observed += hours
        reported = hours[-1] + timedelta(hours=1)
    assert observed == [at(0) + timedelta(hours=n) for n in range(400)]
