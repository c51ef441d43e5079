# SPDX-License-Identifier: Apache-2.0
"""When a continuous run opens its next window, and when it checks the source again.

Contract: pure, times are seconds of one clock. The arrival of a record is unknown, but the last check without it is
known: the age of the oldest new record is at most the time since the newest check that found nothing beyond the newest
plan. A window is opened when that age is ``window_age``, or earlier when it is full. The next step after a check:

=================================  ==========================================
the check found                    next step
=================================  ==========================================
nothing new                        a check, after a pause that grows
nothing new for a long time        a window anyway
something new, as old as allowed   a window
something new, enough for one      a window
something new, else                a window when it will be old enough; if one
                                   can be full before, a check meanwhile
=================================  ==========================================

A window without new records reports up to when the tables are complete, and finds changes by other users.
:class:`FollowOptions` has the options of a run.

Invariants: a check is at most :data:`LATE` after a record may reach its limit, so that the pause of an idle topic
delays a record by no more than that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta

from airflow_provider_lakecommit.core import SourcePartition, Watermark
from airflow_provider_lakecommit.exceptions import SpecError

ANYWAY = 300.0
"""Seconds without new records, after which a window is opened anyway."""
LATE = 1.0
PART = 4
"""Checks within ``window_age``."""
OFTEN = 5.0
"""Most seconds between checks, if a window can be full before it is old."""
SELDOM = 30.0
"""Most seconds between checks, if nothing is new."""
UNKNOWN_BYTES = 1024
"""Assumed bytes of a record until some have landed."""


def is_full(records: int, record_bytes: int, *, max_records: int | None, max_bytes: int | None) -> bool | None:
    """Return True if a window of so many records is full; ``None`` if windows have no limit.

    :param record_bytes: size of a record so far, 0 if unknown
    """
    if max_records is None and max_bytes is None:
        return None
    size = records * (record_bytes or UNKNOWN_BYTES)
    return (max_records is not None and records >= max_records) or (max_bytes is not None and size >= max_bytes)


def ahead_of(ends: Mapping[SourcePartition, int], now: Mapping[SourcePartition, Watermark]) -> tuple[int, int]:
    """Return the number of the source's readable offsets beyond the ends of a plan, with all those of new partitions,
    and of those held up by open transactions.
    """
    readable = sum(max(0, w.stable - max(w.start, ends.get(p, 0))) for p, w in now.items())
    return readable, sum(max(0, w.high - w.stable) for w in now.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The state of a continuous run between two windows.

    :param age: seconds that a record may wait for a window
    :param planned: when the ends of the newest plan were requested
    :param clean: start of the newest check that found nothing new
    :param idle: checks in a row that found nothing new
    """

    age: float
    planned: float
    clean: float
    idle: int = 0

    @classmethod
    def after(cls, planned: float, age: float) -> Pace:
        """Return the state after a plan whose ends were requested at that time."""
        return cls(age=age, planned=planned, clean=planned)

    def saw(self, ahead: int, *, checked_at: float, now: float, full: bool | None) -> tuple[Pace, float, bool]:
        """Return the state after a check, the seconds before the next step, and True if that step opens a window.

        :param ahead: readable offsets that it found beyond the newest plan
        :param checked_at: start of the check; ``now``: when it was answered
        :param full: as :func:`is_full`
        """
        if not ahead:
            pace = replace(self, clean=checked_at, idle=self.idle + 1)
            if now - self.planned >= ANYWAY:
                return pace, 0.0, True
            grown = self.age / PART * 2.0 ** min(self.idle, 16)
            return pace, min(grown, self.age + LATE, SELDOM, ANYWAY), False
        left = 0.0 if full else max(0.0, self.clean + self.age - now)
        pause = left if full is None else min(self.age / PART, OFTEN)
        return self, min(left, pause), left <= pause

    def first_check(self, now: float) -> float:
        """Return the seconds before the first check after a plan: records that came at once are not old yet."""
        return max(0.0, self.planned + min(self.age / PART, OFTEN) - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowOptions:
    """Options of one continuous run.

    :param window_age: open the next window when the oldest unplanned record may be this old
    :param lifetime: open no window after this time; ``None``: until stopped
    :param interval: time between log lines, and between clean-ups of the tables
    :param keep_snapshots: expire older snapshots of this landing; ``None``: none
    :raises SpecError: a time is not above zero
    """

    window_age: timedelta = timedelta(seconds=2)
    lifetime: timedelta | None = None
    interval: timedelta = timedelta(seconds=60)
    keep_snapshots: timedelta | None = timedelta(hours=1)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (not isinstance(value, timedelta) or value <= timedelta(0)):
                raise SpecError("LC6216", f"follow: {f.name} {value!r} is not a time above zero")
