# SPDX-License-Identifier: Apache-2.0
"""Publish what has been read without waiting for the open windows: `lakecommit publish-now`.

Contract: every open cycle of the landing is requested to end: its tasks report everything up to the current record, and
no attempt continues it. The run of a cycle then publishes it and continues with the next one; a run with several
windows does not end. Cycles that are not published within the wait, because their run is dead, are published here.
Nothing is given up: later windows plan the missing ranges.

Failure story: nothing unknown is reported as published: an unreadable table is an error, and so is a landing that no
table knows. A second request adds nothing. A cycle opened meanwhile belongs to the next call. An unreachable control
topic or table is an error; requests sent before remain valid.
"""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

from airflow_provider_lakecommit.cycle import (
    FoldedLog,
    LandingSession,
    RunIdentity,
    drain,
    end_cycle,
    ledger_states,
    prepare_for_commit,
    ticket_of,
    unknown_text,
    waiting_slices,
)
from airflow_provider_lakecommit.exceptions import LedgerError

WAIT_SECONDS = 60.0
"""Seconds for the cycles' own runs to publish them: a commit task of a DAG must be scheduled first."""
POLL_SECONDS = 0.5


def publish_now(
    session: LandingSession, run: RunIdentity, reason: str, *, wait: float = WAIT_SECONDS
) -> dict[str, Any]:
    """Publish everything that was read. Return the cycles that were requested to end, those that their own runs have
    closed, what was published in place of other runs, and why reported slices still wait.

    :param run: owner of the cycle, if something is published here
    :param reason: user and reason, for logs and the notes of runs
    :param wait: seconds for the runs of the cycles
    :raises LedgerError: it never landed anything
    :raises LakecommitError: the control topic or a table cannot be reached
    """
    session.control.ensure()
    folded = session.read_state(prepare_for_commit(session).ledgers)
    requested = _request_end(session, folded, reason)
    deadline = time.monotonic() + wait
    while (left := _open_of(folded, requested)) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        folded = session.read_state(folded.ledgers, since=folded)
    if left:
        session.log(
            f"{len(left)} windows were not closed by their runs after {wait:.0f} s; published their reports here"
        )
    drained = drain(session, run, reason, audits=bool(left))
    closed = [c for c in requested if c not in left]
    published = drained[1].published if drained else ()
    waiting = drained[1].waiting if drained else _waiting(session)
    waits = f"{'; '.join(waiting)}: the next window reads the missing offsets" if waiting else ""
    if requested or published:
        rows = "; ".join(f"{p.table}: {p.rows} rows in snapshot {p.snapshot_id}" for p in published)
        here = f"published here: {rows}" if rows else "nothing was left to publish here"
        done = f"{len(closed)} of {len(requested)} windows were published by their own runs; {here}"
        session.log(f"{done}; {waits}" if waits else done)
    else:
        session.log(f"no window is open, and {waits or 'no reported slice waits to be published'}")
    return {
        "asked": [str(c) for c in requested],
        "closed": [str(c) for c in closed],
        "published": [p.to_dict() for p in published],
        "waiting": list(waiting),
    }


def _waiting(session: LandingSession) -> tuple[str, ...]:
    """Return why reported slices were not published.

    :raises LakecommitError: nothing can be published, or it is unknown
    """
    prepared = prepare_for_commit(session, log=False)
    for error in prepared.failures.values():
        raise error
    if not prepared.tables:
        landing = session.landing
        unknown = unknown_text(session, ledger_states(session))
        raise LedgerError(
            "LC7023",
            f"landing {landing.name} has landed nothing in {', '.join(landing.tables)} yet, so nothing can be "
            "published: check that its name, tables and connections are those of its DAG; its first run creates "
            f"the ledger{f'; {unknown}' if unknown else ''}",
        )
    return tuple(waiting_slices(prepared.ledgers, session.read_state(prepared.ledgers).state.accepted))


def _request_end(session: LandingSession, folded: FoldedLog, reason: str) -> tuple[UUID, ...]:
    live = [c for c in folded.state.open_cycles() if c.live(session.now()) and c.plan.slices]
    for c in live:
        if not c.ended_early:
            ticket = ticket_of(session, c, folded.partition, c.since)
            end_cycle(session.control, session.landing, ticket, reason)
            session.log(f"requested the end of cycle {c.cycle.commit_id} of run {c.cycle.run}: {c.plan.coverage}")
    return tuple(c.cycle.commit_id for c in live)


def _open_of(folded: FoldedLog, requested: tuple[UUID, ...]) -> tuple[UUID, ...]:
    open_ = {c.cycle.commit_id for c in folded.state.open_cycles()}
    return tuple(c for c in requested if c in open_)
