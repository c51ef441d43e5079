# SPDX-License-Identifier: Apache-2.0
"""What the control log of a landing says, as frozen entries in log order: the only input of the fold besides the
ledgers.

Contract: an entry is one record of the landing's control partition. ``offset`` is its place, ``at`` its timestamp
(UTC). File lists stay opaque bytes here: only the slices that are published are ever decoded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.model import Budget, Cycle, Plan, SliceReport
from airflow_provider_lakecommit.core.offsets import Coverage


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A person's word on a blocked range: read it again under another budget."""

    coverage: Coverage
    budget: Budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Directives:
    """What an event of a plan or commit task may say besides itself, applied in log order.

    ``released`` are commit ids whose claims end, ``voided`` are attempts of slices that are not published any more.
    ``decided`` is what a person decided by it: it changes nothing, the next snapshot of each table tells of it.
    """

    released: tuple[UUID, ...] = ()
    voided: tuple[UUID, ...] = ()
    raised: tuple[Raised, ...] = ()
    decided: tuple[Decision, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """``event`` is the id that its sender gave the record: a copy of it, by whom ever, has the same one."""

    offset: int
    at: datetime
    commit_id: UUID
    event: UUID | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleOpened(Entry):
    """START_COMMIT: a cycle and its plan. Its directives are applied before its claim is made."""

    cycle: Cycle
    plan: Plan
    directives: Directives = field(default_factory=Directives)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFailed(Entry):
    """START_COMMIT sent again: a commit attempt of this cycle failed. ``task_attempt`` tells attempts apart.

    ``tables`` are those that failed; none, where the failure was of no table alone.
    """

    reason: str
    task_attempt: str
    tables: tuple[str, ...] = ()
    directives: Directives = field(default_factory=Directives)


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
    """COMMIT_TO_TABLE: a table got its snapshot. ``uuid`` is the table's own id; the older form of events has none."""

    table: str
    snapshot_id: int
    token: UUID
    coverage: Coverage
    directives: Directives = field(default_factory=Directives)
    uuid: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable(Entry):
    """A record that claims to be one of these and is not, by its bytes or by what it says: nothing is taken from it."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptsVoided(Entry):
    """Attempts whose files are about to be removed: what reports one of them from here on is not taken. It is of no
    cycle, its ``commit_id`` names the sweep.
    """

    attempts: tuple[UUID, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndAsked(Entry):
    """The tasks of one ``job`` of a cycle are to end behind the record in hand, and to report what they have; without a
    job, those of all, and no attempt goes on with the cycle: what it lacks is planned by later ones.
    """

    job: UUID | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleClosed(Entry):
    """COMMIT_COMPLETE: no table operation of this cycle failed."""

    valid_through: datetime | None
    directives: Directives = field(default_factory=Directives)
