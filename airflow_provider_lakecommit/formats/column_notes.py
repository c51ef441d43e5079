# SPDX-License-Identifier: Apache-2.0
"""Notes on a column while its type is made from a schema, and the limit of its fields.

Types of a schema refer to each other, so a short text may have more fields than any table. Beyond :data:`MOST_FIELDS`
in one column it is left out with a note.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

MOST_FIELDS = 5_000
"""Most fields in one column, at all levels."""


class _TooManyFieldsError(Exception):
    """A column would have more fields than any table."""


class ColumnNotes(list[str]):
    """The notes of a column."""

    left = MOST_FIELDS

    def one_more(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise _TooManyFieldsError


def noted(name: str, make: Callable[[ColumnNotes], Any]) -> tuple[Any, tuple[str, ...]]:
    """Return the type of a column, ``None`` if it has none, and its notes."""
    notes = ColumnNotes()
    try:
        return make(notes), tuple(notes)
    except _TooManyFieldsError:
        return None, (f"{name}: left out: it has more than {MOST_FIELDS:,} fields",)
