# SPDX-License-Identifier: Apache-2.0
"""Find up to which source offsets a sink's table holds what the sink has read, and the ledger entry after its turn.

Contract: pure. A sink commits its source offsets in one Kafka transaction with the announcement of the files that hold
the records before them. So once its tasks have ended and everything announced is in the table, the offsets of its
consumer group divide the records: all before them are in the table, none from them on. Both are read, and must agree:
after a reset, offsets show where the sink would read, not what its table has. An entry begins where the sink ended, and
covers the ranges before that, without marks; if the landing had a turn before, the entry keeps its ranges and gains
those of the sink since. Ranges that both have landed are reported: the ledger can hold them only once.

Failure story: an unknown offset is a problem by name, with both numbers; the user may state which of them is right.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from airflow_provider_lakecommit.core import (
    RESET_OFFSETS,
    Coverage,
    LedgerSection,
    OffsetRange,
    SourcePartition,
    Watermark,
)

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
    def read(self) -> Places:
        """Return how far it has read, by its consumer group where that has an offset."""
        return {**self.announced, **self.offsets}

    @property
    def topics(self) -> set[str]:
        return {topic for topic, _ in self.read}


def sink_offsets(
    progress: SinkProgress,
    marks: Mapping[SourcePartition, Watermark],
    *,
    by: By = By.BOTH,
    known: Places = MappingProxyType({}),
    earliest: bool = True,
) -> tuple[dict[SourcePartition, int], tuple[str, ...]]:
    """Return where each partition continues, and what is unknown about it.

    :param known: offsets that are right although it did not read up to there: a landing's turn ended there. What it has
        read of partitions that did not exist then, and do not exist now, was of an earlier topic
    :param earliest: the sink begins with the first record of a partition without an offset
    """
    found = {p: _next(progress, p, mark, by, known, earliest=earliest) for p, mark in marks.items()}
    there = {(p.topic, p.partition) for p in marks}
    read = progress.read
    stated = progress.offsets if by is By.OFFSETS else read
    missing = [(t, n) for t, n in sorted(stated.keys() - there) if not known or (t, n) in known]
    anew = {t for t, _ in missing}
    # What else differs in a recreated topic differs for that reason.
    problems = [problem for p, (_, problem) in found.items() if problem and p.topic not in anew]
    problems += [
        f"{t}[{n}]: it has read to offset {read[t, n]}, but the topic has no such partition: {MADE_ANEW}"
        for t, n in missing
    ]
    return {p: offset for p, (offset, _) in found.items()}, tuple(problems)


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
        return (mark.high, f"{p}: it has read to offset {offset}, but the partition ends at {mark.high}: {MADE_ANEW}")
    return offset, ""


def _differs(offset: int, announced: int) -> str:
    reason = f"its consumer group is at {offset}, but its events show {announced}: its offsets were reset; "
    if offset < announced:
        return f"{reason}{announced - offset} offsets from {offset} on are in the table, or were removed from it"
    return f"{reason}{offset - announced} offsets from {announced} on are unread"


def spans(ranges: Mapping[SourcePartition, tuple[int, int]]) -> Coverage:
    """Return ranges by their starts and ends, without those that end before they begin."""
    return Coverage.of((p, OffsetRange(start, end)) for p, (start, end) in ranges.items() if start < end)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The landing's turn after a sink's. ``gained`` is what the sink has landed since the landing's last turn,
    ``twice`` what both have, ``back`` what the landing has handed back and the sink would read again. ``done``: it has
    begun already.
    """

    starts: Mapping[SourcePartition, int]
    covered: Coverage
    gained: Coverage = field(default_factory=Coverage)
    twice: Coverage = field(default_factory=Coverage)
    back: Coverage = field(default_factory=Coverage)
    refused: str = ""
    done: bool = False


def turn_after(
    connector: str,
    now: LedgerSection | None,
    ends: Mapping[SourcePartition, int],
    read: Collection[SourcePartition],
    *,
    data: LedgerSection | None = None,
) -> Turn:
    """Return the entry after a turn.

    :param now: the landing's, if it has one
    :param ends: where the sink's turn ended, or would have begun
    :param read: the partitions in which the sink has read
    :param data: for another table than the data table, the data table's entry, which has the start of the sink's turn.
        A table that was rolled back ends before that, and the sink has landed nothing of what it lacks.
    """
    leading = data or now
    was_handed = leading is not None and leading.sink is not None and leading.sink.lands
    if now is None or leading is None or not (now.covered or leading.covered or was_handed):
        done = now is not None and now.sink is not None and not now.sink.lands and dict(now.sink.since) == dict(ends)
        # Rows of the sink do not identify their records, and its start is unknown, so everything before counts.
        before = spans({p: (0, end) for p, end in ends.items() if p in read})
        return Turn(starts=dict(ends), covered=before, gained=before, done=done)
    sink = leading.sink
    if sink is None or sink.connector != connector:
        after = "itself" if sink is None else f"after connector {sink.connector}"
        refused = f"landing {now.landing} has landed {now.covered} there {after}, not after connector {connector}"
        return Turn(starts=now.starts, covered=now.covered, refused=refused)
    ids = {p.topic: p.topic_id for p in ends}
    former = {p for p in (*now.starts, *now.covered.parts) if ids.get(p.topic, p.topic_id) != p.topic_id}
    topics = {p.topic for p in former}
    its = {p: end for p, end in ends.items() if p in read}
    reach = {p: leading.end(p) for p in its}
    gained = spans({p: (reach[p], end) for p, end in its.items()})
    begun = {p: end for p, end in ends.items() if p.topic in topics}
    starts = {**begun, **{p: min(end, reach[p]) for p, end in its.items()}, **now.starts}
    starts = {p: start for p, start in starts.items() if p not in former}
    covered = Coverage({p: some for p, some in now.covered.parts.items() if p not in former}) | gained
    if sink.lands:
        back = spans({p: (end, reach[p]) for p, end in its.items()})
        return Turn(starts=starts, covered=covered, gained=gained, back=back)
    twice = spans({p: (sink.since.get(p, 0), min(end, reach[p])) for p, end in its.items()})
    return Turn(starts=starts, covered=covered, gained=gained, twice=twice, done=not gained and not twice)
