# SPDX-License-Identifier: Apache-2.0
"""A table that is not there, or cannot be read: what the control log remembers of it, and windows without it.

Contract: the leading table, which the others go by, and the dead-letter table cannot be done without. Of another table
of rows the newest plan in the control log tells how it was: by these columns its records are decoded and judged, so
that no fate of theirs changes, and nothing is written for it. It lacks the range then, as a table does whose commit
failed; once it can be read again, the range is planned for it alone.

Failure story: a table that no plan in the log knows is needed to plan at all: its error is the landing's. The commit of
each run tries the table again, and the run is red as long as that fails.
"""

from __future__ import annotations

from uuid import UUID

from airflow_provider_lakecommit.core import LIVE, CycleOpened, SliceReported, TableTarget
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession

__all__ = ["newest_target", "remembered"]


def remembered(session: LandingSession, name: str) -> set[UUID]:
    """The tables of this name for which the log remembers slices with rows, of this lane or the live one. One that
    never had a row has none to lose: it is as if it had never been.
    """
    entries = (e for lane in {session.lane, LIVE} for _, some in session.all_entries(lane=lane) for e in some)
    reports = (e.report for e in entries if isinstance(e, SliceReported))
    return {t.uuid for report in reports if (t := report.table(name)) is not None and t.rows}


def newest_target(session: LandingSession, name: str) -> TableTarget | None:
    """What the newest plan in the log says of a table that a window may be planned without; ``None``: it may not."""
    if session.lane != LIVE or name not in session.landing.data_tables[1:]:
        return None
    opened = (e for _, some in session.all_entries() for e in some if isinstance(e, CycleOpened))
    known = [(e.at, t) for e in opened for t in e.plan.targets if t.table == name]
    return max(known, key=lambda one: one[0])[1] if known else None
