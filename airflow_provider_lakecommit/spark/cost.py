# SPDX-License-Identifier: Apache-2.0
"""The cost of an attempt at a slice: its wall-clock time, by kind of work.

Contract: :meth:`CostClock.lap` books all time since the previous lap, so the parts add up to the time between the
clock's creation and its last lap. The clock is monotonic: setting the machine's clock changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from airflow_provider_lakecommit.core import SliceCost


class Work(Enum):
    """The kinds of work of a slice."""

    READ = auto()
    DECODE = auto()
    WRITE = auto()


class CostClock:
    """Starts when it is created.

    :param now: seconds of a monotonic clock
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._seconds = dict.fromkeys(Work, 0.0)

    def lap(self, work: Work) -> None:
        """Book the time since the last lap."""
        now = self._now()
        self._seconds[work] += now - self._last
        self._last = now

    def cost(self, written: int) -> SliceCost:
        """Return the cost of all laps so far.

        :param written: bytes of the files
        """
        read, decode, write = (round(self._seconds[work], 3) for work in Work)
        return SliceCost(read_seconds=read, decode_seconds=decode, write_seconds=write, bytes=written)
