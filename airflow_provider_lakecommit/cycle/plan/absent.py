# SPDX-License-Identifier: Apache-2.0
"""Windows without a missing or unreadable table, by what the control topic has about it.

Contract: the leading table and the dead-letter table are indispensable. The newest plan in the control topic has the
columns of any other table of rows: they decide how records are decoded and evaluated, so that no disposition changes,
and nothing is written for the table. It then lacks the range like a table whose commit failed; once it is readable, the
range is planned for it alone.

Failure story: a table in no plan of the log is needed to plan at all: its error is the landing's. The commit of each
run tries the table again, and the run fails as long as that fails.
"""

from __future__ import annotations

from uuid import UUID

from airflow_provider_lakecommit.core import LIVE, CycleOpened, SliceReported, TableTarget
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession


def remembered(session: LandingSession, name: str) -> set[UUID]:
    """Return the tables of this name for which the log has slices with rows, of this stream or the live one. A table
    that never had a row can lose none, and counts as new.
    """
    entries = (e for lane in {session.lane, LIVE} for _, some in session.all_entries(lane=lane) for e in some)
    reports = (e.report for e in entries if isinstance(e, SliceReported))
    return {t.uuid for report in reports if (t := report.table(name)) is not None and t.rows}


def newest_target(session: LandingSession, name: str) -> TableTarget | None:
    """Return the newest plan's entry on a table that a window may be planned without; ``None`` if there is none."""
    if session.lane != LIVE or name not in session.landing.data_tables[1:]:
        return None
    opened = (e for _, some in session.all_entries() for e in some if isinstance(e, CycleOpened))
    known = [(e.at, t) for e in opened for t in e.plan.targets if t.table == name]
    return max(known, key=lambda one: one[0])[1] if known else None
