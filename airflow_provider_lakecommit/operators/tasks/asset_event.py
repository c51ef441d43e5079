# SPDX-License-Identifier: Apache-2.0
"""What an event of a landing's asset says: what a consumer needs to read exactly that snapshot and to judge how fresh
it is. An event is sent only with a snapshot.

Events by hour: Airflow starts DAGs that are scheduled by partition with events that have a partition key, all others
with events that have none. So there is a second asset (:func:`~airflow_provider_lakecommit.assets.hourly_asset_of`). Up
to where it has told its hours is read from its own newest event, which Airflow stores together with the success of the
task: a task that dies has told nothing, and its next attempt does. Where Airflow does not answer no hour is told now,
and the next event tells it.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.assets import hourly_asset_of
from airflow_provider_lakecommit.telemetry import HOUR, hour_key, whole_hours

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_lakecommit.cycle import Closed
    from airflow_provider_lakecommit.landing import Landing

__all__ = ["event_extra", "landed_line", "tell_hours"]

TOLD = "hours_through"
"""In an event by hour: the end of the newest hour that was told of."""
LOOKED_AT = 200
"""Newest events by hour: those of one task, and some that people sent."""

log = logging.getLogger(__name__)


def event_extra(landing: Landing, closed: Closed, table: str | None = None) -> dict[str, Any]:
    """What an asset event says: the newest snapshot of the data table, and all that this commit published.

    ``rows``, ``offsets`` and ``counts`` are sums over the snapshots of the data table; ``snapshots`` lists every
    table's. ``rejects`` (by kind and column) and ``ignored_fields`` count what is in no row, ``redundant`` the reports
    that told what others had told.

    :param table: another one of its data tables than the leading one
    """
    from airflow_provider_lakecommit.cycle import merged_snapshots

    name = table or landing.table
    data = [p for p in closed.published if p.table == name]
    whole = merged_snapshots(data).to_dict() if data else {}
    payload = closed.to_dict()
    return {
        "landing": landing.name,
        "table": name,
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
        "redundant": payload["redundant"],
    }


def tell_hours(context: Context, landing: Landing, closed: Closed) -> bool:
    """Give the event by hour the keys of the hours that are whole now.

    :returns: are there any? If not, there must be no such event
    """
    asset = hourly_asset_of(landing)
    try:
        newest = context["inlet_events"][asset].ascending(False).limit(LOOKED_AT)
        # People may send events of it by hand, which say no hour.
        ends = [str(event.extra[TOLD]) for event in newest if event.extra and TOLD in event.extra]
        told = max(map(datetime.fromisoformat, ends), default=None)
    except Exception as e:
        log.warning("%s: no hours are told now, Airflow does not say which were: %s", asset.name, e)
        return False
    hours = whole_hours(told, closed.valid_through)
    if hours:
        event = context["outlet_events"][asset]
        event.add_partitions([hour_key(hour) for hour in hours])
        event.extra = {**event_extra(landing, closed), TOLD: (hours[-1] + HOUR).isoformat()}
    return bool(hours)


def landed_line(closed: Closed) -> str:
    """In one line for people: rows and snapshot of each table, how fresh it is, what is rejected, what still waits."""
    from airflow_provider_lakecommit.cycle import merged_snapshots

    tables = dict.fromkeys(p.table for p in closed.published)
    sums = [merged_snapshots([p for p in closed.published if p.table == table]) for table in tables]
    parts = [f"{p.rows} rows of {p.coverage} in {p.table} snapshot {p.snapshot_id}" for p in sums]
    if rejected := sum(closed.rejects.values()):
        parts.append(f"{rejected} records rejected")
    if closed.published and closed.waiting:
        # A run may publish what an earlier one has left, while its own window waits.
        parts.append(f"{len(closed.waiting)} slices wait, {closed.waiting[0]}")
    if closed.valid_through is not None:
        parts.append(f"valid through {closed.valid_through.isoformat(timespec='seconds')}")
    return "; ".join(parts)
