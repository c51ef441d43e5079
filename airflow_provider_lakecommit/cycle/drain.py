# SPDX-License-Identifier: Apache-2.0
"""Publishing what is reported where nothing can be planned, or before a person's word voids it.

Contract: :func:`drain` opens a cycle without a window, and closes it as any other, if some table has a settled slice;
where none has, nothing is said in the control topic. It is not asked why nothing can be planned.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.close`. A table that cannot be read delays no other.
"""

from __future__ import annotations

from airflow_provider_lakecommit.committer.executor import CommitterThread
from airflow_provider_lakecommit.core.admission import REASON_LENGTH
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle.close import close_cycle
from airflow_provider_lakecommit.cycle.open import start_without_tables
from airflow_provider_lakecommit.cycle.prepare import prepare_for_commit
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.session.landing_session import LandingSession, RunIdentity

__all__ = ["drain"]


def drain(
    session: LandingSession, run: RunIdentity, why: str, *, executor: CommitterThread | None = None
) -> tuple[Opened, Closed] | None:
    """Publish what can be published now, in a cycle of this run; ``None`` if there is nothing.

    :param why: nothing is planned, for the cycle's plan
    :raises LakecommitError: what keeps it from being published
    """
    session.control.ensure()
    prepared = prepare_for_commit(session)
    if not prepared.tables:
        return None
    state = session.read_state(prepared.ledgers).state
    settled = {t.name: settle(state.accepted[t.name], t.ledger.section).ready for t in prepared.tables}
    if not any(s.matters(name) for name, ready in settled.items() for s in ready):
        return None
    opened = start_without_tables(session, run, why[:REASON_LENGTH])
    if opened.finished:
        return None
    return opened, close_cycle(session, run, opened.ticket, executor=executor)
