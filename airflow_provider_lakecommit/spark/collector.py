# SPDX-License-Identifier: Apache-2.0
"""Slow down Python's garbage collector, in the whole process, while records are read.

Contract: the first reader of a process slows it down, and the end of the last one restores it. Readers may overlap,
also in threads. The collector would visit each short-lived record several times in vain: a quarter of all processor
time. Cycles are still collected at every :data:`OBJECTS` objects.

Failure story: thresholds set by others while records are read are overwritten at the end.
"""

from __future__ import annotations

import gc
import threading

OBJECTS = 200_000


class _Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before = gc.get_threshold()

    def rest(self) -> None:
        """Register a reader."""
        with self._lock:
            if not self._readers:
                self._before = gc.get_threshold()
                if self._before[0]:
                    gc.set_threshold(max(self._before[0], OBJECTS), *self._before[1:])
            self._readers += 1

    def resume(self) -> None:
        """Unregister a reader."""
        with self._lock:
            self._readers -= 1
            if not self._readers:
                gc.set_threshold(*self._before)


COLLECTOR = _Collector()
"""The collector settings of this process."""
