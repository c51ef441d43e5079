# SPDX-License-Identifier: Apache-2.0
"""Pause a landing for all its runs, and resume it: `lakecommit pause` and `resume`.

Contract: the decision is in the ledger of the data table, so it applies to every run of the landing, wherever it
starts, and outlives the control topic. While it is set, no window is planned; reported slices are still published, and
backfills are not affected. `pause --drain` also ends open windows at the current record. Each decision is recorded in
the table's history, with user and reason.

Failure story: each is one compare-and-swap; a repetition changes nothing. A landing that never ran has no ledger to
record it in.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from airflow_provider_lakecommit.core import CONNECT_ADOPT, LIVE, Decision, LedgerSection
from airflow_provider_lakecommit.cycle import LandingSession, ledger_state, unknown_text
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import SnapshotKind, change_section, was_handed


def suspend(session: LandingSession, decision: Decision) -> dict[str, Any]:
    """Plan no more windows. Return and log the state, and whether this call has changed it.

    :raises LedgerError: the landing has no ledger yet, or it needs an operator
    :raises CatalogError: the catalog is unreachable
    """
    return _send(session, decision.by, replace(decision, what="plans no more windows"))


def resume(session: LandingSession, decision: Decision) -> dict[str, Any]:
    """Plan again.

    :raises LedgerError: as for :func:`suspend`
    :raises CatalogError: the catalog is unreachable
    """
    return _send(session, "", replace(decision, what="plans windows again"))


def _send(session: LandingSession, text: str, decision: Decision) -> dict[str, Any]:
    landing, changed = session.landing, False
    state = ledger_state(session, landing.table)
    if state is None or state.section(landing.name, LIVE) is None:
        unknown = unknown_text(session, {landing.table: state})
        raise LedgerError(
            "LC7040",
            f"landing {landing.name} has no ledger in {landing.table} yet to record the decision: pause the DAG that "
            f"runs it instead{f'; {unknown}' if unknown else ''}",
        )

    def change(section: LedgerSection) -> LedgerSection | None:
        nonlocal changed
        # Also where that was rolled back: the connector may run still.
        if section.sink is not None and was_handed(section) and not text:
            raise LedgerError(
                "LC7041",
                f"{landing.table} was handed back to connector {section.sink.connector}, which lands in it: take it "
                f"over again with `{CONNECT_ADOPT} SPEC --connector NAME --connect URL`",
            )
        # The first user's decision is kept.
        changed = bool(section.suspended) != bool(text)
        return replace(section, suspended=text) if changed else None

    after = change_section(
        session.tables,
        landing.table,
        landing.name,
        LIVE,
        SnapshotKind.CARRY,
        change,
        branch=landing.branch,
        decision=decision,
    )
    section = after.section(landing.name, LIVE)
    if suspended := section.suspended if section else "":
        session.log(f"landing {landing.name} suspended by {suspended}{'' if changed else ', as before'}")
    else:
        session.log(f"landing {landing.name} {'resumes with its next run' if changed else 'was not suspended'}")
    return {"landing": landing.name, "suspended": suspended or None, "changed": changed}
