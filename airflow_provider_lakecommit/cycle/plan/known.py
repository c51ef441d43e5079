# SPDX-License-Identifier: Apache-2.0
"""Check whether a ledger or the control topic knows a landing; and find similar known landings.

Contract: reads only. A landing with a ledger entry, or with a record among the newest of the control topic, is known.
Otherwise the result names landings of a similar name, and those that landed the same topics into the same table.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_lakecommit.committer import LedgerState
from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import LIVE, CycleOpened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.landing import nearest

ALIKE = 0.6
"""The least similarity, from 0 to 1, of a name that counts as misspelled."""


def unknown_text(session: LandingSession, states: Mapping[str, LedgerState | None]) -> str:
    """Return a message that this landing is unknown, with similar known landings; empty if it is known, or none is
    similar.

    :raises ControlTopicError: the control topic cannot be read
    """
    name = session.landing.name
    there = {s.landing for state in states.values() if state for s in (*state.sections, *state.remembered)}
    if name in there:
        return ""
    recent = session.control.recent() if session.control.exists() else {}
    if name in recent:
        return ""
    near = nearest(name, {*there, *recent}, alike=ALIKE)
    like = dict.fromkeys((*near, *(n for n in sorted(recent) if _lands_the_same(session, n))))
    return f"no table or control record has a landing {name}; similar names are {', '.join(like)}" if like else ""


def _lands_the_same(session: LandingSession, name: str) -> bool:
    """Return True if a plan of another landing has a topic and a table of this one."""
    topics, tables = {*session.landing.topic_names}, {*session.landing.tables}
    entries = read_entries(session.control.recent(name).get(name, ()), name, LIVE)
    plans = (e.plan for e in entries if isinstance(e, CycleOpened))
    return any(topics & {p.topic for p in plan.ends} and tables & {t.table for t in plan.targets} for plan in plans)
