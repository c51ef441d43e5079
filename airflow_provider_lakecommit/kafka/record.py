# SPDX-License-Identifier: Apache-2.0
"""Times and headers of Kafka records as Python values: these conversions never raise.

Contract: clients choose a record's time, any 64-bit number, and the names of its headers, any bytes. :func:`time_of`
returns times that a table, Arrow and Python can all hold, the years 1 to 9999; ``-1`` means no time in Kafka.
:func:`bounded_time` is for comparisons only: it moves a time beyond these years to the nearest one to which durations
can be added. :func:`headers_of` names a header :data:`UNREADABLE_NAME` if its own name is not UTF-8; its value and all
other headers are unchanged.

Failure story: headers that the client cannot return at all are ``None``.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import methodcaller
from typing import Any, Protocol

NO_TIME = -1
UNREADABLE_NAME = "(not UTF-8)"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LEAST = (datetime(1, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MOST = (datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MOST_TO_ADD_TO = (datetime(9000, 1, 1, tzinfo=UTC) - _EPOCH) // _MILLISECOND

# The client returns a list although it has raised. A plain call that Python has specialised does not check whether it
# did, so the exception would appear at the next check elsewhere; this call always checks.
_ask = methodcaller("headers")

Headers = tuple[tuple[str, bytes | None], ...]


class _Record(Protocol):
    def headers(self) -> Any: ...


def time_of(milliseconds: int) -> datetime | None:
    """A record's time; ``None`` when it has none, or one beyond the years 1 to 9999."""
    if milliseconds == NO_TIME or not _LEAST <= milliseconds <= _MOST:
        return None
    return _EPOCH + timedelta(milliseconds=milliseconds)


def bounded_time(milliseconds: int) -> datetime:
    """The time that is nearest to this one, from the epoch to the year 9000."""
    return _EPOCH + timedelta(milliseconds=max(0, min(milliseconds, _MOST_TO_ADD_TO)))


def headers_of(record: _Record) -> Headers | None:
    """All headers in their order; none is an empty tuple."""
    try:
        found = _ask(record)
    except Exception:
        # The client raises at a name that is no text, and has the list by then, with a hole in the place of the name.
        try:
            found = _ask(record)
        except Exception:
            return None
    pairs: Sequence[Any] = list(found.items()) if isinstance(found, Mapping) else list(found or ())
    return tuple(map(_pair, pairs))


def _pair(pair: tuple[Any, Any]) -> tuple[str, bytes | None]:
    """Do not touch a hole: it has no object. Python's collector lists the objects without doing so."""
    held = gc.get_referents(pair)
    name, value = (UNREADABLE_NAME, held[-1] if held else None) if len(held) < len(pair) else pair
    return str(name), value.encode() if isinstance(value, str) else value
