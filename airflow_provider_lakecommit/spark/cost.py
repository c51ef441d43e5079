# SPDX-License-Identifier: Apache-2.0
"""What an attempt at a slice costs: its wall-clock time, split by the work that it went into.

Contract: :meth:`CostClock.lap` books all time since the lap before, so the parts add up to the time between the clock's
making and its last lap; nothing is measured twice and nothing is left out. A monotonic clock is used: a clock of the
machine that is set in between changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import Enum, auto

from airflow_provider_lakecommit.core import SliceCost

__all__ = ["CostClock", "Work"]


class Work(Enum):
    """What the time of a slice goes into."""

    READ = auto()
    DECODE = auto()
    WRITE = auto()


class CostClock:
    """Starts when it is made.

    :param now: seconds of a clock that only goes forward
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._last = now()
        self._seconds = dict.fromkeys(Work, 0.0)

    def lap(self, work: Work) -> None:
        """The time since the last lap went into this."""
        now = self._now()
        self._seconds[work] += now - self._last
        self._last = now

    def cost(self, written: int) -> SliceCost:
        """All laps so far.

        :param written: bytes of the files
        """
        read, decode, write = (round(self._seconds[work], 3) for work in Work)
        return SliceCost(read_seconds=read, decode_seconds=decode, write_seconds=write, bytes=written)
