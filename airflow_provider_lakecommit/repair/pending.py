# SPDX-License-Identifier: Apache-2.0
"""What is reported and not in its table, before a person's word ends the epoch of it: also by ledgers that only the
metadata remember.

Contract: reads only. Nothing is known where a table never had a ledger of this lane, or where the control topic is not
the one that its ledger names.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_provider_lakecommit.committer.ledger import LedgerState
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import LandingState, TableLedger
from airflow_provider_lakecommit.cycle.session import LandingSession

__all__ = ["known_section", "known_state"]


def known_section(session: LandingSession, state: LedgerState) -> LedgerSection | None:
    """The section of this lane: of the ledger, or of the newest one that the metadata remember."""
    key = (session.landing.name, session.lane)
    return next((s for s in state.sections or state.remembered if s.key == key), None)


def known_state(session: LandingSession, states: Mapping[str, LedgerState | None]) -> LandingState | None:
    """The log folded over the ledgers that are known; ``None`` where there are none, or the log is another one."""
    ledgers = [ledger for name, s in states.items() if s is not None and (ledger := _ledger(session, name, s))]
    log = session.control.describe()
    places = {(t.section.control.cluster_id, t.section.control.topic_id, t.section.control.partition) for t in ledgers}
    if len(places) != 1 or next(iter(places))[:2] != (log.cluster_id, log.topic_id):
        return None
    return session.read_state(ledgers).state


def _ledger(session: LandingSession, name: str, state: LedgerState) -> TableLedger | None:
    own = known_section(session, state)
    if own is None:
        return None
    others = (s for s in state.sections or state.remembered if s is not own)
    covered = Coverage.union(s.covered for s in others)
    return TableLedger(table=name, uuid=state.table_uuid, section=own, others=covered)
