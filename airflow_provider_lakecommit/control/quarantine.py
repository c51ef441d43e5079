# SPDX-License-Identifier: Apache-2.0
"""Log records as entries, where one that cannot be read stops nobody.

Contract: :func:`entry_of` is :func:`~airflow_provider_lakecommit.control.records.read_entry`, and gives an
:class:`~airflow_provider_lakecommit.core.log.Unreadable` for what that refuses. Every reader of a landing's log goes
through it, so that all of them pass over the same records.

It is safe to pass over any record: what is in a table, its ledger says, and a report that nobody accepted is planned
again. A claim, a release or a voided attempt that is lost costs work that is done twice, and never a row.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from airflow_provider_lakecommit.control.events import head
from airflow_provider_lakecommit.control.headers import DAMAGED_BATCH, DAMAGED_HEADERS
from airflow_provider_lakecommit.control.records import LogRecord, read_entry
from airflow_provider_lakecommit.core import Entry, Unreadable, group_id
from airflow_provider_lakecommit.exceptions import WireError

REASON_LENGTH = 300
_NOBODY = UUID(int=0)


def entry_of(record: LogRecord, landing: str, lane: str) -> Entry | None:
    """The entry that a record stands for, ``None`` when it is not of this landing's lane."""
    try:
        if (said := next((value for name, value in record.headers if name == DAMAGED_BATCH), None)) is not None:
            # Whose they were, nobody knows.
            return _unreadable(record, f"damage: it is not what was written ({said.decode(errors='replace')})")
        if any(name == DAMAGED_HEADERS for name, _ in record.headers):
            return _without_headers(record, landing)
        return read_entry(record, landing, lane)
    except WireError as e:
        return _unreadable(record, str(e))


def _without_headers(record: LogRecord, landing: str) -> Entry | None:
    """An event of the landing may have been one of ours; anything else is nobody's."""
    try:
        ours = record.value is not None and head(record.value).group_id == group_id(landing)
    except WireError:
        return None
    return _unreadable(record, "its headers cannot be read") if ours else None


def _unreadable(record: LogRecord, reason: str) -> Unreadable:
    shown = "".join(letter if letter.isprintable() else "�" for letter in " ".join(reason.split()))
    short = shown if len(shown) <= REASON_LENGTH else f"{shown[:REASON_LENGTH]}…"
    return Unreadable(offset=record.offset, at=record.timestamp, commit_id=_NOBODY, reason=short)


def read_entries(records: Iterable[LogRecord], landing: str, lane: str) -> tuple[Entry, ...]:
    """The entries of a landing's lane among control records, and those that cannot be read."""
    found = (entry_of(r, landing, lane) for r in records)
    return tuple(e for e in found if e is not None)
