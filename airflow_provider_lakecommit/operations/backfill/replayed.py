# SPDX-License-Identifier: Apache-2.0
"""Find what a run has replaced whose backfill is closed: for an attempt after the one that did it.

Contract: reads the control log and the tables, and writes nothing. A run has replaced its range when a cycle that
announces it (:func:`~airflow_provider_lakecommit.operations.backfill.replaying.replace_lane`) is complete: then that
run, or its successor, closed the backfill. The snapshots are read from the tables.

Failure story: without the log's record of it, the range is replayed once more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_provider_lakecommit.committer import SnapshotKind, landing_snapshots
from airflow_provider_lakecommit.cycle import (
    Closed,
    EarlierCycles,
    LandingSession,
    PublishedSnapshot,
    RunIdentity,
    cycles_of,
    snapshot_of,
)


def replaced_before(lane: LandingSession, read: RunIdentity, ends: Iterable[RunIdentity]) -> Closed | None:
    """Return what was replaced, as the earlier attempt would have returned it; ``None``: nothing, as far as known.

    :param lane: a session that reads the backfill
    :param read: cycles that may have read the range
    :param ends: cycles that may have announced the replacement
    :raises LakecommitError: the log or a table cannot be read
    """
    announced = (found for run in ends if (found := cycles_of(lane, run)) is not None)
    end = next((found for found in announced if found.newest.closed_at is not None), None)
    begin = None if end is None else cycles_of(lane, read)
    if end is None or begin is None:
        return None
    return end.to_closed(lane.landing.table, _replacements(lane, begin, end))


def _replacements(lane: LandingSession, begin: EarlierCycles, end: EarlierCycles) -> Iterator[PublishedSnapshot]:
    """Return the backfill's newest replacement in each table; the log distinguishes a table that got the name since
    from the one that had it before the run.
    """
    name = lane.landing.name
    first, last = begin.cycles[0].offset, end.newest.offset
    for table in lane.landing.tables:
        metadata = lane.tables.load(table).metadata
        ours = landing_snapshots(metadata, lane.landing.branch, landing=name, lane=lane.lane)
        newest = None
        for record in ours:
            at = None if record.kind is not SnapshotKind.REPLACE or record.control_end is None else record.control_end
            if at is None or record.commit_id is None or not first <= at.offset <= last:
                continue
            newest = newest or record.commit_id
            if record.commit_id == newest:
                yield snapshot_of(record, table, newest)
