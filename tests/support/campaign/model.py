# SPDX-License-Identifier: Apache-2.0
"""What must be in the tables: every record that the campaign has produced, and what became of it.

Contract: pure. A record is in the data table once, or in the dead-letter table once, or an operation gave it up and
named it, or another engine took it out, or the source removed it before it was read. :meth:`Model.judge` returns what
is wrong after a step, in sentences; nothing wrong is an empty list.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from tests.fakes.broker import MemoryBroker
from tests.support.campaign.console import Answer
from tests.support.campaign.reader import Found

__all__ = ["Born", "Model", "Nature", "named_in"]

# The lines by which commands show what they give up, delete or leave to later; and the ranges in such a line.
GIVES_UP = re.compile(r"GIVES UP|gives up|CANNOT be read again|LOSES|does NOT read again|has removed|given up")
DELETES = re.compile(r"DELETES|goes BACK")
LEAVES = re.compile(r"leaves to backfill|is read again by|stays open|lacks")
_PLACE = re.compile(r"([\w.-]+)\[(\d+)\]((?: \[\d+, \d+\))+)")
_RANGE = re.compile(r"\[(\d+), (\d+)\)")

Places = set[tuple[str, int, int]]


class Nature(Enum):
    """What a step may do to rows."""

    LANDS = auto()
    """A run: whatever ends it, no row goes, and some may have come."""
    DECIDES = auto()
    """A decision of an operator: refused, it changes nothing; what it takes out it names."""
    KEEPS = auto()
    """Rows stay as they are."""
    SOURCE = auto()
    """Something happens to the topics; no row changes."""
    FOREIGN = auto()
    """Another engine, which may take rows out."""


@dataclass(frozen=True, slots=True)
class Born:
    """Where a record was produced."""

    topic: str
    topic_id: str
    partition: int
    offset: int

    @property
    def place(self) -> tuple[str, int, int]:
        return self.topic, self.partition, self.offset


def named_in(log: str, phrase: re.Pattern[str]) -> Places:
    """The offsets in the lines of a log that have this phrase."""
    found: Places = set()
    for line in log.splitlines():
        if phrase.search(line):
            for topic, partition, ranges in _PLACE.findall(line):
                for start, end in _RANGE.findall(ranges):
                    found |= {(topic, int(partition), o) for o in range(int(start), int(end))}
    return found


@dataclass(slots=True)
class Model:
    """``logs`` holds what the source holds."""

    logs: MemoryBroker
    born: dict[int, Born] = field(default_factory=dict)
    now: Found = field(default_factory=Found)
    observed: set[int] = field(default_factory=set)
    given_up: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    revived: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    """Records that another engine has put in the tables twice: until a command has dealt with it, no fault of ours."""
    touched: bool = False
    """Has another engine taken rows out, so that an alarm may be right?"""

    def readable(self) -> set[int]:
        """The records that the source still has."""
        return {
            n
            for n, at in self.born.items()
            if (topic := self.logs.topics.get(at.topic)) is not None
            and topic.topic_id == at.topic_id
            and at.partition < len(topic.partitions)
            and self._is_in(n, at)
        }

    def _is_in(self, n: int, at: Born) -> bool:
        log = self.logs.topics[at.topic].partitions[at.partition]
        found = log.between(at.offset, at.offset + 1)
        return bool(found) and found[0].key() == str(n).encode()

    def ids_at(self, places: Places) -> set[int]:
        """The records at these offsets, of every incarnation of a topic."""
        return {n for n, at in self.born.items() if at.place in places}

    def evaluate(
        self, nature: Nature, found: Found, answer: Answer | None = None, *, revives: bool = False
    ) -> list[str]:
        """What is wrong with the tables after a step; the model goes on from there."""
        before, self.now = self.now, found
        twice = self._twice()
        self.doubled = twice if nature is Nature.FOREIGN else self.doubled & twice
        problems = list(self._doubles(before, revives))
        removed = before.ids - found.ids
        if answer is not None:
            self._note(answer)
        self.touched |= nature is Nature.FOREIGN and _changed(before, found)
        if nature is not Nature.FOREIGN and (unnamed := removed - self._may_go(nature, answer)):
            problems.append(f"rows of {self._some(unnamed)} are gone, and nothing has named them")
        if nature is Nature.DECIDES and answer is not None and not answer.done and _changed(before, found):
            problems.append("the operation was refused, and rows changed")
        if answer is not None and answer.unforeseen:
            problems.append(f"an exception that is none of the package's: {answer.log[-1500:]}")
        # What was deleted by name, or by another engine, is to be landed again as long as it can be read.
        self.observed = (self.observed - removed) | found.ids
        self.given_up -= found.ids
        self.waiting -= found.ids
        self.revived &= set(found.rows) & set(found.dead)
        return problems

    def missing(self) -> list[str]:
        """What is wrong after all that can be read was landed."""
        lacking = self.readable() - self.now.ids - self.given_up - self.waiting
        return [f"{self._some(lacking)} can be read, and are in no table"] if lacking else []

    def lost(self) -> list[str]:
        """What is wrong when everything is finished: rows that were there and will not come back."""
        self.waiting = set()
        lost = self.observed - self.now.ids - self.given_up
        twice = [f"{self._some(self.doubled)} are still more than once in the tables"] if self.doubled else []
        return [*self.missing(), *([f"{self._some(lost)} were in a table, and are in none"] if lost else []), *twice]

    @property
    def wrong(self) -> bool:
        """Return True if `verify` has to say that something is wrong."""
        return any(n > 1 for n in (*self.now.rows.values(), *self.now.dead.values())) or bool(self._both())

    def _twice(self) -> set[int]:
        return {
            n for counts in (self.now.rows, self.now.dead) for n, times in counts.items() if times > 1
        } | self._both()

    def _both(self) -> set[int]:
        return set(self.now.rows) & set(self.now.dead) - self.revived

    def _doubles(self, before: Found, revives: bool) -> Iterable[str]:
        if revives:
            self.revived |= set(self.now.rows) & set(self.now.dead) - (set(before.rows) & set(before.dead))
        for name, counts in (("data", self.now.rows), ("dead-letter", self.now.dead)):
            if twice := {n for n, times in counts.items() if times > 1} - self.doubled:
                yield f"{self._some(twice)} are more than once in the {name} table"
        if both := self._both() - self.doubled:
            yield f"{self._some(both)} are in both tables"

    def _note(self, answer: Answer) -> None:
        if answer.done:
            self.given_up |= self.ids_at(named_in(answer.log, GIVES_UP))
            self.waiting |= self.ids_at(named_in(answer.log, LEAVES))

    def _may_go(self, nature: Nature, answer: Answer | None) -> set[int]:
        if nature is not Nature.DECIDES or answer is None or not answer.done:
            return set()
        return self.ids_at(named_in(answer.log, DELETES) | named_in(answer.log, GIVES_UP))

    def _some(self, ids: set[int]) -> str:
        shown = ", ".join(f"{n} ({_at(self.born[n])})" for n in sorted(ids)[:5])
        return f"{len(ids)} records ({shown}{', …' if len(ids) > 5 else ''})"


def _at(born: Born) -> str:
    return f"{born.topic}[{born.partition}]@{born.offset} of {born.topic_id[:6]}"


def _changed(before: Found, found: Found) -> bool:
    pairs: tuple[tuple[Mapping[int, int], Mapping[int, int]], ...] = (
        (before.rows, found.rows),
        (before.dead, found.dead),
    )
    return any(Counter(a) != Counter(b) for a, b in pairs)
