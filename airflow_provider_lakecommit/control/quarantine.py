# SPDX-License-Identifier: Apache-2.0
"""Log records as entries; unreadable ones become an :class:`~airflow_provider_lakecommit.core.log.Unreadable`.

All readers of a landing's log use it, so that they ignore the same records. Ignoring any record is safe: the ledger has
what is in a table, and a report that nobody accepted is planned again. A lost claim, release or voided attempt costs
repeated work, and never a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from uuid import UUID

from airflow_provider_lakecommit.control.events import head
from airflow_provider_lakecommit.control.headers import CORRUPT_BATCH, CORRUPT_HEADERS, find
from airflow_provider_lakecommit.control.records import LogRecord, read_entry
from airflow_provider_lakecommit.core import Entry, Unreadable, group_id
from airflow_provider_lakecommit.exceptions import WireError

REASON_LENGTH = 300
_NOBODY = UUID(int=0)


def entry_of(record: LogRecord, landing: str, lane: str) -> Entry | None:
    """Return the entry of a record, or ``None`` if it is not of this lane of the landing."""
    try:
        if (cause := next((value for name, value in record.headers if name == CORRUPT_BATCH), None)) is not None:
            # Whose they were, nobody knows.
            return _unreadable(record, f"damage: it is not what was written ({cause.decode(errors='replace')})")
        if any(name == CORRUPT_HEADERS for name, _ in record.headers):
            return _without_headers(record, landing)
        return read_entry(record, landing, lane)
    except WireError as e:
        return _unreadable(record, str(e))


def _without_headers(record: LogRecord, landing: str) -> Entry | None:
    """Return an unreadable entry if the event is of the landing, which may have been one of ours."""
    try:
        ours = record.value is not None and head(record.value).group_id == group_id(landing)
    except WireError:
        return None
    return _unreadable(record, "its headers cannot be read") if ours else None


def _unreadable(record: LogRecord, reason: str) -> Unreadable:
    shown = "".join(letter if letter.isprintable() else "�" for letter in " ".join(reason.split()))
    short = shown if len(shown) <= REASON_LENGTH else f"{shown[:REASON_LENGTH]}…"
    return Unreadable(offset=record.offset, at=record.timestamp, commit_id=_NOBODY, reason=short)


def lanes_in(records: Iterable[LogRecord], landing: str) -> frozenset[str]:
    """Return the streams of the landing that have readable records."""
    found: set[object] = set()
    for record in records:
        with suppress(WireError):
            if record.value is not None and head(record.value).group_id == group_id(landing):
                found.add((find(record.headers) or {}).get("lane"))
    return frozenset(lane for lane in found if isinstance(lane, str))


def read_entries(records: Iterable[LogRecord], landing: str, lane: str) -> tuple[Entry, ...]:
    """Return the entries of a lane of the landing, and unreadable ones."""
    found = (entry_of(r, landing, lane) for r in records)
    return tuple(e for e in found if e is not None)
