# SPDX-License-Identifier: Apache-2.0
"""Prepare the tables of a landing: present, readable by this landing, with a ledger whose epoch is current.

Contract: after :func:`prepare` every table of the landing has a ledger entry of this stream, and each of these was
handled *before* anything else, by one compare-and-swap: a first run (initial entry), a table that joins later (it
starts at the end of the data table's ledger), an added topic, a rollback, a voiding spec change, a lost control topic
(new epoch). :func:`prepare_for_commit` makes no initial entry and isolates tables: a failing one is named and does not
delay the others.

Failure story: a missing ledger, or a table recreated while the log has its slices, needs an operator and is an error
that names the command. Concurrent changes are made once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.committer import (
    LedgerState,
    check_adopted,
    check_key,
    check_key_columns,
    check_no_other,
    check_not_brought_back,
    ensure_branch,
    read_ledger,
    require_ledger,
)
from airflow_provider_lakecommit.core import (
    DEAD_LETTER,
    LIVE,
    LedgerSection,
    TableLedger,
    TableTarget,
    merged,
)
from airflow_provider_lakecommit.cycle.plan.known import (
    check_first_run,
    check_lane_open,
    check_new,
    first_section,
    ledger_state,
    newest_target,
)
from airflow_provider_lakecommit.cycle.plan.ledger_upkeep import LedgerUpkeep
from airflow_provider_lakecommit.cycle.plan.unread import with_unread
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.cycle.session.tables import check_fit, table_of, target_of
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, LedgerError, TableError
from airflow_provider_lakecommit.kafka import SourceState

__all__ = [
    "Prepared",
    "PreparedTable",
    "check_first_run",
    "ledger_state",
    "prepare",
    "prepare_for_commit",
    "prepare_table",
    "prepared_table",
    "table_ledger",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTable:
    """A table with its ledger as last read."""

    name: str
    table: Table
    state: LedgerState
    ledger: TableLedger


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The ready tables, and the failures by table; ``without``: plan entries of tables that a plan skips."""

    tables: tuple[PreparedTable, ...]
    failures: Mapping[str, Exception] = field(default_factory=dict)
    without: tuple[TableTarget, ...] = ()

    @property
    def ledgers(self) -> tuple[TableLedger, ...]:
        return tuple(t.ledger for t in self.tables)

    @property
    def epochs(self) -> dict[str, UUID]:
        return {t.name: t.ledger.section.epoch for t in self.tables}

    @property
    def suspended(self) -> str:
        """Return the user who suspended the landing, by the data table, and the reason."""
        return self.tables[0].ledger.section.suspended

    @property
    def targets(self) -> tuple[TableTarget, ...]:
        return (*(target_of(t.name, t.table, t.ledger.section.epoch) for t in self.tables), *self.without)


def prepare(session: LandingSession, source: SourceState, *, dry: bool = False) -> Prepared:
    """Return everything a plan needs of the tables. A table other than the leading one that is unreadable, or needs an
    operator, is among the failures, if the log knows it (:mod:`~airflow_provider_lakecommit.cycle.plan.absent`).

    :param dry: write nothing; new tables and entries are only simulated
    :raises TableError: missing, or not able to take the rows
    :raises LedgerError: needs an operator
    :raises SourceError: the source is another cluster
    :raises CatalogError: the catalog is unavailable
    :raises SpecWaits: a spec change has to wait for a commit
    """
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    without: list[TableTarget] = []
    for name in session.landing.tables:
        try:
            if not _does_without(session, name):
                data = _whole(out[0]) if out else None
                ready = _ready(LedgerUpkeep(session=session, name=name, source=source, data=data), source, dry=dry)
                out.append(_after_sink(session, ready, out[0]) if out else ready)
        except (TableError, LedgerError, CatalogError) as e:
            if not out or (target := newest_target(session, name)) is None:
                raise
            failures[name] = e
            without.append(target)
    tables = tuple(out) if dry else _with_unread(session, source, out)
    return Prepared(tables=tables, failures=failures, without=tuple(without))


def _whole(table: PreparedTable) -> LedgerSection:
    """Return the entry of a table together with what other streams have: a replay leaves holes in it."""
    return replace(table.ledger.section, covered=table.ledger.all_covered)


def _with_unread(
    session: LandingSession, source: SourceState, tables: Sequence[PreparedTable]
) -> tuple[PreparedTable, ...]:
    """Return the tables, without ranges given up by one that another has read, and that the source still has."""
    out: list[PreparedTable] = []
    for t in tables:
        others = [other.state for other in tables if other is not t]
        if (state := with_unread(session, source, t.name, t.state, others)) is not t.state:
            t = prepared_table(session, t.name, t.table, state)
            t = _after_sink(session, t, out[0]) if out else t
        out.append(t)
    return tuple(out)


def _ready(upkeep: LedgerUpkeep, source: SourceState, *, dry: bool) -> PreparedTable:
    """Return one table, which then exists, with an entry of this stream."""
    session, name, data = upkeep.session, upkeep.name, upkeep.data
    table = table_of(session, name, dry=dry, before_making=partial(check_new, session, data))
    if session.landing.checks:
        table = ensure_branch(session.tables, name, table, session.landing.branch, dry=dry)
    state = _sound_ledger(session, name, table)
    check_no_other(name, session.landing.name, state.sections, source.partitions)
    if (section := state.section(session.landing.name, session.lane)) is None:
        check_lane_open(session, name)
        check_new(session, data, name, table)
        check_fit(session.landing, target_of(name, table, session.new_id()))
        section = first_section(session, source, data, state.sections)
        state = replace(state, sections=(*state.sections, section)) if dry else upkeep.joined(table, state, section)
    else:
        # Before anything is written: a ledger must not be changed by another cluster's offsets.
        upkeep.check_cluster(section, source.cluster_id)
        state = state if dry else upkeep.renewed(state)
    return prepared_table(session, name, table, state)


def _after_sink(session: LandingSession, table: PreparedTable, data: PreparedTable) -> PreparedTable:
    """Return a further table that lacks nothing that a connector landed in the data table: read for this table alone, a
    record could be a row there and a reject here.
    """
    live = data.state.section(session.landing.name, LIVE)
    if data.name != session.landing.table or live is None or live.sink is None or not live.sink.landed:
        return table
    others = table.ledger.others | live.sink.landed - table.ledger.section.covered
    return replace(table, ledger=replace(table.ledger, others=others))


def prepare_for_commit(session: LandingSession, *, log: bool = True) -> Prepared:
    """Return the tables with a ledger of this stream, as they are now; failures are kept per table.

    :param log: log the failures
    """
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    for name in session.landing.tables:
        try:
            if (found := prepare_table(session, name)) is not None:
                out.append(_after_sink(session, found, out[0]) if out else found)
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
        if _does_without(session, name):
            return None
        # A table that existed is reported as missing, also if it was dropped between plan and commit.
        check_first_run(session, name)
        landing = session.landing
        made = landing.create_of(name) is not None or name not in landing.data_tables
        cause, remedy = "no plan has created it, see the log of the plan", "create it, or state `create` in the landing"
        why = session.tables.elsewhere(name) or (cause if made else remedy)
        raise TableError("LC6013", f"there is no table {name} in {session.tables.called}: {why}")
    state = _sound_ledger(session, name, table)
    if state.section(session.landing.name, session.lane) is None:
        check_lane_open(session, name)
        check_first_run(session, name, table)
        return None
    return prepared_table(session, name, table, LedgerUpkeep(session=session, name=name).renewed(state))


def _does_without(session: LandingSession, name: str) -> bool:
    """Return True if the table is missing and its records are dead letters until it exists.

    :raises LedgerError: it existed before
    """
    landing = session.landing
    tolerated = landing.routing is not None and landing.routing.missing == DEAD_LETTER and name != landing.table
    if not tolerated or name not in landing.data_tables or landing.create_of(name) is not None:
        return False
    if session.tables.find(name) is not None:
        return False
    check_first_run(session, name)
    session.log(f"WARNING: there is no table {name}: its records are rejected until it exists")
    return True


def _sound_ledger(session: LandingSession, name: str, table: Table) -> LedgerState:
    """Return the ledger of a table if it reflects the table's content.

    :raises LedgerError: it does not, and an operator must decide
    """
    state = read_ledger(table.metadata, session.landing.branch)
    require_ledger(state, name)
    check_not_brought_back(table, state, name)
    live = state.section(session.landing.name, LIVE)
    # Handing the table back suspended the landing: its runs plan nothing, and need not fail. The dead-letter table
    # follows the data table, which may have been rolled back alone.
    waits = session.lane == LIVE and live is not None and live.suspended and live.sink and live.sink.lands
    if name == session.landing.table and not waits:
        check_adopted(table.metadata, state, session.landing.name, name)
    if name == session.landing.table:
        key = session.landing.upsert.key
        check_key(name, session.landing.name, key, state.sections)
        if key:
            check_key_columns(name, table.metadata, state, key)
    return state


def prepared_table(session: LandingSession, name: str, table: Table, state: LedgerState) -> PreparedTable:
    """Return a table with the ledger that was read from it.

    :raises LedgerError: there is no entry of this stream
    """
    return PreparedTable(name=name, table=table, state=state, ledger=table_ledger(session, name, state))


def table_ledger(session: LandingSession, name: str, state: LedgerState) -> TableLedger:
    """Return what the fold needs of a table.

    :raises LedgerError: there is no entry of this stream
    """
    evaluated = merged({}, (item for s in state.sections for item in s.evaluated.items()), most=None)
    section, others = (
        state.own(session.landing.name, session.lane),
        state.covered(exclude=(session.landing.name, session.lane)),
    )
    lanes = [s for s in state.sections if s.landing == section.landing and s.cluster_id == section.cluster_id]
    return TableLedger(
        table=name,
        uuid=state.table_uuid,
        section=section,
        others=others,
        evaluated=evaluated,
        elsewhere=tuple(position for s in lanes if s.lane != section.lane for position in s.positions.items()),
    ).as_needed
