# SPDX-License-Identifier: Apache-2.0
"""Limits the memory of control records, which any writer to the topic could fill otherwise.

:func:`bounded` returns a record that means the same to readers of landings: without headers of others, and without a
value that is no control event. If one read has more than :data:`MOST_BYTES`, :func:`gathered` cuts the largest records
to the head of their event, but never those of wanted groups. On a topic without signatures (docs: Security) anyone can
write in a landing's name; such records are wanted, and count.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from airflow_provider_lakecommit.control.control_log import ControlRecord
from airflow_provider_lakecommit.control.events import head, only_head
from airflow_provider_lakecommit.control.headers import HEADER, HEADER_LIMIT
from airflow_provider_lakecommit.exceptions import WireError

log = logging.getLogger(__name__)

FETCH = {
    "fetch.message.max.bytes": 8 << 10,
    "queued.min.messages": 64,
    "queued.max.messages.kbytes": 1024,
    "fetch.queue.backoff.ms": 1,
}
"""Settings of a consumer of control records. It unpacks whole batches, and as many as one fetch brings: of small
fetches a batch that takes a thousand times its size when unpacked comes alone, and the next one is not fetched ahead.
"""
MOST_BYTES = 64 << 20
KEPT_RECORDS = 20_000
KEPT_BYTES = 32 << 20
SMALL = 4 << 10
LONGEST_KEY = 64 << 10
LONGEST_HEAD = 16 << 10
_NOTHING = ((HEADER, b""),)
"""In place of a header that is no longer there: damaged, for who looks for it."""


def without_foreign(record: ControlRecord) -> ControlRecord:
    """Return a record without headers of others, and without own ones that are longer than allowed."""
    first: dict[str, bytes] = {}
    for name, content in record.headers:
        if name.startswith(HEADER):
            first.setdefault(name, content if len(content) <= HEADER_LIMIT else b"")
    headers = tuple(first.items())
    return record if headers == record.headers else replace(record, headers=headers)


def bounded(record: ControlRecord) -> ControlRecord:
    """Return a record without what no landing reads. Small ones are unchanged."""
    if size_of(record) <= SMALL:
        return record
    record = without_foreign(record)
    head_only = _head_of(record.value)
    if any(name == HEADER for name, _ in record.headers):
        # One that is no event, with our header, is known for that; one without a value is nobody's.
        value = b"" if head_only is None and record.value is not None else record.value
    else:
        value = head_only
    key = None if len(record.key or b"") > LONGEST_KEY else record.key
    return record if (value, key) == (record.value, record.key) else replace(record, value=value, key=key)


def size_of(record: ControlRecord) -> int:
    """Return the bytes of its key, value and headers."""
    headers = sum(len(name) + len(content) for name, content in record.headers)
    return len(record.value or b"") + len(record.key or b"") + headers


def gathered(records: Iterable[ControlRecord], groups: Collection[str]) -> list[ControlRecord]:
    """Return bounded records of at most :data:`MOST_BYTES`, plus all of the wanted groups."""
    kept: list[ControlRecord] = []
    size, room, cut = 0, MOST_BYTES, 0
    for record in map(bounded, records):
        kept.append(record)
        size += size_of(record)
        if size > room:
            cut += _cut_down(kept, size, groups)
            size = sum(map(size_of, kept))
            room = max(MOST_BYTES, 2 * size)
    if cut:
        log.warning("skipped %d control records of other writers: too large for memory", cut)
    return kept


def _cut_down(kept: list[ControlRecord], size: int, groups: Collection[str]) -> int:
    """Cut to half of the limit, so that this is not repeated for each record. Return how many were cut."""
    cut = 0
    for n in sorted(range(len(kept)), key=lambda n: -size_of(kept[n])):
        if size <= MOST_BYTES // 2:
            break
        if (short := _cut(kept[n], groups)) is not None:
            size -= size_of(kept[n]) - size_of(short)
            kept[n], cut = short, cut + 1
    return cut


def _head_of(value: bytes | None) -> bytes | None:
    try:
        return None if value is None else only_head(value)
    except WireError:
        return None


def _cut(record: ControlRecord, groups: Collection[str]) -> ControlRecord | None:
    """Return the rest of it; ``None`` if it is wanted."""
    try:
        value = only_head(record.value or b"")
        if record.doubt is None and head(value).group_id in groups:
            return None
    except WireError:
        value = b""
    if len(value) > LONGEST_HEAD:
        value = b""
    return replace(record, value=value, headers=_NOTHING if record.headers else (), key=None)


class ObservedRecords:
    """The records read from ``[first, next)`` of one partition, kept so that the next read fetches only new ones.

    Committed records never change. What is kept is bounded, in records and in bytes; a read from before it fetches
    again. If the log ends before what was read of it, it was truncated: nothing kept counts. A recreated topic is
    another log. ``fetch`` reads a range of offsets.
    """

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
        if len(self._records) <= KEPT_RECORDS and self._bytes <= KEPT_BYTES:
            return
        removed = 0
        while removed < len(self._records) and (
            len(self._records) - removed > KEPT_RECORDS // 2 or self._bytes > KEPT_BYTES // 2
        ):
            self._bytes -= size_of(self._records[removed])
            removed += 1
        del self._records[:removed]
        self._first = self._records[0].offset if self._records else self._next


def offset_of(record: ControlRecord) -> int:
    return record.offset
