# SPDX-License-Identifier: Apache-2.0
"""Which dead letters are open, as the ledgers of the two tables say.

Contract: pure. A dead letter is *open* if the data table and the dead-letter table both have its offset, and the data
table's ledger does not say that it was replayed, or read again since. It *waits* where one of the tables does not have
its offset yet: then its range may be read once more. Where a topic was made anew, and both incarnations had that
offset, nobody can tell of which the row is: it is *unsure*, and is not replayed.

What was replayed is also taken from the table's snapshots, as far as they are left: a release that does not know of
replays drops that part of a ledger with its next commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum

from airflow_provider_lakecommit.committer.summary import SnapshotRecord, replay_of
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, RangeSet, SourcePartition

__all__ = ["OpenSet", "State", "closed_of"]


class State(StrEnum):
    """What became of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed, or read again since"
    """Or of a topic that was made anew, and the ledger goes on with the new one."""
    WAITS = "its range is not in both tables yet"
    UNSURE = "its topic was made anew, and both had that offset"
    TWICE = "the table has it twice"


def closed_of(section: LedgerSection, records: Iterable[SnapshotRecord]) -> Coverage:
    """The offsets whose dead letters are not open.

    :param records: the snapshots of the section's landing and lane that are on the branch
    :raises WireError: one of them does not tell what it replayed
    """
    found = (told[0] for record in records if (told := replay_of(record)) is not None)
    return Coverage.union([section.replayed, *found])


class OpenSet:
    """Of one landing's lane.

    :param data: the section of the data table
    :param dead: that of the dead-letter table, which may be another one than the landing has now
    :param closed: by :func:`closed_of`
    """

    def __init__(self, data: LedgerSection, dead: LedgerSection, closed: Coverage) -> None:
        both = data.covered & dead.covered
        self._closed = closed | dead.replayed
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
