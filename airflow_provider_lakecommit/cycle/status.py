# SPDX-License-Identifier: Apache-2.0
"""Where a landing stands: ledger ends against the source, what is staged, what is open, what needs a hand.

Contract: one look at tables, control topic and source, folded as a cycle would fold them; writes nothing. A table that
does not exist yet, or has no ledger yet, is shown as such. Numbers are offsets, an upper bound of records.

Failure story: parts that are away raise their own errors; a ledger that needs a person is a state, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_lakecommit.committer.ledger import Condition, LedgerState, read_ledger
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning import Watermark
from airflow_provider_lakecommit.core.settle import passed_ends, settle, valid_through
from airflow_provider_lakecommit.core.view import AcceptedSlice, CycleState, TableLedger, View
from airflow_provider_lakecommit.cycle.rim import Rim
from airflow_provider_lakecommit.exceptions import ControlTopicError

__all__ = ["OpenCycle", "PartitionStatus", "Status", "TableStatus", "read_status", "to_dict"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableStatus:
    """One table: its ledger, and what waits to be published in it."""

    table: str
    condition: str
    reason: str
    snapshot_id: int | None
    head_id: int | None
    foreign_since: int
    ends: Mapping[SourcePartition, int]
    pending_slices: int = 0
    pending_files: int = 0
    pending_bytes: int = 0
    waiting: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatus:
    """One source partition. ``lag`` is what the slowest table lacks of what can be read, ``kept`` how many landed
    offsets the source still holds before it would remove one that is not landed.
    """

    partition: SourcePartition
    start: int
    stable: int
    high: int
    landed: int | None
    lag: int
    held_up: int

    @property
    def kept(self) -> int | None:
        return None if self.landed is None else self.landed - self.start


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCycle:
    """A cycle without its COMMIT_COMPLETE, or one that others have overtaken."""

    cycle: CycleState
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All of it."""

    landing: str
    at: datetime
    tables: tuple[TableStatus, ...]
    partitions: tuple[PartitionStatus, ...]
    cycles: tuple[OpenCycle, ...]
    blocked: tuple[str, ...]
    valid_through: datetime | None
    missing_topics: tuple[str, ...] = ()

    @property
    def lag(self) -> int:
        return sum(p.lag for p in self.partitions)


def read_status(rim: Rim) -> Status:
    """Look once.

    :raises CatalogError: the catalog is away
    :raises ControlTopicError: the control topic is away
    :raises SourceUnavailableError: the source is away
    """
    at = rim.now()
    states = [(name, _ledger(rim, name)) for name in rim.landing.tables]
    ledgers = [_table_ledger(rim, name, state) for name, state in states if state is not None and _section(rim, state)]
    source = rim.source.watermarks(missing_ok=True)
    view = _view(rim, ledgers)
    by_name = {t.table: t for t in ledgers}
    reached = [passed_ends(t, view.accepted[t.table], source.partitions) for t in ledgers]
    return Status(
        landing=rim.landing.name,
        at=at,
        tables=tuple(_table(name, state, by_name.get(name), view, source.partitions) for name, state in states),
        partitions=tuple(_partition(p, w, reached) for p, w in sorted(source.partitions.items())),
        cycles=tuple(OpenCycle(cycle=c, live=c.live(at)) for c in view.open_cycles()),
        blocked=tuple(f"{b.coverage}: {b.reason}" for b in view.blocked),
        valid_through=_valid_through(view, reached) if len(ledgers) == len(states) else None,
        missing_topics=source.missing_topics,
    )


def _view(rim: Rim, ledgers: Sequence[TableLedger]) -> View:
    """Before the first cycle there may be no control topic; afterwards its absence is an error."""
    try:
        return rim.look(ledgers).view
    except ControlTopicError:
        if ledgers:
            raise
        return fold((), (), rim.landing.completion_timeout)


def _ledger(rim: Rim, table: str) -> LedgerState | None:
    found = rim.tables.find(table)
    return None if found is None else read_ledger(found.metadata, rim.landing.branch)


def _section(rim: Rim, state: LedgerState) -> bool:
    return state.section(rim.landing.name, rim.lane) is not None


def _table_ledger(rim: Rim, name: str, state: LedgerState) -> TableLedger:
    section = state.section(rim.landing.name, rim.lane)
    if section is None:
        raise ValueError(f"{name} has no ledger of {rim.landing.name}")
    others = state.covered(exclude=(rim.landing.name, rim.lane))
    return TableLedger(table=name, uuid=state.table_uuid, section=section, others=others)


def _table(
    name: str,
    state: LedgerState | None,
    ledger: TableLedger | None,
    view: View,
    partitions: Iterable[SourcePartition],
) -> TableStatus:
    if state is None or ledger is None:
        return TableStatus(
            table=name,
            condition="missing" if state is None else str(Condition.ABSENT),
            reason="there is no such table yet" if state is None else "nothing of this landing is in it yet",
            snapshot_id=None,
            head_id=None if state is None else state.head_id,
            foreign_since=0,
            ends={},
        )
    staged: tuple[AcceptedSlice, ...] = tuple(a for a in view.accepted[name] if a.file_count(name))
    return TableStatus(
        table=name,
        condition=str(state.condition),
        reason=state.reason,
        snapshot_id=state.snapshot_id,
        head_id=state.head_id,
        foreign_since=state.foreign_since,
        ends={p: ledger.section.end(p) for p in sorted(partitions)},
        pending_slices=len(staged),
        pending_files=sum(a.file_count(name) for a in staged),
        pending_bytes=sum(a.report.bytes for a in staged),
        waiting=tuple(str(w) for w in settle(staged, ledger.section).waiting),
    )


def _partition(
    p: SourcePartition, mark: Watermark, reached: Iterable[Mapping[SourcePartition, int]]
) -> PartitionStatus:
    landed = min((ends[p] for ends in reached), default=None)
    return PartitionStatus(
        partition=p,
        start=mark.start,
        stable=mark.stable,
        high=mark.high,
        landed=landed,
        lag=max(0, mark.stable - (mark.start if landed is None else landed)),
        held_up=mark.high - mark.stable,
    )


def _valid_through(view: View, reached: Sequence[Mapping[SourcePartition, int]]) -> datetime | None:
    partitions = reached[0] if reached else {}
    return valid_through(view.cycles.values(), {p: min(ends[p] for ends in reached) for p in partitions})


def to_dict(status: Status) -> dict[str, Any]:
    """For JSON."""
    return {
        "landing": status.landing,
        "at": status.at.isoformat(),
        "lag": status.lag,
        "valid_through": None if status.valid_through is None else status.valid_through.isoformat(),
        "tables": [_table_to_dict(t) for t in status.tables],
        "partitions": [
            {
                "partition": str(p.partition),
                "topic_id": p.partition.topic_id,
                "start": p.start,
                "stable": p.stable,
                "high": p.high,
                "landed": p.landed,
                "lag": p.lag,
                "held_up": p.held_up,
                "kept": p.kept,
            }
            for p in status.partitions
        ],
        "cycles": [_cycle_to_dict(c) for c in status.cycles],
        "blocked": list(status.blocked),
        "missing_topics": list(status.missing_topics),
    }


def _table_to_dict(t: TableStatus) -> dict[str, Any]:
    return {
        "table": t.table,
        "condition": t.condition,
        "reason": t.reason,
        "snapshot_id": t.snapshot_id,
        "head_id": t.head_id,
        "foreign_since": t.foreign_since,
        "ends": {str(p): end for p, end in t.ends.items()},
        "pending": {"slices": t.pending_slices, "files": t.pending_files, "bytes": t.pending_bytes},
        "waiting": list(t.waiting),
    }


def _cycle_to_dict(c: OpenCycle) -> dict[str, Any]:
    state = c.cycle
    return {
        "commit_id": str(state.cycle.commit_id),
        "dag": state.cycle.dag,
        "run": state.cycle.run,
        "opened_at": state.at.isoformat(),
        "deadline": state.deadline.isoformat(),
        "live": c.live,
        "released": state.released,
        "claim": str(state.claim),
        "unfinished": len(state.unfinished),
        "failed_attempts": dict(state.failed),
    }
