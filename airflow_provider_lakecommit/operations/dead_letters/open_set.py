# SPDX-License-Identifier: Apache-2.0
"""Find the open dead letters, by the ledgers of the two tables.

Contract: pure. A dead letter is *open* if the data table has its offset from the very reading that rejected the record,
and the ledger does not have it as replayed; in any stream of the landing, closed ones included. If another reading
landed the offset since, it has its own rejects, so older ones are closed, in any dead-letter table. Dead letters of a
reading that the dead-letter table's ledger no longer has are closed too, if a later reading began. After a rollback of
the data table alone, it has another reading of the offset; if that found no row either, the reject stays open. A dead
letter *waits* if one of the tables does not have its offset yet: its range may be read once more. A range that a
backfill replaces waits until that backfill is closed: before, the two tables may be of two readings.

Older rows do not have their reading. They count as of the one that both ledgers have for the offset; if
that leaves two incarnations of a topic, they are *unsure*, and not replayed.

Replayed offsets are also read from the table's remaining snapshots: a writer that does not know replays drops that
part of a ledger with its next commit. A range that was removed or landed again since has its own dead letters, which
are open.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

from airflow_provider_lakecommit.core import Coverage, LedgerSection, OffsetRange, RangeSet, SourcePartition, shares_of
from airflow_provider_lakecommit.iceberg import SnapshotRecord, replaced_of, replay_of
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import DeadLetter

Place = tuple[str, int, int]
"""Topic, partition and offset."""
Readings = Mapping[int | None, Coverage]


class State(StrEnum):
    """The state of a dead letter."""

    OPEN = "open"
    REPLAYED = "replayed, or read again since"
    """Or of a recreated topic, if the ledger continues with the new one."""
    WAITS = "its range is not in both tables yet"
    UNSURE = "its topic was recreated, and both topics had that offset"
    TWICE = "the table has it twice"


def readings_by(sections: Iterable[LedgerSection], *, replacing: bool = False) -> Readings:
    """Return what a table has, by the generation of the reading that landed it; ``None`` if that is unknown.

    :param replacing: include ranges that backfills are replacing and do not show yet
    """
    found: dict[int | None, Coverage] = {}
    for section in (s for s in sections if replacing or not s.replaces):
        shares = shares_of(section.provenance, section.covered)
        rest = section.covered - Coverage.union(s.part for s in shares)
        for generation, part in (*((s.entry.generation, s.part) for s in shares), (None, rest)):
            found[generation] = found.get(generation, Coverage()) | part
    return found


def closed_of(sections: Iterable[LedgerSection], records: Iterable[SnapshotRecord]) -> Coverage:
    """Return the offsets whose dead letters are not open.

    :param sections: of the landing, in one table
    :param records: the snapshots of the landing that are on the branch, newest first
    :raises WireError: one of them does not have its replayed offsets
    """
    closed, anew = Coverage.union(s.replayed for s in sections), Coverage()
    for record in records:
        if (replayed := replay_of(record)) is not None:
            closed |= replayed[0] - anew
        if (taken := replaced_of(record)) is not None:
            anew |= taken.ranges
    return closed


class OpenSet:
    """The open dead letters of one landing.

    :param data: what the data table has, by :func:`readings_by`
    :param dead: what the dead-letter table has, also of backfills that replace; it may be another table than the
        landing's
    :param closed: by :func:`closed_of`
    :param passed: what the data table has read without a row, and no open backfill replaces in one of both tables;
        empty if later rejects are in another dead-letter table
    """

    def __init__(self, data: Readings, dead: Readings, closed: Coverage, passed: Coverage) -> None:
        self._closed, self._passed = closed, _Index(passed)
        self._data = {generation: _Index(coverage) for generation, coverage in data.items()}
        self._had = _Index(Coverage.union(data.values()))
        self._dead = _Index(Coverage.union(dead.values()))
        self._dead_of = {generation: _Index(coverage) for generation, coverage in dead.items()}
        together = {g: coverage & dead.get(g, Coverage()) for g, coverage in data.items()}
        # Closed ones count as present, to remember incarnations of a topic that ledgers no longer have.
        together[None] = together.get(None, Coverage()) | closed
        self._by_generation = {generation: _Index(coverage) for generation, coverage in together.items()}
        self._known_positions: set[tuple[Place, int | None]] = set()

    def state(self, letter: DeadLetter) -> State:
        """Return the state of a dead letter; each row is requested once."""
        position, generation = letter.position, letter.generation
        if (position, generation) in self._known_positions:
            return State.TWICE
        self._known_positions.add((position, generation))
        found = self._readings(letter)
        if len({p for p, _ in found}) > 1:
            return State.UNSURE
        if not found:
            return State.WAITS if self._comes(letter) else State.REPLAYED
        if self._closed[found[0][0]].overlaps(_one(position[2])):
            return State.REPLAYED
        return State.OPEN if self._dead.at(position) else State.WAITS

    def reading(self, letter: DeadLetter) -> tuple[SourcePartition, int | None]:
        """Return the partition of an open one, with its topic's id, and the generation of the reading."""
        return self._readings(letter)[0]

    def _comes(self, letter: DeadLetter) -> bool:
        """Return True if the data table may still get the reading that a dead letter belongs to."""
        position, generation = letter.position, letter.generation
        if generation is not None:
            if any(index.at(position) for index in _later(self._data, generation)):
                return False
            if generation in self._dead_of and self._dead_of[generation].at(position):
                return True
            if any(index.knows(position) for each in (self._data, self._dead_of) for index in _later(each, generation)):
                return False
        return not (self._had.at(position) and self._dead.at(position))

    def _readings(self, letter: DeadLetter) -> list[tuple[SourcePartition, int | None]]:
        """Return the readings that the letter can be of, known ones first."""
        g = letter.generation
        candidates = self._by_generation if g is None else {g: self._data.get(g, _NOWHERE)}
        if g is not None and not candidates[g].at(letter.position) and self._is_no_row(letter.position, g):
            candidates = {other: index for other, index in self._data.items() if other is not None}
        found = [(p, generation) for generation, index in candidates.items() for p in index.at(letter.position)]
        return sorted(found, key=lambda one: one[1] is None)

    def _is_no_row(self, position: Place, generation: int) -> bool:
        """Return True if only the dead-letter table has the reading, its newest, and the data table has no row."""
        own = self._dead_of.get(generation, _NOWHERE).at(position) and self._passed.at(position)
        return bool(own) and not any(index.at(position) for index in _later(self._dead_of, generation))


def _later(readings: Mapping[int | None, _Index], generation: int) -> Iterator[_Index]:
    return (index for g, index in readings.items() if g is not None and g > generation)


class _Index:
    """Coverage by topic and partition, for any topic id."""

    def __init__(self, coverage: Coverage) -> None:
        self._known: defaultdict[tuple[str, int], list[tuple[SourcePartition, RangeSet]]] = defaultdict(list)
        for p, ranges in coverage.parts.items():
            self._known[p.topic, p.partition].append((p, ranges))

    def at(self, position: Place) -> list[SourcePartition]:
        """Return the incarnations of the partition that have the offset."""
        topic, partition, offset = position
        return [p for p, ranges in self._known.get((topic, partition), ()) if ranges.overlaps(_one(offset))]

    def knows(self, position: Place) -> bool:
        """Return True if it has anything of the partition."""
        return position[:2] in self._known


_NOWHERE = _Index(Coverage())


def _one(offset: int) -> OffsetRange:
    return OffsetRange(offset, offset + 1)
