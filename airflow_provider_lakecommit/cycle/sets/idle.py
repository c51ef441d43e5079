# SPDX-License-Identifier: Apache-2.0
"""Landings of a set with nothing to do now, by the control topic alone.

Contract: pure. A landing is idle if its newest cycle is closed, its tables have everything that was readable by then,
and its topics got nothing since: so a run of hundreds of topics opens cycles only for those with new records, and asks
the catalog only for their tables. While one is idle, a cycle every :data:`IDLE` reports up to when its tables are
complete, and finds changes of the tables.

Failure story: in doubt a landing is not idle: another plan, a changed spec, a failed or open cycle, waiting slices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from airflow_provider_lakecommit.core import CycleClosed, CycleOpened, Entry, SourcePartition

IDLE = timedelta(minutes=5)
"""Time after which an idle landing reports again up to when its tables are complete."""


def is_idle(entries: Sequence[Entry], stable: Mapping[SourcePartition, int], spec_version: str, now: datetime) -> bool:
    """Return True if it has nothing to do.

    :param entries: entries of the landing's live stream, to the end of the log
    :param stable: how far its topics can be read; empty if unknown
    """
    opened = next((e for e in reversed(entries) if isinstance(e, CycleOpened)), None)
    if opened is None or opened.plan.spec_version != spec_version or opened.plan.refused or opened.plan.left:
        return False
    closed = next((e for e in entries if isinstance(e, CycleClosed) and e.commit_id == opened.commit_id), None)
    if closed is None or closed.valid_through is None or closed.valid_through < opened.plan.requested_at:
        return False
    return bool(stable) and dict(opened.plan.ends) == dict(stable) and now - closed.valid_through < IDLE
