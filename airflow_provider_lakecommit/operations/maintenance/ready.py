# SPDX-License-Identifier: Apache-2.0
"""The tables of a landing that may be swept: those whose ledger tells what is in them.

Contract: reads only. A table whose ledger needs a new epoch or a person first is not swept, and neither is one whose
control log is not the one that its ledger names: what is pending could not be known.

Failure story: each table's trouble is its own, told by its name.
"""

from __future__ import annotations

from airflow_provider_lakecommit.committer import Condition, read_ledger, require_ledger
from airflow_provider_lakecommit.cycle import FoldedLog, LandingSession, PreparedTable, prepared_table
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError


def ready_tables(session: LandingSession) -> tuple[list[PreparedTable], dict[str, str]]:
    """The tables that have a section of this lane and may be swept, and why others may not."""
    ready: list[PreparedTable] = []
    errors: dict[str, str] = {}
    for name in session.landing.tables:
        try:
            if (found := _ready(session, name)) is not None:
                ready.append(found)
        except LakecommitError as e:
            errors[name] = str(e)
    return ready, errors


def _ready(session: LandingSession, name: str) -> PreparedTable | None:
    table = session.tables.load(name)
    state = read_ledger(table.metadata, session.landing.branch)
    require_ledger(state, name)
    if state.condition is not Condition.PRESENT:
        reason = state.reason or "the landing has landed nothing in it yet"
        raise LedgerError("LC7709", f"{name}: {reason}. Nothing is swept; run the landing first")
    if state.section(session.landing.name, session.lane) is None:
        return None
    ready = prepared_table(session, name, table, state)
    there, named = session.control.describe(), ready.ledger.section.control
    if (there.cluster_id, there.topic_id) != (named.cluster_id, named.topic_id):
        raise LedgerError(
            "LC7710",
            f"{name}: its ledger names control topic {named.topic} (id {named.topic_id}), but {session.control.name} "
            f"is another one (id {there.topic_id}), so pending slices are unknown. Nothing is swept; run the landing "
            "first",
        )
    return ready


def check_log(table: PreparedTable, folded: FoldedLog) -> None:
    """Check that the log still contains everything that is pending.

    :raises LedgerError: it was cut
    """
    low = table.ledger.section.control.low
    if low is not None and folded.begin.offset > low:
        raise LedgerError(
            "LC7711",
            f"{table.name}: the control log begins at offset {folded.begin.offset} of partition {folded.partition}; "
            f"records of pending slices since offset {low} were removed. Nothing is swept; run the landing "
            "first",
        )
