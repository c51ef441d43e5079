# SPDX-License-Identifier: Apache-2.0
"""Durations in readable forms: ``500ms``, ``30s``, ``5m``, ``1h30m``, ``2d``, a number of seconds, a timedelta.

Contract: pure. :func:`duration_of` returns a :class:`~datetime.timedelta`, or any other value unchanged, so that the
caller can name it in an error.
"""

from __future__ import annotations

import re
from datetime import timedelta

from airflow_provider_lakecommit.exceptions import SpecError

EXAMPLES = "30s, 5m, 1h30m or 2d"
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds", "ms": "milliseconds"}
_TEXT = re.compile(r"(?:(\d{1,6})d)?(?:(\d{1,6})h)?(?:(\d{1,6})m(?!s))?(?:(\d{1,6})s)?(?:(\d{1,6})ms)?")


def duration_of(value: object) -> object:
    """Return the duration of a value, or the value itself if it is none."""
    if isinstance(value, str) and value and (found := _TEXT.fullmatch(value.replace(" ", ""))):
        return timedelta(**{unit: int(n) for unit, n in zip(_UNITS.values(), found.groups(), strict=True) if n})
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return timedelta(seconds=value)
        except (ValueError, OverflowError):
            return value
    return value


def span_of(value: object, name: str) -> timedelta:
    """Return a duration in any of its forms.

    :raises SpecError: it is not a duration
    """
    found = duration_of(value)
    if not isinstance(found, timedelta):
        raise SpecError("LC1014", f"{name}={value!r} is not a duration ({EXAMPLES}, seconds, or a timedelta)")
    return found


def seconds_of(value: object, name: str) -> float:
    """Return a duration in seconds.

    :raises SpecError: it is not a duration
    """
    return span_of(value, name).total_seconds()
