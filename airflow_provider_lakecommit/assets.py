# SPDX-License-Identifier: Apache-2.0
"""The asset of a landing: what other DAGs are scheduled on, and what an event of it tells them.

Contract: one asset per landing, made from the declaration alone, so that it may stand at the top of a DAG file; no
connection is read. An event is sent only with a snapshot, and its extra holds what a consumer needs to read exactly
that snapshot and to judge how fresh it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from airflow.sdk import Asset

    from airflow_provider_lakecommit.cycle.results import Closed
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

    ``snapshot_id``, ``offsets`` and ``counts`` are those of the data table; ``snapshots`` lists every table's.
    """
    data = [p for p in closed.published if p.table == landing.table]
    newest = data[-1].to_dict() if data else {}
    told = closed.to_dict()
    return {
        "landing": landing.name,
        "table": landing.table,
        "branch": landing.branch,
        "commit_id": told["commit_id"],
        "snapshot_id": newest.get("snapshot_id"),
        "rows": sum(p.rows for p in data),
        "offsets": newest.get("offsets", {}),
        "counts": newest.get("counts", {}),
        "valid_through": told["valid_through"],
        "snapshots": told["published"],
    }
