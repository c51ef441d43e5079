# SPDX-License-Identifier: Apache-2.0
"""Which control records an observer of commits accepts.

A record without a required signature is ignored, and so is a repeated one: each event of a landing has its own id, so a
copy is a forgery. Once a group is known as a landing, records without our header are not its own. Groups of Kafka
Connect sign nothing and are accepted. Of each group the newest :data:`REMEMBERED` records that start or end a cycle are
recognised when repeated; a copy of an older one counts until the landing's next cycle.
"""

from __future__ import annotations

from typing import Protocol

from airflow_provider_lakecommit.control import HEADER
from airflow_provider_lakecommit.stall.verdict import EventKind

PROGRESS_KINDS = frozenset({EventKind.START, EventKind.COMPLETED})
"""Events that cause a new state at once. The others are many, and change no cycle."""
REMEMBERED = 256


class Record(Protocol):
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...
    @property
    def doubt(self) -> str | None: ...


def is_ours(record: Record) -> bool:
    return any(name == HEADER for name, _ in record.headers)


class VerifiedRecords:
    """The accepted records of each group of one topic."""

    def __init__(self) -> None:
        self._known: dict[str, dict[int, None]] = {}

    def __call__(self, record: Record, group: str, kind: EventKind, *, landing: bool) -> bool:
        """Return True if the record is accepted. ``landing``: the group is known as a landing."""
        if record.doubt is not None:
            return False
        if not is_ours(record):
            return not landing
        return kind not in PROGRESS_KINDS or self._is_new(group, hash(record.value))

    def _is_new(self, group: str, digest: int) -> bool:
        known = self._known.setdefault(group, {})
        if digest in known:
            return False
        known[digest] = None
        if len(known) > REMEMBERED:
            del known[next(iter(known))]
        return True
