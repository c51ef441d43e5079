# SPDX-License-Identifier: Apache-2.0
"""The limits of the next window: as declared, or as the goals of the landing want them by what its newest windows took.

Contract: reads the metadata of the data table as it was prepared, and that only where a goal is declared; asks nobody.
"""

from __future__ import annotations

from itertools import islice

from airflow_provider_lakecommit.committer.ledger import landing_snapshots
from airflow_provider_lakecommit.committer.summary import SnapshotKind
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.goals.goal import sized
from airflow_provider_lakecommit.goals.measure import MEASURED, WindowCost, newest
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.planning.missing import WindowLimits
from airflow_provider_lakecommit.prepare.tables import Prepared
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.wire.plan import MAX_SLICES

__all__ = ["window_limits"]

LOOK_BACK = 50
"""Appends that are looked at for what windows took."""


def window_limits(
    session: LandingSession, prepared: Prepared, missing: Coverage
) -> tuple[WindowLimits, tuple[str, ...]]:
    """The limits, and why they are so where a goal is declared."""
    landing = session.landing
    limits = WindowLimits(
        groups=landing.groups or 1,
        slice_records=landing.slice_records,
        max_records=landing.max_records,
        max_bytes=landing.max_bytes,
        max_slices=MAX_SLICES,
        record_bytes=max((t.section.record_bytes for t in prepared.ledgers), default=0),
        by_load=landing.group_by == "load",
    )
    if landing.target_window is None and landing.target_file_size is None:
        return limits, ()
    return sized(
        limits,
        _costs(landing, session.lane, prepared),
        missing=sorted(missing.parts),
        records=len(missing),
        window_seconds=None if landing.target_window is None else landing.target_window.total_seconds(),
        file_bytes=landing.target_file_size,
        slice_limit=stated if (stated := landing.slice_records) != Landing.slice_records else None,
    )


def _costs(landing: Landing, lane: str, prepared: Prepared) -> tuple[WindowCost, ...]:
    data = next(t for t in prepared.tables if t.name == landing.table)
    found = landing_snapshots(data.table.metadata, landing.branch, landing=landing.name, lane=lane)
    appends = (r for r in found if r.kind is SnapshotKind.APPEND)
    return newest(r.extra.get(MEASURED) for r in islice(appends, LOOK_BACK))
