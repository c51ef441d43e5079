# SPDX-License-Identifier: Apache-2.0
"""Level the tables of a landing before a range is changed in all of them.

Contract: after :func:`level` every ledger is the newest of its table, publishable reported slices are published, and
each table has taken what it passed without a row, in the live stream and in all open backfills. So the ledgers alone
show what each table has, and an operation finds the same ranges in all of them. No row is removed.

Failure story: after a kill, some tables are level; the next run, or the same command, does the rest. Reported slices
that can neither be published nor be read again are an error of :func:`check_pending`, which lists them.
"""

from __future__ import annotations

from airflow_provider_lakecommit.core import LAND, RESET_OFFSETS, Coverage
from airflow_provider_lakecommit.cycle import (
    LandingSession,
    LedgerUpkeep,
    RunIdentity,
    close_cycle,
    drain,
    endangered,
    ledger_state,
    open_lanes,
    prepare_for_commit,
    start_without_tables,
)
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg import Condition, ends_epoch
from airflow_provider_lakecommit.operations.backfill.opening import closed_lane


def level(session: LandingSession, run: RunIdentity, why: str) -> None:
    """Level the tables of a landing.

    :param run: owner of the cycles that publish reported slices
    :param why: for the plans of these cycles, which have no window
    """
    session.control.ensure()
    for name in session.landing.tables:
        state = ledger_state(session, name)
        if state is not None and state.condition is Condition.ROLLED_BACK:
            LedgerUpkeep(session=session, name=name).after_rollback(state)
    take_passed(session, run, why)
    for lane in open_lanes(session):
        if not lane.replaces:
            own = closed_lane(session, lane.name)
            try:
                take_passed(own, run, why)
            finally:
                own.close_writers()


def take_passed(session: LandingSession, run: RunIdentity, why: str) -> None:
    """Publish the reported slices in the stream of a session, also slices without a row."""
    prepared = prepare_for_commit(session, log=False)
    if not any(session.read_state(prepared.ledgers).state.accepted.values()):
        return
    landing = session.landing
    try:
        # Where a spec change voids, no table without rows stays behind.
        session.landing = landing.changed(window={"on_spec_change": "void"})
        close_cycle(session, run, start_without_tables(session, run, why).ticket)
    finally:
        session.landing = landing


def drain_or_log(session: LandingSession, command: str, why: str) -> None:
    """Publish the reported slices that can be published, in a cycle of a user's command; the log names the reason that
    prevents others.
    """
    run = RunIdentity(deployment="person", dag_id=command, run_id=str(session.new_id()))
    try:
        drain(session, run, why)
    except LakecommitError as e:
        session.log(f"could not publish all reported slices: {e}")


def check_pending(session: LandingSession, taken: Coverage) -> None:
    """Refuse to remove ranges if reported slices would be lost."""
    for name in session.landing.tables:
        if (state := ledger_state(session, name)) is None:
            continue
        own = [s.key for s in state.sections if s.landing == session.landing.name and ends_epoch(s, taken)]
        if lost := endangered(session, name, state, own):
            raise LedgerError(
                "LC7213",
                f"{name}: this would void reported slices that the source no longer has: {'; '.join(lost.values())}. "
                f"No row is changed. Run `{LAND} SPEC` to publish them, or to see why it cannot; to give them "
                f"up, run `{RESET_OFFSETS} SPEC --from earliest --give-up-reported`",
            )
