# SPDX-License-Identifier: Apache-2.0
"""The payload of a landing's asset event: what a consumer needs to read exactly that snapshot and to assess its
freshness. An event is sent only with a snapshot.

Events by hour: Airflow starts DAGs that are scheduled by partition with events that have a partition key, all others
with events without. So there is a second asset (:func:`~airflow_provider_lakecommit.assets.hourly_asset_of`). The
newest event of that asset, which Airflow stores together with the success of the task, has the end of the reported
hours: if a task dies, its next attempt reports them. If Airflow does not answer, no hour is reported now, and the next
event reports it.
"""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.assets import hourly_asset_of
from airflow_provider_lakecommit.telemetry import HOUR, hour_key, whole_hours

if TYPE_CHECKING:
    from airflow.sdk import Asset, AssetAlias, Context

    from airflow_provider_lakecommit.cycle import Closed
    from airflow_provider_lakecommit.landing import Landing

HOURS_THROUGH = "hours_through"
"""In an event by hour: the end of the newest reported hour."""
MOST_EVENTS = 200
"""Newest events by hour to read: those of one task, and some that users sent."""

log = logging.getLogger(__name__)


def event_extra(landing: Landing, closed: Closed, table: str | None = None) -> dict[str, Any]:
    """Return the payload of an asset event: the newest snapshot of the data table, and all that this commit published.

    ``rows``, ``offsets`` and ``counts`` are sums over the snapshots of the data table; ``snapshots`` lists every
    table's. ``rejects`` (by kind and column) and ``ignored_fields`` count records without a row, ``redundant`` the
    duplicate reports.

    :param table: one of its data tables, if not the leading one
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


def send_hours(context: Context, landing: Landing, closed: Closed) -> bool:
    """Set the partition keys of the hourly event to the newly complete hours.

    :returns: False if there are none, and the event must not be sent
    """
    asset = hourly_asset_of(landing)
    try:
        newest = context["inlet_events"][asset].ascending(False).limit(MOST_EVENTS)
        # Users may send such events by hand, without an hour.
        ends = [str(event.extra[HOURS_THROUGH]) for event in newest if event.extra and HOURS_THROUGH in event.extra]
        reported = max(map(datetime.fromisoformat, ends), default=None)
    except Exception as e:
        log.warning("%s: cannot report hours now: Airflow does not return the reported ones: %s", asset.name, e)
        return False
    hours = whole_hours(reported, closed.valid_through)
    if hours:
        event = context["outlet_events"][asset]
        event.add_partitions([hour_key(hour) for hour in hours])
        event.extra = {**event_extra(landing, closed), HOURS_THROUGH: (hours[-1] + HOUR).isoformat()}
    return bool(hours)


def snapshots_in_events(context: Context, asset: Asset | AssetAlias) -> frozenset[int]:
    """Return the snapshots in the asset's events since the run was due. Airflow stores an event together with the
    success of its task.
    """
    from airflow.sdk.execution_time.context import InletEventsAccessors

    # Not those of the context: its own asset is no inlet of a task.
    events = InletEventsAccessors([asset])[asset].after(context["dag_run"].run_after.isoformat())
    extras: list[dict[str, Any]] = [event.extra or {} for event in events]
    return frozenset(each["snapshot_id"] for extra in extras for each in extra.get("snapshots", ()))


def landed_line(closed: Closed) -> str:
    """Return one line of text: rows and snapshot of each table, freshness, rejected and waiting records."""
    from airflow_provider_lakecommit.cycle import merged_snapshots

    tables = dict.fromkeys(p.table for p in closed.published)
    sums = [merged_snapshots([p for p in closed.published if p.table == table]) for table in tables]
    parts = [f"{p.rows} rows of {p.coverage} in {p.table} snapshot {p.snapshot_id}" for p in sums]
    if rejected := sum(closed.rejects.values()):
        parts.append(f"{rejected} records rejected")
    if closed.published and closed.waiting:
        # A run may publish slices that an earlier one left, while its own window waits.
        parts.append(f"{len(closed.waiting)} slices wait, {closed.waiting[0]}")
    if closed.valid_through is not None:
        parts.append(f"valid through {closed.valid_through.isoformat(timespec='seconds')}")
    return "; ".join(parts)
