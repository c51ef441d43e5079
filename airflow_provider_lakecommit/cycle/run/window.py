# SPDX-License-Identifier: Apache-2.0
"""When the next window of a follow is opened, and when the source is asked again.

Contract: pure, times are seconds of one clock. Nobody knows when a record came, but everybody knows when it was not
there yet: the age of the oldest new record is at most the time since the newest look that saw nothing beyond the
newest plan. A window is opened when that is ``window_age``, or before that when it is full. The answer to a look:

=================================  ==========================================
what it saw                        what comes next
=================================  ==========================================
nothing new                        a look, after a pause that grows
nothing new for a long time        a window all the same
something new, as old as it may    a window
something new, enough for one      a window
something new, else                a window when it will be old enough; where one
                                   can be full before, a look in the meantime
=================================  ==========================================

A window though nothing is new says up to when the tables are whole, and finds what persons did to them.

Invariants: a look is never later than :data:`LATE` after a record may be as old as it may, so that the pause of an idle
topic costs a record no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from airflow_provider_lakecommit.core import SourcePartition, Watermark

__all__ = ["ANYWAY", "Ahead", "Full", "Next", "Pace", "ahead_of"]

ANYWAY = 300.0
"""Seconds without anything new, after which a window is opened all the same."""
LATE = 1.0
PART = 4
"""Looks in the time that a record may get old."""
OFTEN = 5.0
"""Seconds between looks at most, where a window can be full before it is old."""
SELDOM = 30.0
"""Seconds between looks at most, where nothing is new."""
UNKNOWN_BYTES = 1024
"""What a record is taken for until some have landed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Full:
    """When a window is full. ``record_bytes`` is what a record took so far, 0 where nobody knows."""

    records: int | None = None
    bytes: int | None = None
    record_bytes: int = 0

    @property
    def limited(self) -> bool:
        return self.records is not None or self.bytes is not None

    def by(self, records: int) -> bool:
        """Return True if a window of so many is full."""
        size = records * (self.record_bytes or UNKNOWN_BYTES)
        return (self.records is not None and records >= self.records) or (self.bytes is not None and size >= self.bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ahead:
    """What a look saw: offsets beyond the newest plan that can be read, and those that open transactions hold up."""

    records: int
    held_up: int = 0


def ahead_of(ends: Mapping[SourcePartition, int], now: Mapping[SourcePartition, Watermark]) -> Ahead:
    """What the source has beyond the ends of a plan; of partitions that it did not know, all."""
    return Ahead(
        records=sum(max(0, w.stable - max(w.start, ends.get(p, 0))) for p, w in now.items()),
        held_up=sum(max(0, w.high - w.stable) for w in now.values()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Next:
    """After so many ``seconds`` ``open`` a window, or look again."""

    open: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Where a follow is between two windows.

    :param age: seconds that a record may be old before it is in a window
    :param planned: when the source was asked for the newest plan
    :param clean: when the newest look that saw nothing new was begun
    :param idle: looks in a row that saw nothing new
    """

    age: float
    planned: float
    clean: float
    idle: int = 0

    @classmethod
    def after(cls, planned: float, age: float) -> Pace:
        """A plan whose ends were asked for at that time."""
        return cls(age=age, planned=planned, clean=planned)

    def saw(self, ahead: Ahead, *, asked: float, now: float, full: Full) -> tuple[Pace, Next]:
        """:param asked: when the look was begun; ``now``: when it was answered"""
        if not ahead.records:
            pace = replace(self, clean=asked, idle=self.idle + 1)
            if now - self.planned >= ANYWAY:
                return pace, Next(open=True)
            grown = self.age / PART * 2.0 ** min(self.idle, 16)
            return pace, Next(open=False, seconds=min(grown, self.age + LATE, SELDOM, ANYWAY))
        left = 0.0 if full.by(ahead.records) else max(0.0, self.clean + self.age - now)
        look = min(self.age / PART, OFTEN) if full.limited else left
        return self, Next(open=left <= look, seconds=min(left, look))

    def first_look(self, now: float) -> float:
        """Seconds before the first look after a plan: what came at once is not old yet."""
        return max(0.0, self.planned + min(self.age / PART, OFTEN) - now)
