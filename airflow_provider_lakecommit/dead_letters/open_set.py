# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are open, as the ledgers of the two tables say.

Contract: pure. A dead letter is *open* if the data table and the dead-letter table both have its offset, and the data
table's ledger does not say that it was replayed, or read again since; whichever lane of the landing has it, also one
that was closed. It *waits* where one of the tables does not have its offset yet: then its range may be read once more.
What a lane lands anew waits until that lane is closed: before, the two tables may be of two readings. Where a topic was
made anew, and both incarnations had that offset, nobody can tell of which the row is: it is *unsure*, and is not
replayed.

What was replayed is also taken from the table's snapshots, as far as they are left: a release that does not know of
replays drops that part of a ledger with its next commit. A range that was taken out or landed anew since has dead
letters of its own, which are open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

from airflow_provider_lakecommit.committer.replaced import replaced_of
from airflow_provider_lakecommit.committer.summary import SnapshotRecord
from airflow_provider_lakecommit.committer.summary_extras import replay_of
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition

__all__ = ["OpenSet", "State", "closed_of", "had_by"]


class State(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed, or read again since"
    """Or of a topic that was made anew, and the ledger goes on with the new one."""
    WAITS = "its range is not in both tables yet"
    UNSURE = "its topic was made anew, and both had that offset"
    TWICE = "the table has it twice"


def had_by(sections: Iterable[LedgerSection]) -> Coverage:
    """What a table has, of which its dead letters are those of the last reading."""
    return Coverage.union(s.covered for s in sections if not s.replaces)


def closed_of(sections: Iterable[LedgerSection], records: Iterable[SnapshotRecord]) -> Coverage:
    """The offsets whose dead letters are not open.

    :param sections: of the landing, in one table
    :param records: the snapshots of the landing that are on the branch, newest first
    :raises WireError: one of them does not tell what it replayed
    """
    closed, anew = Coverage.union(s.replayed for s in sections), Coverage()
    for record in records:
        if (told := replay_of(record)) is not None:
            closed |= told[0] - anew
        if (taken := replaced_of(record)) is not None:
            anew |= taken.ranges
    return closed


class OpenSet:
    """Of one landing.

    :param data: what the data table has, by :func:`had_by`
    :param dead: what the dead-letter table has, which may be another one than the landing has now
    :param closed: by :func:`closed_of`
    """

    def __init__(self, data: Coverage, dead: Coverage, closed: Coverage) -> None:
        both = data & dead
        self._closed = closed
        self._known: defaultdict[tuple[str, int], list[tuple[SourcePartition, RangeSet]]] = defaultdict(list)
        # What is closed counts as had: so incarnations of a topic that ledgers do not have any more are remembered.
        for p, ranges in (both | self._closed).parts.items():
            self._known[p.topic, p.partition].append((p, ranges))
        self._seen: defaultdict[tuple[str, int], set[int]] = defaultdict(set)

    def state(self, place: tuple[str, int, int]) -> State:
        """Of a dead letter; each place is asked for once."""
        seen = self._seen[place[:2]]
        if place[2] in seen:
            return State.TWICE
        seen.add(place[2])
        found = self._incarnations(place)
        if len(found) != 1:
            return State.UNSURE if found else State.WAITS
        return State.REPLAYED if self._closed[found[0]].overlaps(_one(place[2])) else State.OPEN

    def partition(self, place: tuple[str, int, int]) -> SourcePartition:
        """That of an open one, with its topic's id."""
        (found,) = self._incarnations(place)
        return found

    def _incarnations(self, place: tuple[str, int, int]) -> list[SourcePartition]:
        topic, partition, offset = place
        return [p for p, ranges in self._known.get((topic, partition), ()) if ranges.overlaps(_one(offset))]


def _one(offset: int) -> OffsetRange:
    return OffsetRange(offset, offset + 1)
