# SPDX-License-Identifier: Apache-2.0
"""Publishing what is reported where nothing can be planned, or before a person's word voids it.

Contract: :func:`drain` opens a cycle without a window, and closes it as any other, if some table has a settled slice;
where none has, nothing is said in the control topic. It is not asked why nothing can be planned. :func:`drained_after`
does so after an error that kept a cycle from being opened, unless no broker answers. :func:`tried_again` does so at the
end of a run whose newest commit has left tables out.

Failure story: that of :mod:`~airflow_provider_lakecommit.cycle.commit.close`. A table that cannot be read delays no
other. What keeps it from being looked at is not said here: the error before tells more, and a close says it again.
"""

from __future__ import annotations

from airflow_provider_lakecommit.committer import CommitterThread
from airflow_provider_lakecommit.core import REASON_LENGTH
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.commit.failing import FailingTables
from airflow_provider_lakecommit.cycle.plan.open import Release, start_without_tables
from airflow_provider_lakecommit.cycle.plan.tables import prepare_for_commit
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.exceptions import (
    ClosedError,
    ControlTopicError,
    FencedError,
    LakecommitError,
    SourceUnavailableError,
)

__all__ = ["drain", "drained_after", "tried_again"]

IN_VAIN = (ControlTopicError, ClosedError, FencedError)
"""Errors that a drain would run into again."""


def drain(
    session: LandingSession, run: RunIdentity, why: str, *, executor: CommitterThread | None = None
) -> tuple[Opened, Closed] | None:
    """Publish what can be published now, in a cycle of this run; ``None`` if there is nothing.

    :param why: nothing is planned, for the cycle's plan
    :raises LakecommitError: what keeps it from being published
    """
    session.control.ensure()
    prepared = prepare_for_commit(session, tell=False)
    if not prepared.tables:
        return None
    state = session.read_state(prepared.ledgers).state
    settled = {t.name: settle(state.accepted[t.name], t.ledger.section, t.ledger.others).ready for t in prepared.tables}
    if not any(s.matters(name) for name, ready in settled.items() for s in ready):
        return None
    opened = start_without_tables(session, run, why[:REASON_LENGTH])
    if opened.finished:
        return None
    return opened, close_cycle(session, run, opened.ticket, executor=executor)


def drained_after(
    session: LandingSession, run: RunIdentity, error: LakecommitError, *, executor: CommitterThread | None = None
) -> tuple[Opened, Closed] | None:
    """After an error that kept a cycle from being opened: a cycle that publishes what is reported, if there is such a
    thing. The error itself tells more than what keeps that from being done.
    """
    if isinstance(error, IN_VAIN) or (isinstance(error, SourceUnavailableError) and not session.control.answers()):
        return None
    try:
        return drain(session, run, str(error), executor=executor)
    except LakecommitError as e:
        # Brokers that are away, and what is the same here and there, are told once, by the error itself.
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
    """A cycle without a window, whose commit leaves no table out.

    :param release: tells which open cycles are over
    :raises LakecommitError: what keeps it from being opened, or closed for any table of rows
    """
    failing.try_all()
    why = f"retrying the slices that wait for {', '.join(failing.names)}"
    opened = start_without_tables(session, run, why, release)
    return opened, close_cycle(session, run, opened.ticket, executor=executor, failing=failing)
