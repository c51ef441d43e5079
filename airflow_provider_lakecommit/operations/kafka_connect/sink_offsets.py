# SPDX-License-Identifier: Apache-2.0
"""Find up to which source offsets a sink's table holds what the sink has read.

Contract: pure. A sink commits its source offsets in one Kafka transaction with the announcement of the files that hold
the records before them. So once its tasks have ended and everything announced is in the table, the offsets of its
consumer group divide the records: all before them are in the table, none from them on. Both are read, and must agree:
after a reset, offsets show where the sink would read, not what its table has.

Failure story: an unknown offset is a problem by name, with both numbers; the user may state which of them is right.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from airflow_provider_lakecommit.core import RESET_OFFSETS, Coverage, OffsetRange, SourcePartition, Watermark

MADE_ANEW = (
    "the topic was recreated, and it is unknown what the connector has landed of it since. If its consumer group has "
    "the offsets up to which it has landed the present topic, or after you have set them, continue there with --by "
    f"offsets; if it has landed nothing of it, stop it for good, and run `{RESET_OFFSETS} SPEC --from earliest` to "
    "begin with the current records"
)
Places = Mapping[tuple[str, int], int]
"""Next offsets by topic and partition."""


class By(StrEnum):
    """Which statement of a sink's offsets is valid if they differ."""

    BOTH = "both"
    """Neither's: it is refused."""
    OFFSETS = "offsets"
    """That of its consumer group: the landing reads again, and leaves out, what the connector would have."""
    ANNOUNCED = "announced"
    """Its events: what it has announced is in the table, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkProgress:
    """The known progress. ``offsets`` are those of its consumer group, ``announced`` the newest in its events; while it
    runs, these were announced between ``least`` and ``announced``.
    """

    offsets: Places
    announced: Places
    least: Places

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in (*self.offsets, *self.announced)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOffsets:
    """Where a landing continues after it. ``read`` are the partitions in which it has read; ``left`` is what it has not
    read yet, ``removed`` what it has not read and the source no longer has.
    """

    next: Mapping[SourcePartition, int]
    read: frozenset[SourcePartition]
    problems: tuple[str, ...]
    left: Coverage
    removed: Coverage


def sink_offsets(
    progress: SinkProgress,
    marks: Mapping[SourcePartition, Watermark],
    *,
    by: By = By.BOTH,
    known: Places = MappingProxyType({}),
    earliest: bool = True,
) -> SinkOffsets:
    """Return where each partition continues.

    :param known: offsets that are right although it did not read up to there: a landing's turn ended there. What it has
        read of partitions that did not exist then, and do not exist now, was of an earlier topic
    :param earliest: the sink begins with the first record of a partition without an offset
    """
    found = {p: _next(progress, p, mark, by, known, earliest=earliest) for p, mark in marks.items()}
    there = {(p.topic, p.partition) for p in marks}
    read = {**progress.announced, **progress.offsets}
    stated = progress.offsets if by is By.OFFSETS else read
    missing = [(t, n) for t, n in sorted(stated.keys() - there) if not known or (t, n) in known]
    anew = {t for t, _ in missing}
    # What else differs in a recreated topic differs for that reason.
    problems = [problem for p, (_, problem) in found.items() if problem and p.topic not in anew]
    problems += [
        f"{t}[{n}]: it has read to offset {read[t, n]}, but the topic has no such partition: {MADE_ANEW}"
        for t, n in missing
    ]
    ends = {p: offset for p, (offset, _) in found.items()}
    return offsets_at(ends, marks, frozenset(p for p in marks if (p.topic, p.partition) in read), tuple(problems))


def offsets_at(
    ends: Mapping[SourcePartition, int],
    marks: Mapping[SourcePartition, Watermark],
    read: frozenset[SourcePartition] = frozenset(),
    problems: tuple[str, ...] = (),
) -> SinkOffsets:
    """Return these offsets with what is left, and removed, from there on."""
    return SinkOffsets(
        next=ends,
        read=read,
        problems=problems,
        left=_spans({p: (max(o, marks[p].start), marks[p].high) for p, o in ends.items()}),
        removed=_spans({p: (o, marks[p].start) for p, o in ends.items()}),
    )


def _next(
    progress: SinkProgress, p: SourcePartition, mark: Watermark, by: By, right: Places, *, earliest: bool
) -> tuple[int, str]:
    key = (p.topic, p.partition)
    offset, announced = progress.offsets.get(key), progress.announced.get(key)
    least = progress.least.get(key, announced)
    if by is By.ANNOUNCED and announced is not None:
        offset = announced
    elif by is By.BOTH and announced is not None and least is not None:
        if offset is None and announced > mark.high:
            offset = announced
        elif offset is None:
            return announced, (
                f"{p}: its consumer group has no offset (offsets expire some days after the last member left, and are "
                f"removed with a deleted topic), but its events "
                f"show {announced}"
            )
        elif not least <= offset <= announced and offset != right.get(key):
            return offset, f"{p}: {_differs(offset, announced)}"
    if offset is None:
        if not earliest and mark.start < mark.high:
            return mark.high, f"{p}: it has read nothing of it, and the offset at which it began is no longer known"
        return mark.start, ""
    if offset > mark.high:
        return (
            mark.high,
            f"{p}: it has read to offset {offset}, but the partition ends at {mark.high}: {MADE_ANEW}",
        )
    return offset, ""


def _differs(offset: int, announced: int) -> str:
    reason = f"its consumer group is at {offset}, but its events show {announced}: its offsets were reset; "
    if offset < announced:
        return f"{reason}{announced - offset} offsets from {offset} on are in the table, or were removed from it"
    return f"{reason}{offset - announced} offsets from {announced} on are unread"


def _spans(ranges: Mapping[SourcePartition, tuple[int, int]]) -> Coverage:
    return Coverage.of((p, OffsetRange(start, end)) for p, (start, end) in ranges.items() if start < end)
