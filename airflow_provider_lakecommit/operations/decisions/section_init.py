# SPDX-License-Identifier: Apache-2.0
"""The ledger entry of one table after `lakecommit reset offsets`, and its effect for display.

Contract: pure. A ledger never moves back over offsets that it has, because their rows are in the table, unless the
source's log lost them and has other records there. Reported slices that the source no longer has count as published if
they can be published first, and otherwise as lost.

Failure story: a decision that leaves a partition open, or names offsets that the log does not have, is refused with the
offsets of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.core import (
    BACKFILL,
    RESET_ASSERT,
    AcceptedSlice,
    Coverage,
    LedgerSection,
    RangeSet,
    ReadPosition,
    Rescued,
    Restart,
    SourcePartition,
    StatedOffsets,
    Watermark,
    irreplaceable,
    losses,
    losses_text,
    positions_up_to,
    removed,
    rescued,
    restart,
)
from airflow_provider_lakecommit.cycle import positions_at
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.iceberg import turn_is_over
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.operations.decisions.starts import Start

BEHIND = (
    f"does not go back over {{}}, which it has; if its rows are not in the table, run `{RESET_ASSERT} SPEC --at "
    "TOPIC:PARTITION=OFFSET,…`"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InitTable:
    """The effect of a decision on one table. ``published`` is published first, ``reported`` is voided; ``lost`` of that
    cannot be read again. A table that ``begins`` has no ledger: ``not_again`` was in it before, according to the log,
    and a ledger that begins there does not read it again. A ``keyed`` table has one row per key.
    """

    table: str
    begins: bool
    ends: Mapping[SourcePartition, int]
    given_up: Coverage
    behind: Coverage
    back: Coverage
    published: Coverage
    reported: Coverage
    not_again: Coverage = field(default_factory=Coverage)
    lost: str = ""
    again: Coverage = field(default_factory=Coverage)
    filled: Coverage = field(default_factory=Coverage)
    lane: str = ""
    record_bytes: int = 0
    sink: str = ""
    """The connector of the former turn; what it has landed of a recreated topic is unknown."""
    keyed: bool = False

    @property
    def not_moved_back(self) -> tuple[SourcePartition, ...]:
        """Return the partitions with landed records that are not read again, if others are."""
        return tuple(p for p, end in self.ends.items() if end and self.again and not self.again[p])

    @property
    def what(self) -> str:
        """Return what changes, for the history of the table."""
        parts = (
            ("gives up", self.given_up),
            ("goes back over", self.back),
            ("does not read again", self.not_again),
            ("reads again, although its rows are in the table,", self.again),
            (f"leaves to backfill {self.lane}", self.filled),
            ("loses, reported:", self.lost),
            ("takes over, without the rows landed since the topic was recreated, from connector", self.sink),
        )
        return "; ".join(f"{verb} {ranges}" for verb, ranges in parts if ranges) or "gives up nothing"

    def lines(self) -> Iterator[str]:
        ends = ", ".join(f"{p} {o}" for p, o in self.ends.items())
        yield f"{self.table}: would {'begin' if self.begins else 'continue'} at {ends}"
        parts = (
            ("publishes first, because the source no longer has it", self.published, ""),
            ("GIVES UP, never read", self.given_up, ""),
            (f"leaves to backfill {self.lane}, which `{BACKFILL}` lands", self.filled, ""),
            ("reads AGAIN, although its rows are in the table", self.again, ""),
            ("does NOT read again what was in this table before", self.not_again, ""),
            ("goes BACK over", self.back, ": now other records than the landed ones"),
        )
        yield from (f"  {what}: {_counted(some, self.record_bytes)}{more}" for what, some, more in parts if some)
        if self.keyed and self.again:
            yield "  until they are read again, rows of their keys show OLDER states, and deleted rows are back"
            if self.not_moved_back:
                others = ", ".join(map(str, self.not_moved_back))
                yield f"  keys that also have records in {others} may STAY so: go back in these partitions, too"
        if self.lost:
            yield f"  LOSES, reported and no longer readable: {self.lost}"
        if self.reported:
            yield f"  voids reported slices: {_counted(self.reported)}"
        if self.sink:
            yield (
                f"  TAKES OVER from connector {self.sink}, which must be stopped: its topic was recreated, and it is "
                "unknown what the connector has landed of the new one"
            )
        if self.behind:
            yield f"  {BEHIND.format(_counted(self.behind))}"

    def to_dict(self) -> dict[str, Any]:
        sized = (("given_up", self.given_up), ("again", self.again), ("filled", self.filled))
        return {
            "table": self.table,
            "next": {str(p): o for p, o in self.ends.items()},
            "published_first": self.published.to_dict(),
            "given_up": self.given_up.to_dict(),
            "back": self.back.to_dict(),
            "again": self.again.to_dict(),
            "older": [str(p) for p in self.not_moved_back] if self.keyed and self.again else None,
            "filled": self.filled.to_dict(),
            "lane": self.lane or None,
            "bytes": {what: len(ranges) * self.record_bytes for what, ranges in sized},
            "stays": self.behind.to_dict(),
            "voided": self.reported.to_dict(),
            "not_again": self.not_again.to_dict(),
            "lost": self.lost,
            "connector": self.sink or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class InitPreview:
    """The effect of a decision, of which ``start`` is the start. ``unknown`` is set if nothing knows the landing, with
    the likely name.
    """

    tables: tuple[InitTable, ...]
    unknown: str = ""
    start: Start = ""

    @property
    def lost(self) -> str:
        """Return the reported slices that can neither be published nor read again, as text."""
        return "; ".join(f"{t.table}: {t.lost}" for t in self.tables if t.lost)

    def given_up(self, table: str) -> Coverage:
        return next((t.given_up | t.back | t.again | t.not_again for t in self.tables if t.table == table), Coverage())

    def lines(self) -> Iterator[str]:
        if self.unknown:
            yield f"BEGINS a new landing: {self.unknown}"
        for t in self.tables:
            yield from t.lines()

    def to_dict(self) -> dict[str, Any]:
        return {"unknown": self.unknown or None, "tables": [t.to_dict() for t in self.tables]}


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionInit:
    """The entry of one table after a decision, whatever has landed there since the preview."""

    name: str
    source: SourceState
    stated: StatedOffsets
    old: LedgerSection | None
    passed: Coverage
    firsts: Mapping[SourcePartition, int]
    diverged: Mapping[SourcePartition, int]
    pending: tuple[AcceptedSlice, ...]
    publishable: bool
    drained: bool = False
    """True if what can be published is published first, because a table has slices that the source no longer has."""
    remembered: LedgerSection | None = None
    rolled_back: bool = False
    endangered: Mapping[UUID, str] = field(default_factory=dict)
    unsigned: Coverage = field(default_factory=Coverage)
    published_before: Coverage = field(default_factory=Coverage)
    """What was in a table that has no entry now."""
    reported_before: Coverage = field(default_factory=Coverage)
    """What was to come into it."""
    lane: str = ""
    others: Coverage = field(default_factory=Coverage)
    closed: Coverage = field(default_factory=Coverage)
    """Ranges of closed backfills of the landing."""
    sections: tuple[LedgerSection, ...] = ()
    """All entries of the landing's tables, also those that a rollback took away: a reading that begins now has a
    different generation.
    """
    begun: Mapping[SourcePartition, int] = field(default_factory=dict)
    """The first offsets of the landing's other tables."""
    keyed: bool = False
    last_sequence: int = 0
    """The number of the table's newest snapshot; a connector whose turn ended has landed none after it."""

    def whole(self, section: LedgerSection) -> LedgerSection:
        """Return an entry with what closed backfills have, which a decision includes."""
        return replace(section, covered=section.covered | self.closed)

    def passed_of(self, section: LedgerSection | None) -> Coverage:
        """Return what the table has passed without a row beyond this entry, which may not be the previewed one."""
        same = section is not None and self.old is not None and section.epoch == self.old.epoch
        return self.passed if same else Coverage()

    def restart(self, section: LedgerSection | None) -> Restart:
        """:raises LakecommitError: the decision is incomplete or impossible"""
        found = restart(
            self.stated,
            self.source.partitions,
            self._left if section is None else self.whole(section),
            # Ranges of other streams are before its start, like ranges that were passed without a row.
            passed=self.passed_of(section) | self.others,
            firsts=self.firsts,
            diverged=self.diverged,
            begun=self.begun,
        )
        if section is None and self.remembered is not None:
            # Where the rows of a ledger that is lost end, is known of no partition.
            found = replace(found, unstated=tuple(sorted(self.source.partitions.keys() - self.stated.offsets.keys())))
        _check(self.name, found, self.source.partitions)
        return found

    @property
    def _left(self) -> LedgerSection | None:
        """Return the rest of a lost ledger: what others had landed before its first offsets. A decision leads forward
        from there, and the skipped ranges never count as known to be missing from the table.
        """
        if self.remembered is None:
            return None
        before = Coverage({p: self.remembered.covered[p] & RangeSet.of((0, o)) for p, o in self._first.items()})
        return replace(self.remembered, starts=self._first, covered=before)

    @property
    def _first(self) -> dict[SourcePartition, int]:
        """Return the first offsets of a lost ledger, for the stated partitions."""
        starts = {} if self.remembered is None else self.remembered.starts
        return {p: o for p, o in starts.items() if p in self.stated.offsets}

    def positions(self, section: LedgerSection | None, found: Restart) -> dict[SourcePartition, ReadPosition]:
        """Return the positions that a decision keeps: if it is about a log that was replaced, it accepts the new log.
        Offsets stated because a ledger is lost say nothing about the log.
        """
        if section is None and (remembered := self.remembered) and remembered.cluster_id == self.source.cluster_id:
            return positions_up_to(remembered.positions, ends_of(found, self.source.partitions))
        stated = self.diverged.keys() & self.stated.offsets.keys() | found.back.parts.keys()
        known = section.positions if section else {}
        kept = {p: at for p, at in known.items() if p not in stated and p in self.source.partitions}
        ends = ends_of(found, self.stated.offsets.keys() & self.source.partitions.keys())
        beyond = {p: end for p, end in ends.items() if p not in kept or end > kept[p].offset}
        return kept | positions_at(beyond, self.source.partitions)

    @property
    def rescued(self) -> Rescued:
        """Return the pending slices that can be published before the decision."""
        marks = self.source.partitions
        if self.old is None or not self.publishable:
            return Rescued(lost=losses(irreplaceable(self.pending, marks, self.name), marks))
        return rescued(self.name, self.old, self.pending, marks, self._given_up, drained=self.drained)

    def _given_up(self, section: LedgerSection) -> Coverage:
        """Return what the decision gives up, and what can never be read of a deleted or recreated topic."""
        marks, reported = self.source.partitions, Coverage.union(a.coverage for a in self.pending)
        gone = {*self.source.topic_ids, *self.source.missing_topics}
        anew = {p: s for p, s in reported.parts.items() if p not in marks and p.topic in gone}
        before = Coverage({p: RangeSet.of((section.starts.get(p, 0), s.ranges[-1].end)) for p, s in anew.items()})
        return self.restart(section).given_up | (before - section.covered - self.others)

    @property
    def others_lost(self) -> Iterable[str]:
        """Return what others lose: restored entries keep their epochs, but those of a rolled back table cannot."""
        return self.endangered.values() if self.rolled_back else ()

    @property
    def _ended_sink(self) -> str:
        section = self.old
        if section is None or section.sink is None or not turn_is_over(section, self.source.partitions):
            return ""
        return section.sink.connector

    def preview(self) -> InitTable:
        saved = self.rescued
        after = None if self.old is None else replace(self.old, covered=self.old.covered | saved.covered)
        found = self.restart(after)
        reported = removed(self.reported_before, self.source.partitions)
        ends = ends_of(found, found.starts)
        before = (self.published_before | (self.reported_before - reported)).parts.items()
        not_again = Coverage({p: s & RangeSet.of((0, ends[p])) if p in ends else s for p, s in before})
        lost = (losses_text(saved.lost) if saved.lost else "", str(reported) if reported else "", *self.others_lost)
        return InitTable(
            table=self.name,
            begins=self.old is None,
            ends=ends_of(found, sorted(self.source.partitions)),
            given_up=found.given_up - not_again | saved.bridged,
            behind=found.behind,
            back=found.back,
            published=saved.published,
            reported=Coverage.union(a.coverage for a in self.pending) - saved.published,
            not_again=not_again,
            lost="; ".join(filter(None, lost)),
            again=found.again,
            filled=found.filled,
            lane=self.lane,
            record_bytes=0 if self.old is None else self.old.record_bytes,
            sink=self._ended_sink,
            keyed=self.keyed,
        )


def ends_of(data: Restart, partitions: Iterable[SourcePartition]) -> dict[SourcePartition, int]:
    """Return where a new table continues: at the end of the data table's ledger."""
    return {p: data.covered[p].reach(data.starts.get(p, 0)) for p in partitions}


def _check(name: str, found: Restart, marks: Mapping[SourcePartition, Watermark]) -> None:
    if found.unstated:
        raise LedgerError(
            "LC7012",
            f"{name} has no ledger entry for {', '.join(map(str, found.unstated))}: name "
            f"{'it' if len(found.unstated) == 1 else 'them'} too, or use `earliest` or `latest`; nothing is changed",
        )
    if found.removed:
        removed = "; ".join(f"{p} begins at {marks[p].start}, not at {r.start}" for p, r in found.removed.items())
        raise SourceError(
            "LC7013",
            f"{removed}: nothing is changed; {name} would have to read there, so state offsets that the log has, or "
            f"use `earliest`",
        )


def _counted(coverage: Coverage, record_bytes: int = 0) -> str:
    size = f", about {len(coverage) * record_bytes} bytes" if record_bytes else ""
    return f"{coverage} ({len(coverage)} offsets{size})"
