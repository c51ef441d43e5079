# SPDX-License-Identifier: Apache-2.0
"""Which control records an observer of commits believes.

Contract: a record that is not signed where it must be was not seen, and neither is the same one seen again: each event
of a landing has an id of its own, so a copy is one of somebody who wants to be taken for it. Once a group is known for
a landing, what bears no header of ours is not its word. Groups of Kafka Connect sign nothing and are believed.

Failure story: of each group the newest :data:`REMEMBERED` records that begin or end a cycle are known again; a copy of
an older one counts until the next cycle of the landing says otherwise.
"""

from __future__ import annotations

from typing import Protocol

from airflow_provider_lakecommit.control import HEADER
from airflow_provider_lakecommit.stall.verdict import EventKind

__all__ = ["TELLING", "Believed", "is_ours"]

TELLING = frozenset({EventKind.START, EventKind.COMPLETED})
"""Events after which there is a state at once. There are many of the others, and they change no cycle."""
REMEMBERED = 256


class Record(Protocol):
    """What is looked at of a record of the control topic."""

    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes], ...]: ...
    @property
    def doubt(self) -> str | None: ...


def is_ours(record: Record) -> bool:
    """Return True if it has the header of a landing."""
    return any(name == HEADER for name, _ in record.headers)


class Believed:
    """What was believed of each group of one topic."""

    def __init__(self) -> None:
        self._told: dict[str, dict[int, None]] = {}

    def __call__(self, record: Record, group: str, kind: EventKind, *, landing: bool) -> bool:
        """Return True if it is verified.

        :param landing: is the group known for a landing?
        """
        if record.doubt is not None:
            return False
        if not is_ours(record):
            return not landing
        return kind not in TELLING or self._is_new(group, hash(record.value))

    def _is_new(self, group: str, words: int) -> bool:
        known = self._told.setdefault(group, {})
        if words in known:
            return False
        known[words] = None
        if len(known) > REMEMBERED:
            del known[next(iter(known))]
        return True
