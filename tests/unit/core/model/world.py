# SPDX-License-Identifier: Apache-2.0
"""A landing without machines: source ends, a control log that may lose its head, tables that are lists of snapshots.

Planning, granting, accepting and settling are the package's own; what is simulated is only what stands around them: an
append-only log, a compare-and-swap per table, a clock. A snapshot keeps the slices it added, so that "once" can be
read from a table's history instead of from its ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID

from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.log import Entry
from airflow_provider_lakecommit.core.model import LIVE, ControlPosition, LedgerSection, TableTarget
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.planning.admission import Terms
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState, TableLedger

LANDING, SPEC = "orders", "s1"
TIMEOUT = timedelta(hours=1)
NEVER = 1_000_000
"""More failed cycles than a story has."""
_BIRTH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One state of a table: its ledger, and the slices that this snapshot added."""

    section: LedgerSection
    added: tuple[AcceptedSlice, ...] = ()


class ControlLog:
    """Append-only; :meth:`cut` loses its head, as retention does."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.begin = 0

    @property
    def end(self) -> int:
        return len(self.entries)

    def append(self, kind: type[Entry], at: datetime, commit_id: UUID, **values: object) -> int:
        self.entries.append(kind(offset=self.end, at=at, commit_id=commit_id, **values))  # type: ignore[arg-type]
        return self.end - 1

    def read(self, start: int) -> list[Entry]:
        return self.entries[max(start, self.begin) :]

    def cut(self, begin: int) -> None:
        self.begin = max(self.begin, min(begin, self.end))


class Table:
    """A table's history on its branch. A rollback leaves the tag behind until the next look writes a new epoch.
    ``gone`` are the attempts that a rollback took out.
    """

    def __init__(self, name: str, number: int, starts: dict[SourcePartition, int], new_epoch: Iterable[UUID]) -> None:
        self.name = name
        self.uuid = UUID(int=1000 + number)
        self.away = False
        self.rolled_back = False
        self.voided: set[UUID] = set()
        self._epochs = iter(new_epoch)
        section = LedgerSection(
            landing=LANDING,
            lane=LIVE,
            cluster_id="c",
            epoch=next(self._epochs),
            spec_version=SPEC,
            starts=starts,
            covered=Coverage(),
            control=_position(0, None),
        )
        self.history = [Snapshot(section=section)]

    @property
    def section(self) -> LedgerSection:
        return self.history[-1].section

    @property
    def ledger(self) -> TableLedger:
        return TableLedger(table=self.name, uuid=self.uuid, section=self.section)

    def target(self) -> TableTarget:
        return TableTarget(
            table=self.name,
            uuid=self.uuid,
            location="",
            schema="{}",
            schema_id=0,
            spec="{}",
            spec_id=0,
            properties={},
            format_version=2,
            epoch=self.section.epoch,
        )

    def renew_epoch(self, log_end: int) -> None:
        """What is reported so far will never be accepted again, so nothing of the log is needed any more."""
        self.rolled_back = False
        section = replace(self.section, epoch=next(self._epochs), control=_position(log_end, None))
        self.history.append(Snapshot(section=section))

    def roll_back(self, keep: int) -> None:
        if keep < len(self.history):
            self.rolled_back = True
            self.voided |= {s.report.attempt for snapshot in self.history[keep:] for s in snapshot.added}
            del self.history[keep:]

    def append(self, slices: Sequence[AcceptedSlice], read_from: int, low: int | None) -> tuple[AcceptedSlice, ...]:
        """The compare-and-swap: only slices of the ledger's epoch that it does not have and that leave no hole."""
        new = [s for s in slices if self._takes(s)]
        ready = settle(new, self.section).ready
        covered = self.section.covered | Coverage.of(item for s in ready for item in s.coverage.items())
        section = replace(self.section, covered=covered, control=_position(read_from, low))
        self.history.append(Snapshot(section=section, added=ready))
        return ready

    def _takes(self, s: AcceptedSlice) -> bool:
        of = s.report.table(self.name)
        return of is not None and of.epoch == self.section.epoch and not self.section.covered.overlaps(s.coverage)


def _position(read_from: int, low: int | None) -> ControlPosition:
    return ControlPosition(cluster_id="c", topic="control", topic_id="k", partition=0, read_from=read_from, low=low)


@dataclass(kw_only=True)
class World:
    """All that is durable, and the time."""

    tables: dict[str, Table]
    ends: dict[SourcePartition, int]
    starts: dict[SourcePartition, int]
    log: ControlLog = field(default_factory=ControlLog)
    now: datetime = _BIRTH
    terms: Terms = field(default_factory=lambda: Terms(stalled_cycles=NEVER))
    attempts: Iterator[UUID] = field(default_factory=lambda: (UUID(int=(1 << 64) + n) for n in count()))

    @classmethod
    def of(cls, tables: Sequence[str], starts: dict[SourcePartition, int]) -> World:
        epochs = (UUID(int=n) for n in count(1))
        made = {name: Table(name, n, starts, epochs) for n, name in enumerate(tables)}
        return cls(tables=made, ends=dict(starts), starts=starts)

    @property
    def watermarks(self) -> dict[SourcePartition, Watermark]:
        return {p: Watermark(start=0, stable=end, high=end) for p, end in self.ends.items()}

    def tick(self, by: timedelta = timedelta(seconds=1)) -> datetime:
        self.now += by
        return self.now

    def read_ledgers(self, *, repair: bool) -> list[TableLedger]:
        """Of the tables that answer. A rolled-back table gets its new epoch first; with ``repair`` also one whose part
        of the log is missing.
        """
        found = [t for t in self.tables.values() if not t.away]
        for t in found:
            low = t.section.control.low
            if t.rolled_back or (repair and low is not None and self.log.begin > low):
                t.renew_epoch(self.log.end)
        return [t.ledger for t in found]

    def landing_state(self, ledgers: Sequence[TableLedger], read_from: int | None = None) -> LandingState:
        start = min((t.section.control.read_from for t in ledgers), default=0) if read_from is None else read_from
        return fold(self.log.read(start), ledgers, TIMEOUT)

    @property
    def target(self) -> Coverage:
        """What every table holds once nothing is left to do."""
        return Coverage.of((p, OffsetRange(self.starts[p], end)) for p, end in self.ends.items())
