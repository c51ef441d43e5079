# SPDX-License-Identifier: Apache-2.0
"""The entries of a landing's control log, in log order, and what they say is in a table.

File lists stay opaque bytes: only published slices are decoded.

For :func:`announced_in`, a table counts by its id: one recreated under the same name is another table. If the log does
not know the id, the newest id it knows is used. A range that a later epoch plans again was rolled back, as no plan
takes landed ranges. A rollback after which nothing was planned leaves no trace in the log. :func:`rows_of` gives the
least number of rows the table must then have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.model import Budget, Cycle, Plan, SliceReport
from airflow_provider_lakecommit.core.offsets import Coverage

MOST_DECISIONS = 50
MOST_TEXT = 300
"""Characters of a reason, and of what a decision came to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A user's decision about a table: one command. The newest snapshots keep it, so that it outlives its own.

    ``at`` is ISO text, ``what`` the ranges that it gave up or went back over.
    """

    command: str
    actor: str
    host: str
    at: str
    landing: str = ""
    reason: str = ""
    what: str = ""

    @property
    def by(self) -> str:
        """Return the text of a decision that concerns no landing, as a rescue of a connector's files."""
        return f"{self.at} {self.actor} on {self.host}: {self.reason or 'no reason given'}"

    def __str__(self) -> str:
        why = f": {self.reason}" if self.reason else ", no reason given"
        return f"{self.at} {self.actor} on {self.host}, `{self.command}` of landing {self.landing}{why}; {self.what}"


def kept_decisions(before: tuple[Decision, ...], new: tuple[Decision, ...]) -> tuple[Decision, ...]:
    """Return the newest of both, oldest first, without duplicates."""
    return tuple(dict.fromkeys((*before, *new)))[-MOST_DECISIONS:]


Raised = tuple[Coverage, Budget]
"""A user's decision to read a blocked range again under another budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What an event changes besides itself, applied in log order.

    ``released``: commit ids whose claims end. ``voided``: attempts that are no longer published. ``decided``: user
    decisions for the next snapshot of each table; they change nothing.
    """

    released: tuple[UUID, ...] = ()
    voided: tuple[UUID, ...] = ()
    raised: tuple[Raised, ...] = ()
    decided: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One record. ``event`` is the id given by its sender; copies of a record share it."""

    offset: int
    at: datetime
    commit_id: UUID
    event: UUID | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOpened(Entry):
    """START_COMMIT: a cycle and its plan. Directives are applied before the claim is made."""

    cycle: Cycle
    plan: Plan
    directives: Directives = field(default_factory=Directives)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed(Entry):
    """START_COMMIT sent again: a commit attempt failed, for these tables or for all if none is named."""

    reason: str
    task_attempt: str
    tables: tuple[str, ...] = ()
    directives: Directives = field(default_factory=Directives)

    def concerns(self, table: str) -> bool:
        return not self.tables or table in self.tables


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceFiles(Entry):
    """DATA_WRITTEN: files of one attempt for one table, as the bytes of the event."""

    attempt: UUID
    table: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceReported(Entry):
    """DATA_COMPLETE: one attempt's report, in the same transaction as its files and after them."""

    report: SliceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePublished(Entry):
    """COMMIT_TO_TABLE: a table got a snapshot. Older events have no ``uuid``. ``debt`` is the table's compaction debt,
    as a share of its limit.
    """

    table: str
    snapshot_id: int
    token: UUID
    coverage: Coverage
    directives: Directives = field(default_factory=Directives)
    uuid: UUID | None = None
    debt: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(Entry):
    """A record that is ignored, because it cannot be read or contradicts itself."""

    reason: str

    def describe(self, partition: int) -> str:
        """Return a text with the record's place in the control topic."""
        return f"{partition}@{self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsVoided(Entry):
    """DATA_COMPLETE without a position: files of these attempts are about to be removed, so later reports are ignored.

    ``commit_id`` names the sweep.
    """

    attempts: tuple[UUID, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRequested(Entry):
    """DATA_COMPLETE without a position: tasks of a ``job`` must stop at the current record and report; without one, all
    tasks.

    Without a job no attempt continues the cycle: later cycles plan what it lacks.
    """

    job: UUID | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleClosed(Entry):
    """COMMIT_COMPLETE: no table operation of this cycle failed."""

    valid_through: datetime | None
    directives: Directives = field(default_factory=Directives)


def announced_in(entries: Sequence[Entry], table: str, uuid: UUID) -> Coverage:
    """Return the ranges that were published in a table and not planned again since.

    :param entries: of one lane, in log order
    """
    source = _source_of(entries, table, uuid)
    landed: dict[UUID | None, Coverage] = {}
    order: dict[UUID | None, int] = {None: -1}
    epochs: list[tuple[Coverage, UUID]] = []
    for e in entries:
        match e:
            case CycleOpened() if (epoch := _epoch_of(e, table, source)) is not None:
                age = order.setdefault(epoch, len(order))
                again = Coverage.union(s.coverage for s in e.plan.slices if table in s.tables)
                landed = {k: c - again if order.get(k, -1) < age else c for k, c in landed.items()}
            case SliceReported() if (of := e.report.table(table)) is not None:
                epochs.append((e.report.coverage, of.epoch))
            case TablePublished() if e.table == table and e.uuid in (None, source):
                key = next((k for c, k in reversed(epochs) if c.overlaps(e.coverage)), None)
                landed[key] = landed.get(key, Coverage()) | e.coverage
    return Coverage.union(landed.values())


def rows_of(entries: Sequence[Entry], table: str, coverage: Coverage) -> int:
    """Return the rows that these ranges gave, as far as the log still has their reports."""
    rows, counted = 0, Coverage()
    for e in reversed(entries):
        of = e.report.table(table) if isinstance(e, SliceReported) else None
        if not isinstance(e, SliceReported) or of is None:
            continue
        ranges = e.report.coverage
        if not ranges - coverage and not ranges.overlaps(counted):
            rows, counted = rows + of.rows, counted | ranges
    return rows


def _epoch_of(e: CycleOpened, table: str, uuid: UUID | None) -> UUID | None:
    return next((t.epoch for t in e.plan.targets if t.table == table and t.uuid == uuid), None)


def _source_of(entries: Sequence[Entry], table: str, uuid: UUID) -> UUID | None:
    """Return the present table id, or the newest one that the log knows."""
    known = [e.uuid for e in entries if isinstance(e, TablePublished) and e.table == table and e.uuid is not None]
    return uuid if uuid in known or not known else known[-1]
