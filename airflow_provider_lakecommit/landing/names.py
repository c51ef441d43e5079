# SPDX-License-Identifier: Apache-2.0
"""Names that may have been meant, for messages about a name that nobody knows.

Contract: pure; what is returned are known names, nearest first, and never more than asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

__all__ = ["meant", "nearest"]

MOST_COMPARED = 500
"""Known names that are looked at, those of about the same length; comparing takes time, and anybody may make up names
on a topic.
"""


def nearest(name: str, known: Collection[str], most: int = 3, alike: float = 0.0) -> tuple[str, ...]:
    """The known names that are most like it.

    :param alike: how much they have to be, from 0 (however little) to 1 (the same)
    """
    return tuple(difflib.get_close_matches(name, _alike(name, known), n=most, cutoff=alike))


def meant(name: str, known: Collection[str]) -> str:
    """The known name that a wrong one was meant for, as the end of a message; empty where none is like it."""
    found = difflib.get_close_matches(name, _alike(name, known), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def _alike(name: str, known: Collection[str]) -> list[str]:
    return sorted(known, key=lambda each: (abs(len(each) - len(name)), each))[:MOST_COMPARED]
