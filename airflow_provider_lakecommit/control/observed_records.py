# SPDX-License-Identifier: Apache-2.0
"""The records read from one partition of the control topic, kept so that the next read fetches only new ones.

Committed records never change. What is kept is bounded, in records and in bytes; a read from before it fetches again.
If the log ends before what was read of it, it was truncated: nothing kept counts. A recreated topic is another log.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from airflow_provider_lakecommit.control.bounded_records import size_of
from airflow_provider_lakecommit.control.control_log import ControlRecord

MOST_RECORDS = 20_000
MOST_BYTES = 32 << 20


class ObservedRecords:
    """The records of ``[first, next)`` of one partition; ``fetch`` reads a range of offsets."""

    def __init__(self, fetch: Callable[[int, int], Iterable[ControlRecord]]) -> None:
        self._fetch = fetch
        self._records: list[ControlRecord] = []
        self._bytes = 0
        self._first = self._next = 0

    def read(self, start: int, end: int) -> tuple[ControlRecord, ...]:
        """Return the records of ``[start, end)``; ``end`` is the current end of the log."""
        if not self._first <= start <= self._next or end < self._next:
            self._forget(start)
        if self._next < end:
            found = list(self._fetch(self._next, end))
            self._records += found
            self._bytes += sum(map(size_of, found))
            self._next = end
        out = tuple(self._records[bisect_left(self._records, start, key=offset_of) :])
        self._shrink()
        return out

    def _forget(self, start: int) -> None:
        self._records, self._bytes = [], 0
        self._first = self._next = start

    def _shrink(self) -> None:
        """Drop the oldest, down to half of the limits."""
        if len(self._records) <= MOST_RECORDS and self._bytes <= MOST_BYTES:
            return
        removed = 0
        while removed < len(self._records) and (
            len(self._records) - removed > MOST_RECORDS // 2 or self._bytes > MOST_BYTES // 2
        ):
            self._bytes -= size_of(self._records[removed])
            removed += 1
        del self._records[:removed]
        self._first = self._records[0].offset if self._records else self._next


def offset_of(record: ControlRecord) -> int:
    return record.offset
