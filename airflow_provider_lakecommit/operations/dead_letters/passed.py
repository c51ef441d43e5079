# SPDX-License-Identifier: Apache-2.0
"""Publish ranges of which every record was rejected, before the data table's ledger has them.

The ledger of a table without rows is rarely refreshed, so a data table may be far behind its dead letters. These would
have to wait, just where only dead letters arrived.

Contract: :func:`to_be_published` returns what is reported without a row for the data table and can be published now;
reads only. :func:`bring_forward` publishes it by the compare-and-swap of a commit, with all of its checks, and nothing
else. The next commit of the landing announces it.

Failure story: that of an append; a repetition has no effect.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

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
from airflow_provider_lakecommit.iceberg import AppendRequest, StagedSlice, publish, read_ledger
from airflow_provider_lakecommit.operations.dead_letters.open_set import Readings


def bring_forward(session: LandingSession) -> None:
    prepared, landing = prepare_for_commit(session), session.landing
    for failure in prepared.failures.values():
        raise failure
    if (found := _passed(session, prepared)) is None:
        return
    table, slices, folded = found
    publish(
        session.tables,
        AppendRequest(
            table=table.name,
            table_uuid=table.ledger.uuid,
            landing=landing.name,
            lane=session.lane,
            branch=landing.branch,
            commit_id=session.new_id(),
            slices=tuple(StagedSlice.of(a.report, table.name, ()) for a in slices),
            control_end=replace(folded.begin, offset=folded.end),
            extra={"files": "0"},
        ),
    )


def to_be_published(session: LandingSession) -> Readings:
    """Return what :func:`bring_forward` would publish, without renewing anything."""
    tables: list[PreparedTable] = []
    for name in session.landing.tables:
        table = session.tables.find(name)
        state = None if table is None else read_ledger(table.metadata, session.landing.branch)
        if table is not None and state is not None and state.section(session.landing.name, session.lane) is not None:
            tables.append(prepared_table(session, name, table, state))
    readings: Readings = {}
    if (found := _passed(session, Prepared(tables=tuple(tables)))) is not None:
        for one in found[1]:
            readings = with_readings(readings, {one.report.generation: one.coverage})
    return readings


def _passed(
    session: LandingSession, prepared: Prepared
) -> tuple[PreparedTable, tuple[AcceptedSlice, ...], FoldedLog] | None:
    """Return the data table, the slices that it has passed, in the order in which they can be published, and the log
    that has them; ``None``: there are none, or only backfills have landed in it.
    """
    landing = session.landing
    table = next((t for t in prepared.tables if t.name == landing.table), None)
    if table is None:
        return None
    folded = session.read_state(prepared.ledgers)
    ready = settle(folded.state.accepted[table.name], table.ledger.section, table.ledger.others).ready

    def is_empty(a: AcceptedSlice) -> bool:
        if a.file_count(table.name) or report_problem(landing, table.table, table.name, a.report, ()):
            return False
        return session.signed or hidden_record(session.source, landing, a.report) is None

    found = tuple(takewhile(is_empty, ready))
    return (table, found, folded) if found else None


def with_readings(known: Readings, more: Readings) -> Readings:
    return {g: known.get(g, Coverage()) | more.get(g, Coverage()) for g in known.keys() | more.keys()}
