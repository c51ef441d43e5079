# SPDX-License-Identifier: Apache-2.0
"""Decide whether a backfill waits for the live stream: by the age of the oldest record that is not in the table.

Contract: a backfill that yields to the live stream opens no window while the live stream has records older than a given
age outside the data table. Open windows are finished. The age is that of the records' own timestamps, as readers of the
table notice it; processes need not measure or exchange anything.

Failure story: if the age is unknown (unreachable brokers or catalog), there is no wait: the next plan meets the same
error, and raises it. A landing without a live stream, or with a paused one, is not waited for.
"""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_lakecommit.core import LIVE, Coverage, RangeSet
from airflow_provider_lakecommit.cycle import LandingSession, ledger_state, offsets_at
from airflow_provider_lakecommit.exceptions import LakecommitError


def live_first(session: LandingSession, older_than: timedelta) -> str:
    """Return why a backfill opens no window; empty: it continues.

    :param session: of the landing's live stream
    :param older_than: the age that records outside the data table may have
    """
    try:
        waits = overdue(session, older_than)
    except LakecommitError:
        return ""
    return f"the live stream has not landed {waits}, which is older than {older_than}" if waits else ""


def overdue(session: LandingSession, older_than: timedelta) -> Coverage:
    """Return what the topics have had for longer than that, and the live stream has not landed in the data table."""
    landing = session.landing
    state = ledger_state(session, landing.table)
    live = None if state is None else state.section(landing.name, LIVE)
    if state is None or live is None or live.suspended:
        return Coverage()
    covered = state.covered()
    marks = session.source.watermarks().partitions
    ends = {p: covered[p].reach(live.starts.get(p, 0)) for p in marks}
    behind = {p: mark for p, mark in marks.items() if ends[p] < mark.stable}
    since = offsets_at(session.source, behind, session.now() - older_than) if behind else {}
    # If no record is so late, all of them are older.
    until = {p: behind[p].stable if first is None else first for p, first in since.items()}
    return Coverage({p: RangeSet.of((ends[p], max(ends[p], end))) for p, end in until.items()})
