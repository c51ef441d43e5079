# SPDX-License-Identifier: Apache-2.0
"""Block what has too many rejected records, before a commit publishes anything.

Contract: :mod:`~airflow_provider_lakecommit.core.window_budget` decides. Each range that is left out of a complete
window is reported as blocked, which takes back its finished slice. What is left out of other windows waits.

Failure story: after a crash, the next commit decides again, on the same reports.
"""

from __future__ import annotations

from collections.abc import Sequence

from airflow_provider_lakecommit.control import Outgoing
from airflow_provider_lakecommit.core import AcceptedSlice, blocking, over_by_window
from airflow_provider_lakecommit.cycle.results import CycleTicket
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession


def block_over_ratio(session: LandingSession, ticket: CycleTicket, folded: FoldedLog) -> FoldedLog:
    """Send the decisions that are due; return the log with them."""
    budget, now, cycles = session.landing.budget, session.now(), folded.state.cycles
    records: list[Outgoing] = []
    for over in over_by_window(folded.state, folded.entries, budget, ticket.commit_id, now):
        for one in over.slices if over.decided else ():
            plan, sender = cycles[one.commit_id].plan, session.sender("write", one.commit_id)
            for blocked in blocking(over, one, plan, budget.max_ratio, session.new_id):
                session.log(f"blocked {blocked.coverage}: {blocked.blocked}")
                records.append(sender.reported(session.new_id(), now, blocked))
    if not records:
        return folded
    sent = session.send("commit", ticket, folded.partition, records)
    return session.read_state(folded.ledgers, since=folded, until=sent)


def within_ratio(
    session: LandingSession, ticket: CycleTicket, folded: FoldedLog, accepted: Sequence[AcceptedSlice]
) -> list[AcceptedSlice]:
    """Return the slices that are not left out of their windows."""
    budget, now = session.landing.budget, session.now()
    over = over_by_window(folded.state, folded.entries, budget, ticket.commit_id, now)
    out = {a.report.attempt for window in over for a in window.slices}
    return [a for a in accepted if a.report.attempt not in out]
