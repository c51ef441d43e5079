# SPDX-License-Identifier: Apache-2.0
"""The tables of a commit: as they are now, each for itself.

Contract: as :mod:`~airflow_provider_lakecommit.cycle.plan.ready_tables`, without initial entries. Tables are isolated:
a failing one is named and does not delay the others.
"""

from __future__ import annotations

from airflow_provider_lakecommit.cycle.plan.known import check_first_run, check_lane_open
from airflow_provider_lakecommit.cycle.plan.ledger_upkeep import LedgerUpkeep
from airflow_provider_lakecommit.cycle.plan.ready_tables import (
    Prepared,
    PreparedTable,
    after_sink,
    does_without,
    prepared_table,
    sound_ledger,
)
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LakecommitError, TableError


def prepare_for_commit(session: LandingSession, *, log: bool = True) -> Prepared:
    """Return the tables with a ledger of this stream, as they are now; failures are kept per table.

    :param log: log the failures
    """
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    for name in session.landing.tables:
        try:
            if (found := prepare_table(session, name)) is not None:
                out.append(after_sink(session, found, out[0]) if out else found)
        except LakecommitError as e:
            if log:
                session.log(f"{name}: {e}")
            failures[name] = e
    return Prepared(tables=tuple(out), failures=failures)


def prepare_table(session: LandingSession, name: str) -> PreparedTable | None:
    """Return a table as it is now, if it has a ledger of this stream.

    :raises LakecommitError: it cannot be read, or needs an operator
    """
    table = session.tables.find(name)
    if table is None:
        if does_without(session, name):
            return None
        # A table that existed is reported as missing, also if it was dropped between plan and commit.
        check_first_run(session, name)
        landing = session.landing
        made = landing.create_of(name) is not None or name not in landing.data_tables
        cause, remedy = "no plan has created it, see the log of the plan", "create it, or state `create` in the landing"
        why = session.tables.elsewhere(name) or (cause if made else remedy)
        raise TableError("LC6013", f"there is no table {name} in {session.tables.called}: {why}")
    state = sound_ledger(session, name, table)
    if state.section(session.landing.name, session.lane) is None:
        check_lane_open(session, name)
        check_first_run(session, name, table)
        return None
    return prepared_table(session, name, table, LedgerUpkeep(session=session, name=name).renewed(state))
