# SPDX-License-Identifier: Apache-2.0
"""The smallest part of a failing sequence that still fails, by leaving out steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

__all__ = ["shrunk"]

T = TypeVar("T")


def shrunk(steps: Sequence[T], fails: Callable[[Sequence[T]], bool], tries: int = 100) -> tuple[T, ...]:
    """Leave out halves, then quarters and so on to single steps, as long as the rest fails; runs at most ``tries``."""
    found, size = tuple(steps), max(1, len(steps) // 2)
    while tries > 0:
        at, before = 0, len(found)
        while at < len(found) and tries > 0:
            rest = found[:at] + found[at + size :]
            tries -= 1
            if fails(rest):
                found = rest
            else:
                at += size
        if size == 1 and len(found) == before:
            break
        size = max(1, size // 2)
    return found
