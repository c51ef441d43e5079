# SPDX-License-Identifier: Apache-2.0
"""The asset of a landing: what other DAGs are scheduled on, and what an event of it tells them.

Contract: one asset per landing, made from the declaration alone, so that it may stand at the top of a DAG file; no
connection is read. An event is sent only with a snapshot, and its extra holds what a consumer needs to read exactly
that snapshot and to judge how fresh it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.core.offsets import Coverage

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_provider_lakecommit.cycle.results import Closed, PublishedSnapshot
    from airflow_provider_lakecommit.landing import Landing

__all__ = ["asset_of", "event_extra"]


def asset_of(landing: Landing) -> Asset:
    """The asset of a landing; equal declarations give equal assets."""
    from airflow.sdk import Asset

    place = "/".join(quote(part, safe="") for part in (landing.iceberg_conn_id, landing.table, landing.name))
    return Asset(
        name=f"lakecommit/{landing.name}",
        uri=f"lakecommit://{place}",
        extra={"landing": landing.name, "table": landing.table, "branch": landing.branch},
    )


def event_extra(landing: Landing, closed: Closed) -> dict[str, Any]:
    """What an asset event says: the newest snapshot of the data table, and all that this commit published.

    ``rows``, ``offsets`` and ``counts`` are sums over the snapshots of the data table; ``snapshots`` lists every
    table's.
    """
    data = [p for p in closed.published if p.table == landing.table]
    whole = _sum(data).to_dict() if data else {}
    told = closed.to_dict()
    return {
        "landing": landing.name,
        "table": landing.table,
        "branch": landing.branch,
        "commit_id": told["commit_id"],
        "snapshot_id": whole.get("snapshot_id"),
        "rows": whole.get("rows", 0),
        "offsets": whole.get("offsets", {}),
        "counts": whole.get("counts", {}),
        "valid_through": told["valid_through"],
        "snapshots": told["published"],
    }


def _sum(snapshots: Sequence[PublishedSnapshot]) -> PublishedSnapshot:
    """The newest of some snapshots of a table, with what all of them added."""
    return replace(
        snapshots[-1],
        coverage=Coverage.of(item for p in snapshots for item in p.coverage.items()),
        rows=sum(p.rows for p in snapshots),
        files=sum(p.files for p in snapshots),
        counts=sum((p.counts for p in snapshots), Counts()),
    )
