# SPDX-License-Identifier: Apache-2.0
"""Looking for garbage rarely, while hundreds of landings are read and planned.

Contract: within :func:`rarely_collected` Python's collector of cycles looks through young objects after
:data:`YOUNG` new ones, and through all of them after :data:`OLDER` such looks; then it is as it was. Nearly all that a
plan makes lives as long as the plan and has no cycles: with Python's own thresholds, a fifth of the processor time of a
plan of 500 landings went into looking through it again and again, and memory was the same.

The thresholds are the process's. Who is in such a block at the same time, in other threads, has them alike; the last
one to leave sets them back.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OLDER", "YOUNG", "rarely_collected"]

YOUNG = 100_000
"""Objects that are made, less those that are gone."""
OLDER = 50
"""Looks through the young, and through the middle-aged, before one through what is older."""

_lock = threading.Lock()
_inside = 0
_before = (0, 0, 0)
_froze = False


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Have the collector look rarely within the block."""
    global _inside, _before, _froze
    with _lock:
        if _inside == 0:
            _before = gc.get_threshold()
            # What was imported stays: it need not be looked through. What somebody else has frozen is theirs to thaw.
            _froze = gc.get_freeze_count() == 0
            if _froze:
                gc.freeze()
            gc.set_threshold(YOUNG, OLDER, OLDER)
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                gc.set_threshold(*_before)
                if _froze:
                    gc.unfreeze()
