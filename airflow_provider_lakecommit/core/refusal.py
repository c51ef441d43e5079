# SPDX-License-Identifier: Apache-2.0
"""The states in which no window is planned.

Names and values cross processes and releases: new ones may be added, none renamed. Readers map unknown ones to
:attr:`RefusalState.OTHER`.
"""

from __future__ import annotations

from enum import StrEnum

WHY_BLOCKED = "blocked: "
"""Start of the reason of a plan without a window while ranges are blocked."""


class RefusalState(StrEnum):
    """The reason why a cycle planned no window; the value is shown to users."""

    STALLED = "stalled"
    """Commits failed for all tables in too many cycles in a row."""
    OPEN_CYCLES = "open cycles"
    """Too many windows are under way."""
    PENDING_SLICES = "pending slices"
    """A table's budget of slices that wait to be published is full."""
    PENDING_FILES = "pending files"
    """The same of data files."""
    PENDING_BYTES = "pending bytes"
    """The same of bytes of source records."""
    DEBT = "compaction debt"
    """A table has twice as many files, deleted rows or snapshots as it may, and runs compact it."""
    SLOWING = "slowing"
    """Commits failed, and the landing is to plan rarer windows then."""
    CATALOG_AWAY = "catalog away"
    """No ledger can be read, so nothing can be planned. The folded log cannot show this state."""
    SPEC_CHANGE = "spec change"
    """Landed slices must be published before another spec can be planned."""
    SUSPENDED = "suspended"
    """A user suspended the landing."""
    INCOMPATIBLE = "incompatible records"
    """Records do not fit the table, and the landing is to stop before them."""
    DIVERGED = "log diverged"
    """The logs of some partitions have other records than were landed: the plan has no range of these."""
    OTHER = "another state"
    """A state that this release does not know."""

    @property
    def needs_a_hand(self) -> bool:
        """Return True if only an operator can clear it."""
        return self in (RefusalState.INCOMPATIBLE, RefusalState.DIVERGED)

    @property
    def budget_full(self) -> bool:
        """Return True if a budget of pending work is full."""
        return self in (RefusalState.PENDING_SLICES, RefusalState.PENDING_FILES, RefusalState.PENDING_BYTES)
