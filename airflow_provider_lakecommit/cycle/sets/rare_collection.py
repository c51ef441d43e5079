# SPDX-License-Identifier: Apache-2.0
"""Run Python's garbage collector rarely, while hundreds of landings are read and planned.

Contract: within :func:`rarely_collected` the collector scans young objects after :data:`YOUNG` new ones, and all of
them after :data:`OLDER` such scans; afterwards its thresholds are restored. Nearly all objects of a plan live as long
as the plan and have no cycles: with the default thresholds, a fifth of the processor time of a plan of 500 landings
went into scans, with the same memory.

The thresholds are the process's. Concurrent blocks in other threads share them; the last one to end restores them.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG = 100_000
"""New objects, less deleted ones."""
OLDER = 50
"""Scans of the young and the middle generation before one of the old."""

_lock = threading.Lock()
_inside = 0
_before = (0, 0, 0)
_froze = False


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Make the collector scan rarely within the block."""
    global _inside, _before, _froze
    with _lock:
        if _inside == 0:
            _before = gc.get_threshold()
            # Imported objects stay and need no scan. Objects frozen by others stay frozen.
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
