# SPDX-License-Identifier: Apache-2.0
"""Publish reported slices when nothing can be planned, or before an operator's decision voids them.

Contract: :func:`drain` opens a cycle without a window and closes it like any other, if some table has a settled slice,
or, where requested, if ``main`` lacks something of the landing's branch; otherwise it writes nothing to the control
topic. The reason for not planning does not matter. :func:`drained_after` does so after an error that kept a cycle from
being opened, unless the brokers are unavailable. :func:`tried_again` does so at the end of a run whose newest commit
skipped tables.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.commit.close`. An unreadable table delays no other and
is not reported here: the earlier error and a later close report it.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core import REASON_LENGTH
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle.commit.audit import unpublished_of
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.commit.failing import FailingTables
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.start import Release, start_without_tables
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.exceptions import (
    ClosedError,
    ControlTopicError,
    FencedError,
    LakecommitError,
    SourceUnavailableError,
)
from airflow_provider_lakecommit.iceberg import CommitterThread

IN_VAIN = (ControlTopicError, ClosedError, FencedError)
"""Errors that a drain would meet again."""


def drain(
    session: LandingSession,
    run: RunIdentity,
    why: str,
    *,
    executor: CommitterThread | None = None,
    audits: bool = False,
) -> tuple[Opened, Closed] | None:
    """Publish what can be published now, in a cycle of this run; return ``None`` if there is nothing.

    :param why: the reason for not planning, for the cycle's plan
    :param audits: also check and publish what an earlier commit left on the branch
    :raises LakecommitError: it cannot be published
    """
    session.control.ensure()
    prepared = prepare_for_commit(session, log=False)
    if not prepared.tables:
        return None
    state = session.read_state(prepared.ledgers).state
    settled = {t.name: settle(state.accepted[t.name], t.ledger.section, t.ledger.others).ready for t in prepared.tables}
    left = audits and session.landing.checks and unpublished_of(session)
    if not left and not any(s.matters(name) for name, ready in settled.items() for s in ready):
        return None
    opened = start_without_tables(session, run, why[:REASON_LENGTH])
    if opened.finished:
        return None
    return opened, close_cycle(session, run, opened.ticket, executor=executor)


def drained_after(
    session: LandingSession, run: RunIdentity, error: LakecommitError, *, executor: CommitterThread | None = None
) -> tuple[Opened, Closed] | None:
    """Publish reported slices after an error that kept a cycle from being opened, if there are any. The error itself
    matters more than a failure of this step.
    """
    if isinstance(error, IN_VAIN) or (isinstance(error, SourceUnavailableError) and not session.control.answers()):
        return None
    try:
        return drain(session, run, str(error), executor=executor, audits=True)
    except LakecommitError as e:
        # The error itself already reports unavailable brokers and problems common to both.
        away = isinstance(error, SourceUnavailableError) and isinstance(e, (type(error), ControlTopicError))
        if not away and str(e) != str(error):
            session.log(f"could not publish the reported slices: {e}")
        return None


def tried_again(
    session: LandingSession,
    run: RunIdentity,
    failing: FailingTables,
    *,
    release: Release,
    executor: CommitterThread | None = None,
) -> tuple[Opened, Closed]:
    """Run a cycle without a window, whose commit skips no table.

    :param release: decides which open cycles are over
    :raises LakecommitError: it cannot be opened, or closed for some table of rows
    """
    failing.try_all()
    why = f"retrying the slices that wait for {', '.join(failing.names)}"
    opened = start_without_tables(session, run, why, release)
    return opened, close_cycle(session, run, opened.ticket, executor=executor, failing=failing)
