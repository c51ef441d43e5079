# SPDX-License-Identifier: Apache-2.0
"""Publish ranges of which every record was rejected, before the data table's ledger has them.

The ledger of a table without rows is rarely refreshed, so a data table may be far behind its dead letters. These would
have to wait, just where only dead letters arrived.

Contract: :func:`passed` returns what is reported without a row for the data table and can be published now; reads only.
:func:`bring_forward` publishes it by the compare-and-swap of a commit, with all of its checks, and nothing else. The
next commit of the landing announces it.

Failure story: that of an append; a repetition has no effect.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from airflow_provider_lakecommit.committer import AppendRequest, StagedSlice, publish, read_ledger
from airflow_provider_lakecommit.core import AcceptedSlice, Coverage
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.cycle import (
    FoldedLog,
    LandingSession,
    Prepared,
    PreparedTable,
    hidden_record,
    prepare_for_commit,
    prepared_table,
    report_problem,
)
from airflow_provider_lakecommit.operations.dead_letters.open_set import Readings


def passed(session: LandingSession, prepared: Prepared) -> tuple[tuple[AcceptedSlice, ...], FoldedLog]:
    """Return what the data table has passed, in the order in which it can be published, and the log that has it."""
    folded, landing = session.read_state(prepared.ledgers), session.landing
    table = next((t for t in prepared.tables if t.name == landing.table), None)
    if table is None:
        return (), folded
    ready = settle(folded.state.accepted[table.name], table.ledger.section, table.ledger.others).ready

    def is_empty(a: AcceptedSlice) -> bool:
        if a.file_count(table.name) or report_problem(landing, table.table, table.name, a.report, ()):
            return False
        return session.signed or hidden_record(session.source, landing, a.report) is None

    return tuple(takewhile(is_empty, ready)), folded


def bring_forward(session: LandingSession) -> None:
    """Publish what the data table has passed."""
    prepared, landing = prepare_for_commit(session), session.landing
    for failure in prepared.failures.values():
        raise failure
    table = next((t for t in prepared.tables if t.name == landing.table), None)
    if table is None:
        # Only backfills have landed in it.
        return
    found, folded = passed(session, prepared)
    if not found:
        return
    publish(
        session.tables,
        AppendRequest(
            table=table.name,
            table_uuid=table.ledger.uuid,
            landing=landing.name,
            lane=session.lane,
            branch=landing.branch,
            commit_id=session.new_id(),
            slices=tuple(StagedSlice.of(a.report, table.name, ()) for a in found),
            control_end=replace(folded.begin, offset=folded.end),
            extra={"files": "0"},
        ),
    )


def to_be_published(session: LandingSession) -> Readings:
    tables = tuple(t for name in session.landing.tables if (t := _as_it_is(session, name)) is not None)
    if not any(t.name == session.landing.table for t in tables):
        return {}
    found, _ = passed(session, Prepared(tables=tables))
    readings: Readings = {}
    for one in found:
        readings = with_readings(readings, {one.report.generation: one.coverage})
    return readings


def with_readings(known: Readings, more: Readings) -> Readings:
    return {g: known.get(g, Coverage()) | more.get(g, Coverage()) for g in known.keys() | more.keys()}


def _as_it_is(session: LandingSession, name: str) -> PreparedTable | None:
    """Return a table and its ledger, without renewing anything."""
    table = session.tables.find(name)
    state = None if table is None else read_ledger(table.metadata, session.landing.branch)
    if table is None or state is None or state.section(session.landing.name, session.lane) is None:
        return None
    return prepared_table(session, name, table, state)
