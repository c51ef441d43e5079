# SPDX-License-Identifier: Apache-2.0
"""Python's collector of cycles while records are read: it works less often, in the whole process.

Contract: the first reader of a process slows it down, and when the last one has ended it is as it was. Readers may
overlap, in threads too. Each record is an object that the collector would visit several times in its short life, for
nothing: a quarter of all processor time. Cycles are still collected, when :data:`OBJECTS` of them are in hand.

Failure story: whoever sets the thresholds while records are read finds them set back.
"""

from __future__ import annotations

import gc
import threading

__all__ = ["COLLECTOR", "OBJECTS"]

OBJECTS = 200_000


class _Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._readers = 0
        self._before = gc.get_threshold()

    def rest(self) -> None:
        """A reader begins."""
        with self._lock:
            if not self._readers:
                self._before = gc.get_threshold()
                if self._before[0]:
                    gc.set_threshold(max(self._before[0], OBJECTS), *self._before[1:])
            self._readers += 1

    def resume(self) -> None:
        """A reader has ended."""
        with self._lock:
            self._readers -= 1
            if not self._readers:
                gc.set_threshold(*self._before)


COLLECTOR = _Collector()
"""That of this process."""
