# SPDX-License-Identifier: Apache-2.0
"""What must be in a table that has one row per key: for each key its newest change, of those that were landed.

Contract: pure. Which offsets were landed is what the ledger says, and which readings of them the control topic; what
their records were then, and which of them is the newest, the campaign knows. A key whose records are being read again
may have an older state until that is done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core.model import LIVE, LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from tests.fakes.broker import MemoryPartition
from tests.support.campaign.console import Answer
from tests.support.campaign.model import Born, Model, Nature
from tests.support.campaign.reader import Found, Reading

__all__ = ["Change", "Key", "UpsertModel", "Way"]

Key = tuple[Any, ...]
"""The values of the key columns, as they are in JSON."""
Mark = tuple[int, SourcePartition, int]
"""A landed offset, by the generation of its reading."""
Place = tuple[SourcePartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How a landing upserts. ``ordered``: by a column first; ``anywhere``: records of a key are in any partition."""

    deletes: str
    key: Mapping[str, str]
    partition_by: tuple[str, ...] = ()
    ordered: bool = False
    envelope: bool = False
    sql: bool = False
    anywhere: bool = False

    def key_of(self, number: int) -> Key:
        """Return the key of a number."""
        return tuple(_MADE[kind.partition("(")[0]](number) for kind in self.key.values())

    def key_in(self, row: Mapping[str, Any]) -> Key:
        """Return the key of a row."""
        return tuple(_in_json(row[name]) for name in self.key)


_MADE: Mapping[str, Any] = {
    "long": lambda n: n,
    "int": lambda n: n // 2,
    "string": lambda n: "ab"[n % 2],
    "uuid": lambda n: str(UUID(int=n // 2)),
    "date": lambda n: f"2026-01-{1 + n % 2:02}",
    "decimal": lambda n: f"{n // 2}.50",
    "boolean": lambda n: n % 2 == 1,
}


def _in_json(value: Any) -> Any:
    match value:
        case bytes():
            return str(UUID(bytes=value))
        case date() | Decimal() | UUID():
            return str(value)
    return value


@dataclass(slots=True, kw_only=True)
class Change:
    """A record. Its ``kind`` is ``set``, ``deletion``, ``nothing`` (no change) or ``dead`` (always a dead letter)."""

    id: int
    key: Key
    kind: str
    version: int
    more: bool
    log: MemoryPartition
    epoch: int
    incarnation: int
    """How often its topic was made anew before."""
    partition: int
    offset: int = -1

    @property
    def name(self) -> str:
        return f"n{self.id}"

    @property
    def is_lost(self) -> bool:
        """Return True if its log has lost it."""
        return self._end is not None and self.offset >= self._end

    @property
    def _end(self) -> int | None:
        after = self.log.epochs[self.epoch + 1 :]
        return after[0] if after else None

    @property
    def age(self) -> float:
        """Return its place among the records of its log, which it keeps if the log loses it."""
        return self.offset if not self.is_lost or self._end is None else self._end - 0.5


@dataclass(slots=True)
class UpsertModel(Model):
    """``bound`` has the change of each landed offset, or None for one that was given up; ``present`` are those of the
    current ledger.
    """

    way: Way = field(kw_only=True)
    changes: dict[int, Change] = field(default_factory=dict)
    bound: dict[Mark, int | None] = field(default_factory=dict)
    read: dict[Mark, int | None] = field(default_factory=dict)
    """The record that an offset had when its newest report was sent. Its log may have lost that record since."""
    lacking: set[Mark] = field(default_factory=set)
    """The offsets that were read while the table had no column for a field of theirs, which their reports say."""
    heard: int = 0
    """How many reports are in it."""
    present: set[Mark] = field(default_factory=set)
    starts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Where the live stream began."""
    compared: int = 0
    """How many rows were compared with their keys' changes."""

    def evaluate(
        self, nature: Nature, found: Found, answer: Answer | None = None, *, revives: bool = False
    ) -> list[str]:
        """What is wrong with the tables after a step."""
        own = [s for s in found.sections if s.landing == "orders"]
        self._hear(found.readings)
        self._bind(own, nature)
        self.starts = {(p.topic_id, p.partition): o for s in own if s.lane == LIVE for p, o in s.starts.items()}
        ids = {n for mark in self.present if (n := self.bound[mark]) is not None and self.changes[n].kind != "dead"}
        landed = Found(Counter(ids), Counter({*found.dead}), found.heads)
        wrong = Model.evaluate(self, nature, landed, answer, revives=revives)
        return [*wrong, *self._wrong(found.live, Coverage.union(s.covered for s in own))]

    def readable(self) -> set[int]:
        """The records that the source still has, and that can be landed: what lies before the start is a backfill's. A
        ledger need not have those that were read and give no row.
        """
        found = Model.readable(self) - {n for n in self.read.values() if n is not None and self._is_rowless(n)}
        if self.way.deletes != "hard":
            return found
        begun = ((n, self.starts.get((self.born[n].topic_id, self.born[n].partition), 0)) for n in found)
        return {n for n, start in begun if self.born[n].offset >= start}

    def _is_rowless(self, n: int) -> bool:
        kind = self.changes[n].kind
        return kind == "nothing" or (kind == "deletion" and self.way.deletes == "ignore")

    def _is_in(self, n: int, at: Born) -> bool:
        log = self.logs.topics[at.topic].partitions[at.partition]
        return at.offset >= log.start and not self.changes[n].is_lost

    # -- what was landed ----------------------------------------------------------------------------------------------

    def _hear(self, readings: Sequence[Reading]) -> None:
        """Note which records the offsets of new reports have."""
        here = {(at.topic_id, at.partition, at.offset): n for n, at in self.born.items() if not self.changes[n].is_lost}
        for reading in readings[self.heard :]:
            for p, offset in _offsets(reading.coverage):
                mark = reading.generation, p, offset
                (self.lacking.add if "more" in reading.ignored else self.lacking.discard)(mark)
                self.read[mark] = here.get((p.topic_id, p.partition, offset))
                if self.bound.get(mark, 0) is None:
                    # It was given up, and is read after all.
                    del self.bound[mark]
        self.heard = len(readings)

    def _bind(self, own: Sequence[LedgerSection], nature: Nature) -> None:
        """Note which record an offset had when it was read, of those that are landed now; what was never reported was
        given up.
        """
        before, self.present = self.present, set(_marks(own))
        for mark in self.present:
            if mark not in self.bound or (mark not in before and nature is not Nature.FOREIGN):
                self.bound[mark] = self.read.get(mark)

    def _clouded(self, covered: Coverage) -> set[Key]:
        """Return the keys of which a landed record was missing back over: it is not read again, or was given up
        then.
        """
        newest: dict[Place, int] = {}
        for generation, p, offset in self.present:
            newest[p, offset] = max(generation, newest.get((p, offset), generation))
        current = {topic.topic_id for topic in self.logs.topics.values()}
        known = {*_offsets(covered)}
        out = set[Key]()
        for mark in self.present:
            _, p, offset = mark
            n = self.bound[mark]
            if n is None or p.topic_id not in current or self.changes[n].is_lost:
                continue
            if (p, offset) not in known or self.bound[newest[p, offset], p, offset] is None:
                out.add(self.changes[n].key)
        return out

    # -- what the table must have -------------------------------------------------------------------------------------

    def _newest(self) -> dict[Key, list[Change]]:
        """Return the landed changes of each key, the newest first."""
        out: dict[Key, dict[int, Change]] = {}
        for mark in self.present:
            change = self.changes.get(self.bound[mark] or 0)
            if change is None or change.kind not in ("set", "deletion"):
                continue
            if change.kind == "set" or self.way.deletes != "ignore":
                out.setdefault(change.key, {})[change.id] = change
        return {key: sorted(some.values(), key=self._rank, reverse=True) for key, some in out.items()}

    def _rank(self, change: Change) -> tuple[float, ...]:
        return change.version if self.way.ordered else 0, change.incarnation, change.age, change.id

    def _wrong(self, live: Sequence[Mapping[str, Any]], covered: Coverage) -> Iterator[str]:
        newest, clouded = self._newest(), self._clouded(covered)
        rows: dict[Key, Mapping[str, Any]] = {}
        for row in live:
            key = self.way.key_in(row)
            if key in rows:
                yield f"key {key} has two rows: {_text(row)} and {_text(rows[key])}"
            rows[key] = row
            if (why := self._no_row_of(row, newest.get(key, ()))) is not None:
                yield f"key {key}: {_text(row)} {why}"
        for key, changes in newest.items():
            if key in clouded:
                continue
            self.compared += 1
            allowed = [*_until_kept(changes)]
            if not any(self._is_row_of(rows.get(key), change) for change in allowed):
                yield f"key {key}: {_text(rows.get(key))} is not its newest change, {_listed(allowed)}"

    def _is_row_of(self, row: Mapping[str, Any] | None, change: Change | None) -> bool:
        if change is None or (change.kind == "deletion" and self.way.deletes == "hard"):
            return row is None
        return row is not None and (row["kafka_partition"], row["kafka_offset"]) == (change.partition, change.offset)

    def _no_row_of(self, row: Mapping[str, Any], changes: Iterable[Change]) -> str | None:
        """Return why a row is of none of its key's landed changes."""
        for change in changes:
            if self._is_row_of(row, change) and not (wrong := self._differences(row, change)):
                return None
            if self._is_row_of(row, change) and row["id"] in (change.id, None):
                return f"is the row of {_listed([change])}, and has other values: {wrong}"
        return f"is no landed change of its key, which are {_listed(changes)}"

    def _differences(self, row: Mapping[str, Any], change: Change) -> list[str]:
        deleted = change.kind == "deletion"
        expected = {"id": None if deleted else change.id, "name": None if deleted else change.name}
        expected |= {"ver": change.version} if self.way.ordered else {}
        expected |= {"_is_deleted": deleted} if self.way.deletes == "soft" else {}
        if "more" in row:
            at = self.born[change.id]
            mark = row["kafka_generation"], SourcePartition(at.topic, at.partition, at.topic_id), at.offset
            expected["more"] = change.id if change.more and mark not in self.lacking else None
        return [name for name, value in expected.items() if row[name] != value]


def _marks(own: Iterable[LedgerSection]) -> Iterator[Mark]:
    for section in own:
        for entry in section.provenance:
            yield from ((entry.generation, p, o) for p, o in _offsets(entry.coverage))


def _offsets(coverage: Coverage) -> Iterator[Place]:
    for p, ranges in coverage.parts.items():
        yield from ((p, o) for r in ranges for o in range(r.start, r.end))


def _until_kept(changes: Sequence[Change]) -> Iterator[Change | None]:
    """The newest change, and if the log has lost it the one before it: to read the log again may bring that back."""
    for change in changes:
        yield change
        if not change.is_lost:
            return
    yield None


def _text(row: Mapping[str, Any] | None) -> str:
    if row is None:
        return "no row"
    return f"row {row['id']} of [{row['kafka_partition']}]@{row['kafka_offset']} reading {row['kafka_generation']}"


def _listed(changes: Iterable[Change | None]) -> str:
    text = (
        "none"
        if c is None
        else f"{c.kind} {c.id} [{c.partition}]@{c.offset} version {c.version}{' (lost)' if c.is_lost else ''}"
        for c in changes
    )
    return ", ".join(text)
