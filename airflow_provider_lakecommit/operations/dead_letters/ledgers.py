# SPDX-License-Identifier: Apache-2.0
"""The data table and a dead-letter table of a landing, by their ledgers: what each has, and closed dead letters.

Contract: reads only. Of several data tables (``route``) the leading one counts, since each range is of all of them. The
data table is read first, so its later snapshots show what is landed again after the read.

Failure story: a ledger that does not show what is in its table is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from airflow_provider_lakecommit.core import FILLED, Coverage, LedgerSection, without_rows
from airflow_provider_lakecommit.cycle import LandingSession
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import Condition, LedgerState, landing_snapshots, read_ledger, require_ledger
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import table_name
from airflow_provider_lakecommit.operations.dead_letters.open_set import OpenSet, Readings, closed_of, readings_by


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledgers:
    """The two loaded tables, and by their ledgers: what each has, and which dead letters are closed."""

    data: Table
    dead: Table
    lane: str
    """The stream whose entry has the replayed ranges, of any stream."""
    readings: Readings
    dead_readings: Readings
    closed: Coverage
    passed: Coverage

    @property
    def open_set(self) -> OpenSet:
        return OpenSet(self.readings, self.dead_readings, self.closed, self.passed)


def ledgers(session: LandingSession, table: str | None = None) -> Ledgers:
    """Return the current state of the tables.

    :param table: a former dead-letter table of the landing
    :raises SpecError: the landing has none
    :raises LedgerError: a ledger does not show what is in its table
    :raises CatalogError: the catalog is unreachable
    """
    landing, dead_name = session.landing, table_name(session.landing, table)
    # The data table first: its later snapshots show what is landed again after this read.
    data = session.tables.load(landing.table)
    _, own = landing_sections(session, landing.table, data.metadata)
    dead = session.tables.load(dead_name)
    _, others = landing_sections(session, dead_name, dead.metadata)
    closed = closed_in(session, data.metadata, own) | Coverage.union(s.replayed for s in others)
    passed = Coverage.union(without_rows(s.provenance, s.covered) for s in own)
    replaced = Coverage.union(s.bounds for s in (*own, *others) if s.replaces)
    lanes = [s.lane for s in own]
    return Ledgers(
        data=data,
        dead=dead,
        lane=next((lane for lane in (session.lane, FILLED) if lane in lanes), lanes[0]),
        readings=readings_by(own),
        dead_readings=readings_by(others, replacing=True),
        closed=closed,
        passed=passed - replaced if dead_name == landing.dead_letter_table else Coverage(),
    )


def landing_sections(
    session: LandingSession, name: str, metadata: TableMetadata
) -> tuple[LedgerState, tuple[LedgerSection, ...]]:
    """Return the ledger of a table, and its entries of the landing, of any stream."""
    landing = session.landing
    state = read_ledger(metadata, landing.branch)
    require_ledger(state, name)
    own = tuple(s for s in state.sections if s.landing == landing.name)
    if state.condition is not Condition.PRESENT or not own:
        raise LedgerError(
            "LC7405",
            f"{name}: {state.reason or f'landing {landing.name} has landed nothing in it yet'}; run the "
            "landing first, then replay its dead letters",
        )
    return state, own


def closed_in(session: LandingSession, metadata: TableMetadata, own: Iterable[LedgerSection]) -> Coverage:
    landing = session.landing
    return closed_of(own, landing_snapshots(metadata, landing.branch, landing=landing.name))
