# SPDX-License-Identifier: Apache-2.0
"""The snapshots that cycles made in a table, from the table's own history.

Contract: reads metadata only, and no snapshot older than the cycle's begin by the log. Snapshots without files do not
count as a run's.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.committer import SnapshotRecord, landing_snapshots
from airflow_provider_lakecommit.core import CycleState
from airflow_provider_lakecommit.cycle.plan.tables import PreparedTable
from airflow_provider_lakecommit.cycle.results import PublishedSnapshot
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession


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
        counts=record.accounting.total,
    )
