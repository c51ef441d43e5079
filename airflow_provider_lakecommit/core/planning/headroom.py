# SPDX-License-Identifier: Apache-2.0
"""Retention headroom: how long the oldest unread offset of each source partition is still kept.

Kafka removes whole segments, oldest first, when their *newest* timestamp is older than `retention.ms`. So offset ``x``
stays at least until the newest timestamp at or below ``x`` plus the retention, in whatever order timestamps are. The
bound is found by asking for the first offset at or after a time, without reading records: an answer at or below ``x``
raises the lower bound, a later one lowers the upper bound.

Unanswered questions leave the headroom *unknown*, with a reason. Size-based retention cannot be predicted from offsets.
:func:`source_notes` warns of what retention and compaction removed before the first record of a topic is landed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from airflow_provider_lakecommit.core.log import CycleOpened, Entry
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.state import LandingState

FOREVER_MS = 10_000 * 365 * 86_400_000
"""A longer retention counts as none; `retention.ms` may be any 64-bit number."""
EXACT_SHARE = 100
"""A headroom is exact enough if its uncertainty is at most this fraction of the retention."""
_COARSE = (2, 16, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """A topic's removal settings. ``time`` and ``bytes`` are ``None`` if unlimited."""

    time: timedelta | None
    bytes: int | None
    compacted: bool = False

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Retention:
        """Read a topic's settings.

        :raises KeyError: a setting is missing
        :raises ValueError: a value is not a number
        """
        policy = {part.strip() for part in settings["cleanup.policy"].split(",")}
        ms, size = int(settings["retention.ms"]), int(settings["retention.bytes"])
        deletes = "delete" in policy
        return cls(
            time=timedelta(milliseconds=ms) if deletes and 0 <= ms < FOREVER_MS else None,
            bytes=size if deletes and size >= 0 else None,
            compacted="compact" in policy,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """What is known of one partition's oldest unread offset at ``at``.

    ``low`` and ``high`` bound the newest timestamp at or below ``offset``. Without ``retention``, ``why`` says why
    nothing is known.
    """

    partition: SourcePartition
    offset: int
    at: datetime
    retention: Retention | None = None
    low: datetime | None = None
    high: datetime | None = None
    why: str = ""

    def learn(self, moment: datetime, found: tuple[int, datetime] | None) -> Headroom:
        """Return the headroom after one answer: the first offset at or after ``moment``, and its timestamp, if there is
        one.
        """
        if found is None or found[0] > self.offset:
            return replace(self, high=moment if self.high is None else min(moment, self.high))
        low = found[1] if self.low is None else max(found[1], self.low)
        return replace(self, low=low, high=low if found[0] == self.offset else self.high)

    @property
    def expires_at(self) -> datetime | None:
        """Return the earliest time of removal by age; ``None`` if never or unknown."""
        return self._end(self.low)

    @property
    def left(self) -> timedelta | None:
        return None if self.expires_at is None else self.expires_at - self.at

    @property
    def due(self) -> datetime | None:
        """Return :attr:`expires_at` or, if only an upper bound is known, that."""
        return self.expires_at or self._end(self.high)

    def short_of(self, threshold: timedelta) -> bool:
        """Return True if it is known to expire within that time."""
        latest = self._end(self.high)
        return latest is not None and latest - self.at <= threshold

    @property
    def sharp(self) -> bool:
        """Return True if nothing is left to request."""
        if self.retention is None or self.retention.time is None:
            return True
        if self.low is None:
            return self.high is not None and self.high <= _before(self.at, self.retention.time)
        if self.low >= self.at:
            return True
        return self.high is not None and (self.high - self.low) * EXACT_SHARE <= self.retention.time

    def _end(self, newest: datetime | None) -> datetime | None:
        time = self.retention.time if self.retention else None
        try:
            return None if time is None or newest is None else newest + time
        except OverflowError:
            return None

    def __str__(self) -> str:
        size = self.retention.bytes if self.retention else None
        by_size = "" if size is None else f"; by size: unknown (retention.bytes={size})"
        return f"the oldest unread offset {self.offset} {self._how_long()}{by_size}"

    def _how_long(self) -> str:
        if self.retention is None:
            return f"expires at an unknown time ({self.why or 'not requested'})"
        if self.retention.time is None:
            what = "compacted: a newer record of its key may replace it" if self.retention.compacted else "retention.ms"
            return f"is never removed for its age ({what})"
        if self.left is not None:
            return f"expires in {duration_text(self.left)} at the earliest" if self.left > timedelta(0) else _OVERDUE
        if (latest := self.due) is None:
            return f"expires at an unknown time ({self.why or 'no answer in time'})"
        return f"may expire within {duration_text(latest - self.at)}" if latest > self.at else _OVERDUE


_OVERDUE = "may be removed at any time: it is older than retention.ms"


def oldest_unread(
    landing_state: LandingState, watermarks: Mapping[SourcePartition, Watermark]
) -> dict[SourcePartition, int]:
    """Return per partition the first offset that is neither in every table nor reported. Claimed ranges count as
    unread.
    """
    out: dict[SourcePartition, int] = {}
    for table, ledger in landing_state.ledgers.items():
        accepted = landing_state.accepted_coverage(table)
        for p, mark in watermarks.items():
            begin = max(ledger.end(p), mark.start)
            have = ledger.has(p) | accepted[p]
            unread = RangeSet.of((begin, max(begin, mark.high))) - have
            if unread:
                first = unread.ranges[0].start
                out[p] = min(first, out.get(p, first))
    return out


def interval_of(entries: Sequence[Entry]) -> timedelta | None:
    """Return the median interval between opened cycles; ``None`` with fewer than two."""
    opened = [e.at for e in entries if isinstance(e, CycleOpened)][-11:]
    apart = [(b - a).total_seconds() for a, b in pairwise(opened)]
    return timedelta(seconds=median(apart)) if apart else None


def threshold_of(completion_timeout: timedelta, interval: timedelta | None) -> timedelta:
    """Return the headroom below which to warn: a window that dies now must still be read by the next one."""
    return max(completion_timeout, 2 * (interval or timedelta(0)))


def first_times(retention: Retention, at: datetime, threshold: timedelta, *, few: bool) -> tuple[datetime, ...]:
    """Return the first times to ask for: one that shows whether the headroom is short and, if ``few``, some for its
    length.
    """
    if retention.time is None:
        return ()
    since = _before(at, retention.time)
    short = since + min(threshold, at - since)
    coarse = (at - retention.time / part for part in _COARSE) if few and since > _EPOCH else ()
    return tuple(sorted({short, *(t for t in coarse if t > short)}))


def next_time(found: Headroom) -> datetime | None:
    """Return the next time to ask for, which halves the uncertainty; ``None`` if it is exact enough."""
    if found.sharp or found.retention is None or found.retention.time is None:
        return None
    if found.low is None:
        return _before(found.at, found.retention.time)
    return found.low + ((found.high or found.at) - found.low) / 2


_EPOCH = datetime.fromtimestamp(0, UTC)


def _before(at: datetime, time: timedelta) -> datetime:
    """A retention may be longer than the time since the epoch."""
    return _EPOCH if time >= at - _EPOCH else at - time


def duration_text(time: timedelta) -> str:
    """Return the two largest units, as in ``6 d 4 h``; below a minute, seconds."""
    seconds = max(0, int(time.total_seconds()))
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (name, size), (small, less) in pairwise(units):
        if seconds >= size:
            rest = seconds % size // less
            return f"{seconds // size} {name}" + (f" {rest} {small}" if rest else "")
    return f"{seconds} s"


def source_notes(
    watermarks: Mapping[SourcePartition, Watermark], landed: Coverage, compacted: Collection[str], *, earliest: bool
) -> Iterator[str]:
    """Yield one warning per topic of which nothing is landed, if there is one.

    :param compacted: names of compacted topics
    :param earliest: the landing reads topics from their beginning
    """
    known = {p.topic for p in landed.parts}
    for topic in sorted({p.topic for p in watermarks} - known):
        of_topic = [mark for p, mark in watermarks.items() if p.topic == topic]
        removed, end = sum(m.start for m in of_topic), sum(m.high for m in of_topic)
        rows = (
            (not end, "is empty: nothing was produced to it; check the topic's name and the cluster"),
            (
                earliest and removed == end,
                f"has no records: its retention removed all {end:,} offsets before they were landed; produce them "
                "again, or raise retention.ms before the next ones",
            ),
            (
                topic in compacted,
                "is compacted: Kafka keeps the newest record of each key, so the table lacks the records that were "
                "replaced before they were landed",
            ),
            (
                earliest and removed > 0,
                f"begins late: its retention removed {removed:,} of {end:,} offsets before they were landed, and the "
                "table lacks them",
            ),
        )
        if (note := next((text for applies, text in rows if applies), None)) is not None:
            yield f"topic {topic} {note}"
