# SPDX-License-Identifier: Apache-2.0
"""Landings of a set that have nothing to do now, told from the control log alone.

Contract: pure. A landing is idle when the newest cycle that it opened is closed, all that could be read by then is in
its tables, and its topics got nothing since: so a run of hundreds of topics opens cycles for those that have something,
and asks the catalog for their tables. As long as one is idle, a cycle every :data:`IDLE` says up to when its tables are
whole, and finds what became of the tables meanwhile.

Failure story: whatever the log does not say plainly is not idle: another plan, a spec that has changed, a cycle that
failed or is open, slices that wait.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core import CycleClosed, CycleOpened, Entry, SourcePartition

__all__ = ["IDLE", "is_idle"]

IDLE = timedelta(minutes=5)
"""After which a landing that has nothing new says again up to when its tables are whole."""


def is_idle(entries: Sequence[Entry], stable: Mapping[SourcePartition, int], spec_version: str, now: datetime) -> bool:
    """Return True if it has nothing to do.

    :param entries: of the landing's live lane, to the end of the log
    :param stable: how far its topics can be read; empty: nobody knows
    """
    opened = next((e for e in reversed(entries) if isinstance(e, CycleOpened)), None)
    if opened is None or opened.plan.spec_version != spec_version or opened.plan.refused or opened.plan.left:
        return False
    closed = next((e for e in entries if isinstance(e, CycleClosed) and e.commit_id == opened.commit_id), None)
    if closed is None or closed.valid_through is None or closed.valid_through < opened.plan.asked_at:
        return False
    return bool(stable) and dict(opened.plan.ends) == dict(stable) and now - closed.valid_through < IDLE
