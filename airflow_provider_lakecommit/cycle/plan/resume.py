# SPDX-License-Identifier: Apache-2.0
"""Where a run continues: the results of its earlier attempts, from the control topic and the tables.

Contract: a run of several cycles is *finished* when all of them are over, the newest is completely reported, and it
left nothing to this run: open cycles continue under their numbers, oldest first; after a finished one with gaps the run
continues with the next number. Snapshots are named from the tables, so that all named ones exist. Nothing is written
here.

Failure story: cycles that the log no longer has (retention) count as nonexistent: the run begins again, and rows in the
tables are not read again.

A cycle's snapshots in a table are read from the table's own history: metadata only, and no snapshot older than the
cycle's begin by the log. Snapshots without files do not count as a run's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.core import CycleClosed, CycleState, total_of
from airflow_provider_lakecommit.core.fold import fold
from airflow_provider_lakecommit.cycle.plan.known import all_entries
from airflow_provider_lakecommit.cycle.plan.ready_tables import PreparedTable
from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity, cycle_id_of
from airflow_provider_lakecommit.iceberg import SnapshotRecord, landing_snapshots


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierCycles:
    """The cycles of a run that the log holds, by their numbers; at least one. Several may be open.

    ``voided``: slices were given up that the newest cycle could not plan again yet.
    """

    cycles: tuple[CycleState, ...]
    partition: int
    control_topic: str
    valid_through: datetime | None
    voided: bool

    @property
    def newest(self) -> CycleState:
        return self.cycles[-1]

    @property
    def number(self) -> int:
        """Return the number of the cycle that the run continues with: the oldest open one, else the next one."""
        return next((c.cycle.number for c in self.cycles if not c.over), self.newest.cycle.number + 1)

    def finished(self, most: int | None) -> bool:
        """Return True if nothing is left to do for a run of *most* cycles."""
        enough = not self.newest.plan.left or (most is not None and self.number >= most)
        # Gaps of an older cycle are for a cycle opened after its end.
        lacking = any(c.unfinished for c in self.cycles if self.newest.offset <= _end_or_start(c))
        done = all(c.over for c in self.cycles) and not lacking and not self.voided
        return done and enough and not self.newest.plan.deferred

    def to_closed(self, table: str, published: Iterable[PublishedSnapshot]) -> Closed:
        """Return the finished run as one cycle that is closed now."""
        newest = self.newest
        return Closed(
            commit_id=newest.cycle.commit_id,
            table=table,
            published=tuple(published),
            left=newest.plan.left,
            valid_through=self.valid_through,
            reason=newest.plan.reason,
        )

    def __str__(self) -> str:
        done = [c for c in self.cycles if c.plan.slices]
        windows = "; ".join(f"cycle {c.cycle.commit_id}: {c.plan.coverage}" for c in done) or "nothing was planned"
        where = f"partition {self.partition} of {self.control_topic}"
        return f"{len(self.cycles)} cycles of this run, from offset {self.cycles[0].offset} of {where}: {windows}"


def cycles_of(session: LandingSession, run: RunIdentity, since: datetime | None = None) -> EarlierCycles | None:
    """Return the cycles of a run anywhere in the log, as far as its retention goes, whatever their numbers.

    :param since: where to search first, to avoid reading the whole log
    :raises ControlTopicError: the control topic cannot be read
    """
    session.control.ensure()
    for begin in dict.fromkeys((since, None)):
        if (found := _cycles_since(session, run, begin)) is not None:
            return found
    return None


def _cycles_since(session: LandingSession, run: RunIdentity, since: datetime | None) -> EarlierCycles | None:
    for partition, entries in all_entries(session, since):
        landing_state = fold(entries, (), session.landing.window.completion_timeout)
        mine = [c for c in landing_state.cycles.values() if _is_of(session, run, c)]
        if mine:
            cycles = tuple(sorted(mine, key=lambda c: c.cycle.number))
            newest, ids = cycles[-1], {c.cycle.commit_id for c in cycles}
            # The first COMPLETE of each cycle.
            closed = [e for e in entries if isinstance(e, CycleClosed) and e.commit_id in ids]
            ends = {e.commit_id: e for e in reversed(closed)}
            end = ends.get(newest.cycle.commit_id)
            return EarlierCycles(
                cycles=cycles,
                partition=partition,
                control_topic=session.control.name,
                valid_through=end.valid_through if end else None,
                voided=any(e.directives.voided for e in ends.values() if e.offset > newest.offset),
            )
    return None


def published_by(session: LandingSession, earlier: EarlierCycles) -> tuple[PublishedSnapshot, ...]:
    """Return the snapshots of the run's finished cycles, in order per table. Those of an open cycle are reported at its
    close. A missing table has none.

    :raises LakecommitError: a table cannot be read
    """
    ids, since = {c.cycle.commit_id for c in earlier.cycles if c.over}, earlier.cycles[0].offset
    tables = {name: session.tables.find(name) for name in session.landing.tables} if ids else {}
    return tuple(
        p
        for name, table in tables.items()
        if table is not None
        for p in snapshots_of(session, name, table.metadata, ids, since=since)
    )


def _is_of(session: LandingSession, run: RunIdentity, c: CycleState) -> bool:
    return c.cycle.commit_id == cycle_id_of(session, replace(run, number=c.cycle.number))


def _end_or_start(c: CycleState) -> int:
    return c.offset if c.closed_at is None else c.closed_at


def published_before(
    session: LandingSession, table: PreparedTable, cycle: CycleState, announced: Collection[UUID] | None = None
) -> tuple[PublishedSnapshot, ...]:
    """Return a cycle's snapshots with files in a table, oldest first; all, or those with ``announced`` tokens."""
    ids = {cycle.cycle.commit_id}
    return snapshots_of(session, table.name, table.table.metadata, ids, since=cycle.offset, announced=announced)


def snapshots_of(
    session: LandingSession,
    name: str,
    metadata: TableMetadata,
    cycles: Collection[UUID],
    *,
    since: int,
    announced: Collection[UUID] | None = None,
) -> tuple[PublishedSnapshot, ...]:
    """Return the snapshots with files that cycles of this stream made in a table, oldest first.

    :param since: log offset at which the first of them began; older snapshots are not read
    :param announced: only those with these tokens
    """
    branch, found = session.landing.branch, []
    for record in landing_snapshots(metadata, branch, landing=session.landing.name, lane=session.lane):
        if not record.publishes:
            continue
        if record.control_end is None or record.control_end.offset < since:
            break
        if record.commit_id is None or record.commit_id not in cycles:
            continue
        if announced is None or record.token in announced:
            found.append(snapshot_of(record, name, record.commit_id))
    return tuple(p for p in reversed(found) if p.files)


def snapshot_of(record: SnapshotRecord, table: str, commit_id: UUID) -> PublishedSnapshot:
    """Return the summary of a landing snapshot."""
    return PublishedSnapshot(
        table=table,
        snapshot_id=record.snapshot_id,
        commit_id=commit_id,
        coverage=record.ranges,
        rows=record.rows,
        files=int(record.extra.get("files", 0)),
        counts=total_of(record.accounting.values()),
    )
