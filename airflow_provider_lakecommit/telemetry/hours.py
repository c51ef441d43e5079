# SPDX-License-Identifier: Apache-2.0
"""The hours that a landing's tables have whole, as partition keys of asset events.

Contract: pure. An hour is whole when valid-through has passed its end: every record that its topics held by then is in
all tables. Hours are those of arrival, in UTC; a record that comes later, with an older time of its own, belongs to
the hour in which it came. Keys are the beginning of the hour as Airflow's mappers read it by default.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["HOUR", "MOST_HOURS", "hour_key", "whole_hours"]

HOUR = timedelta(hours=1)
MOST_HOURS = 168
"""That one event tells of; what is older comes first, the rest with the next event."""


def whole_hours(told: datetime | None, valid_through: datetime | None) -> list[datetime]:
    """Beginnings of the hours to be told of, oldest first.

    :param told: the end of the newest hour that was told of before; without one only the newest whole hour is
    :param valid_through: ``None`` while something older is missing: nothing is told
    """
    if valid_through is None:
        return []
    end = valid_through.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    first = end - HOUR if told is None else told.astimezone(UTC)
    count = min(MOST_HOURS, (end - first) // HOUR)
    return [first + HOUR * n for n in range(count)]


def hour_key(hour: datetime) -> str:
    """The partition key of an hour: ``2026-01-02T03:00:00``."""
    return hour.strftime("%Y-%m-%dT%H:%M:%S")
