# SPDX-License-Identifier: Apache-2.0
"""What an event of a landing's asset says: what a consumer needs to read exactly that snapshot and to judge how fresh
it is. An event is sent only with a snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage

if TYPE_CHECKING:
    from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
    from airflow_provider_lakecommit.landing import Landing

__all__ = ["event_extra"]


def event_extra(landing: Landing, closed: Closed) -> dict[str, Any]:
    """What an asset event says: the newest snapshot of the data table, and all that this commit published.

    ``rows``, ``offsets`` and ``counts`` are sums over the snapshots of the data table; ``snapshots`` lists every
    table's. ``rejects`` (by kind and column) and ``ignored_fields`` count what is in no row.
    """
    data = [p for p in closed.published if p.table == landing.table]
    whole = _sum(data).to_dict() if data else {}
    payload = closed.to_dict()
    return {
        "landing": landing.name,
        "table": landing.table,
        "branch": landing.branch,
        "commit_id": payload["commit_id"],
        "snapshot_id": whole.get("snapshot_id"),
        "rows": whole.get("rows", 0),
        "offsets": whole.get("offsets", {}),
        "counts": whole.get("counts", {}),
        "valid_through": payload["valid_through"],
        "snapshots": payload["published"],
        "ignored_fields": payload["ignored_fields"],
        "rejects": payload["rejects"],
    }


def _sum(snapshots: Sequence[PublishedSnapshot]) -> PublishedSnapshot:
    """The newest of some snapshots of a table, with what all of them added."""
    return replace(
        snapshots[-1],
        coverage=Coverage.union(p.coverage for p in snapshots),
        rows=sum(p.rows for p in snapshots),
        files=sum(p.files for p in snapshots),
        counts=sum((p.counts for p in snapshots), Counts()),
    )
