# SPDX-License-Identifier: Apache-2.0
"""The complete hours of a landing's tables, as partition keys of asset events.

Contract: pure. An hour is complete when valid-through has passed its end: every record that its topics held by then is
in all tables. Hours are those of arrival, in UTC; a late record with an older time of its own belongs to the hour in
which it arrived. Keys are the start of the hour as Airflow's mappers read it by default.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

HOUR = timedelta(hours=1)
MOST_HOURS = 168
"""Most hours in one event; older ones come first, the rest with the next event."""


def whole_hours(reported: datetime | None, valid_through: datetime | None) -> list[datetime]:
    """Return the starts of the hours to report, oldest first.

    :param reported: the end of the newest reported hour; without one only the newest complete hour is reported
    :param valid_through: ``None`` while something older is missing: nothing is reported
    """
    if valid_through is None:
        return []
    end = valid_through.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    first = end - HOUR if reported is None else reported.astimezone(UTC)
    count = min(MOST_HOURS, (end - first) // HOUR)
    return [first + HOUR * n for n in range(count)]


def hour_key(hour: datetime) -> str:
    """Return the partition key of an hour: ``2026-01-02T03:00:00``."""
    return hour.strftime("%Y-%m-%dT%H:%M:%S")
