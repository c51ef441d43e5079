# SPDX-License-Identifier: Apache-2.0
"""Former tables of a landing, which its spec no longer names: their contents, and slices reported for them.

Contract: reads only. The control topic names the tables of the landing's plans and reports. :func:`check_former`
refuses a landing whose data table lacks its ledger while a former table has one: it would land its topics a second
time. A dropped table, or one that never had a ledger, refuses nothing.

Failure story: a former table is unknown once retention has removed its control records.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import (
    RESET_OFFSETS,
    Coverage,
    CycleOpened,
    Entry,
    LedgerSection,
    SliceReported,
    TablePublished,
)
from airflow_provider_lakecommit.cycle.plan.pending import endangered, known_section, ledger_state
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError, TableError


def check_former(session: LandingSession, name: str) -> None:
    """Refuse a data table without a ledger of this landing, while a former table has one.

    :raises LedgerError: rows are reported for the former table that the source no longer has
    :raises TableError: the landing lands into the former table
    """
    landing, own = session.landing.name, {(session.landing.name, session.lane)}
    entries = [e for _, some in session.all_entries() for e in some]
    for former in sorted(_tables_of(entries) - set(session.landing.tables)):
        if (state := ledger_state(session, former)) is None:
            continue
        if lost := endangered(session, former, state, own):
            raise LedgerError(
                "LC6007",
                f"landing {landing} has reported slices for {former}, which its spec no longer names, and the source "
                f"no longer has them: {'; '.join(lost.values())}. {name} cannot get them: name {former} until "
                f"`lakecommit land SPEC` has published them, or give them up with `{RESET_OFFSETS} SPEC --from "
                f"earliest --give-up-reported` while {former} is named",
            )
        if known_section(session, state) is not None:
            raise TableError(
                "LC6008",
                f"landing {landing} already lands into {former}, so it cannot land into {name} under the same name: "
                f"it would land all of its topics again. Name {former} again, or give the landing of {name} a name "
                f"of its own. To continue in {name} instead of {former}: `{RESET_OFFSETS} SPEC --from latest` lands "
                "only new records, `--from earliest` lands everything that the source has",
            )


def _tables_of(entries: Iterable[Entry]) -> set[str]:
    """Return the tables that plans, reports and snapshots of a landing name."""
    found: set[str] = set()
    for e in entries:
        if isinstance(e, CycleOpened):
            found |= {t.table for t in e.plan.targets}
        elif isinstance(e, SliceReported):
            found |= {t.table for t in e.report.tables}
        elif isinstance(e, TablePublished):
            found.add(e.table)
    return found


def left_by_former(session: LandingSession, data: LedgerSection) -> Coverage:
    """Return ranges of the data table whose other records a former table should have and lacks: its replacement must
    take them.
    """
    log = session.control.read(data.control.partition, data.control.read_from)
    reported: dict[str, Coverage] = {}
    taken: dict[str, Coverage] = {}
    for e in read_entries(log.records, session.landing.name, session.lane):
        if isinstance(e, TablePublished):
            taken[e.table] = taken.get(e.table, Coverage()) | e.coverage
        elif isinstance(e, SliceReported):
            for t in e.report.tables:
                if t.table not in session.landing.tables and t.rows:
                    reported[t.table] = reported.get(t.table, Coverage()) | e.report.coverage
    left = Coverage()
    for name, coverage in reported.items():
        state = ledger_state(session, name)
        section = None if state is None else state.section(session.landing.name, session.lane)
        left |= coverage - (taken.get(name, Coverage()) if section is None else section.covered)
    left &= data.covered
    if left:
        session.log(
            f"{left} was reported for a table that the spec no longer names, and is missing there: it is read again"
        )
    return left
