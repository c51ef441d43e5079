# SPDX-License-Identifier: Apache-2.0
"""The limits of the next window: as declared, or derived from the landing's targets and its newest windows.

Contract: reads only the metadata of the prepared data table, and only if a target is declared.
"""

from __future__ import annotations

from itertools import islice

from airflow_provider_lakecommit.committer import SnapshotKind, landing_snapshots
from airflow_provider_lakecommit.control import MAX_SLICES
from airflow_provider_lakecommit.core import MEASURED, Coverage, WindowCost, WindowLimits, newest, sized
from airflow_provider_lakecommit.cycle.plan.tables import Prepared
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.landing import Landing, Window

LOOK_BACK = 50
"""Most appends to read for the duration of windows."""


def window_limits(
    session: LandingSession, prepared: Prepared, missing: Coverage
) -> tuple[WindowLimits, tuple[str, ...]]:
    """Return the limits, and their reason if a target is declared."""
    landing = session.landing
    limits = WindowLimits(
        groups=landing.window.groups or 1,
        slice_records=landing.window.slice_records,
        max_records=landing.window.max_records,
        max_bytes=landing.window.max_bytes,
        max_slices=MAX_SLICES,
        record_bytes=max((t.section.record_bytes for t in prepared.ledgers), default=0),
        by_load=landing.window.group_by == "load",
    )
    if landing.window.target is None and landing.window.target_file_size is None:
        return limits, ()
    return sized(
        limits,
        _costs(landing, session.lane, prepared),
        missing=sorted(missing.parts),
        records=len(missing),
        window_seconds=None if landing.window.target is None else landing.window.target.total_seconds(),
        file_bytes=landing.window.target_file_size,
        slice_limit=stated if (stated := landing.window.slice_records) != Window.slice_records else None,
    )


def _costs(landing: Landing, lane: str, prepared: Prepared) -> tuple[WindowCost, ...]:
    data = next(t for t in prepared.tables if t.name == landing.table)
    found = landing_snapshots(data.table.metadata, landing.branch, landing=landing.name, lane=lane)
    appends = (r for r in found if r.kind is SnapshotKind.APPEND)
    return newest(r.extra.get(MEASURED) for r in islice(appends, LOOK_BACK))
