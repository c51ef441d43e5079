# SPDX-License-Identifier: Apache-2.0
"""Make the tables of a landing ready for a plan, and read them: present, readable by this landing, with a ledger whose
epoch is current.

Contract: after :func:`prepare` every table of the landing has a ledger entry of this stream, and each of these was
handled *before* anything else, by one compare-and-swap: a first run (initial entry), a table that joins later (it
starts at the end of the data table's ledger), an added topic, a rollback, a voiding spec change, a lost control topic
(new epoch). :func:`read` then reads the control log and, if a table has more than the source had, the source once more:
another run may land new records meanwhile, and a read shared by many landings may be seconds old. So only a log that is
shorter *now* counts as one that lost records.

All tables of a landing give up a range together; a single one has it only after a rollback of another table to before
that, or of itself to before the range was read after all. A record of the range would be a row or a dead letter in one
table, and nothing in the other. So ranges that one table has given up, and another one has read, are removed from the
ledger of the former, and planned for it as missing. A table with hard deletes stays as it is: an older change would
bring back a row that was deleted since.

Failure story: a missing ledger, or a table recreated while the log has its slices, needs an operator and is an error
that names the command. Concurrent changes are made once. A range is removed only if no row of it was landed by the
ledger, so nothing is landed twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID, uuid4

from pyiceberg.table import Table

from airflow_provider_lakecommit.core import (
    DEAD_LETTER,
    LIVE,
    Coverage,
    LedgerSection,
    RangeSet,
    RowsPerOffset,
    TableLedger,
    TableTarget,
    current_readings,
    merged,
    same_readings,
    unevaluated,
    without_rows,
)
from airflow_provider_lakecommit.cycle.plan.known import (
    check_first_run,
    check_lane_open,
    check_new,
    first_section,
    newest_target,
)
from airflow_provider_lakecommit.cycle.plan.ledger_upkeep import LedgerUpkeep
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.cycle.session.tables import check_fit, table_of, target_of
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError, TableError
from airflow_provider_lakecommit.iceberg import (
    REPLACED,
    LedgerState,
    Replaced,
    SnapshotKind,
    SnapshotRecord,
    check_adopted,
    check_key,
    check_key_columns,
    check_no_other,
    check_not_brought_back,
    ensure_branch,
    read_ledger,
    require_ledger,
    swap_sections,
)
from airflow_provider_lakecommit.kafka import SourceState


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The tables of a landing, its control log and its source, read in this order, except that the source is at least
    as new as the tables.
    """

    prepared: Prepared
    log: FoldedLog
    source: SourceState


def read(session: LandingSession, source: SourceState, *, dry: bool = False) -> Reading:
    """Make the tables ready, and read them and the control log.

    :param source: an earlier read; it is made anew if a table has landed more
    :param dry: write nothing; new tables and entries are only simulated
    :raises LakecommitError: as :func:`~airflow_provider_lakecommit.cycle.plan.ready_tables.prepare`
    :raises ControlTopicError: the control topic cannot be read
    :raises SourceError: the topics cannot be read
    :raises SourceUnavailableError: the brokers do not answer
    """
    prepared = prepare(session, source, dry=dry)
    log = session.read_state(prepared.ledgers)
    ledgers = log.state.ledgers.values()
    older = any(ledger.end(p) > mark.high for ledger in ledgers for p, mark in source.partitions.items())
    return Reading(prepared=prepared, log=log, source=session.source.watermarks() if older else source)


def prepare(session: LandingSession, source: SourceState, *, dry: bool = False) -> Prepared:
    """Return everything a plan needs of the tables. A table other than the leading one that is unreadable, or needs an
    operator, is among the failures, if the log knows it (:mod:`~airflow_provider_lakecommit.cycle.plan.known`).

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
            if not does_without(session, name):
                data = _whole(out[0]) if out else None
                ready = _ready(LedgerUpkeep(session=session, name=name, source=source, data=data), source, dry=dry)
                out.append(after_sink(session, ready, out[0]) if out else ready)
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
        if (state := _state_with_unread(session, source, t.name, t.state, others)) is not t.state:
            t = prepared_table(session, t.name, t.table, state)
            t = after_sink(session, t, out[0]) if out else t
        out.append(t)
    return tuple(out)


def _ready(upkeep: LedgerUpkeep, source: SourceState, *, dry: bool) -> PreparedTable:
    """Return one table, which then exists, with an entry of this stream."""
    session, name, data = upkeep.session, upkeep.name, upkeep.data
    table = table_of(session, name, dry=dry, before_making=partial(check_new, session, data))
    if session.landing.checks:
        table = ensure_branch(session.tables, name, table, session.landing.branch, dry=dry)
    state = sound_ledger(session, name, table)
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


def after_sink(session: LandingSession, table: PreparedTable, data: PreparedTable) -> PreparedTable:
    """Return a further table that lacks nothing that a connector landed in the data table: read for this table alone, a
    record could be a row there and a reject here.
    """
    live = data.state.section(session.landing.name, LIVE)
    if data.name != session.landing.table or live is None or live.sink is None or not live.sink.landed:
        return table
    others = table.ledger.others | live.sink.landed - table.ledger.section.covered
    return replace(table, ledger=replace(table.ledger, others=others))


def does_without(session: LandingSession, name: str) -> bool:
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


def sound_ledger(session: LandingSession, name: str, table: Table) -> LedgerState:
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


def _unread_by(landing: str, state: LedgerState, others: Sequence[LedgerState]) -> Coverage:
    """Return what a table has given up, and others have read.

    :param landing: the landing whose entries are compared
    """
    own, found = _own(landing, state), Coverage()
    for other in (_own(landing, o) for o in others):
        # Ranges passed without a row may lack their rules: they were read all the same.
        same = same_readings(current_readings(own), current_readings(other))
        found = found | Coverage.union(c & s.covered for s in other for c in s.evaluated.values()) - same
    return Coverage.union(_given_up(s) for s in own) & found


def _state_with_unread(
    session: LandingSession, source: SourceState, name: str, state: LedgerState, others: Sequence[LedgerState]
) -> LedgerState:
    """Return the ledger of a table, without ranges that it has given up if another table has read them and the source
    still has them.

    :param others: the ledgers of the landing's other tables
    :raises LakecommitError: the table cannot be read or written
    """
    if session.landing.upsert.leaves_no_trace and name in session.landing.data_tables:
        return state
    there = ((p, RangeSet.of((w.start, max(w.start, w.stable)))) for p, w in source.partitions.items())
    if not (unread := _unread_by(session.landing.name, state, others) & Coverage(dict(there))):
        return state
    session.log(f"WARNING: {name}: gave up {unread}, which another table reads: {name} reads it again, too")
    landing = session.landing
    extra: dict[str, str] = {}

    def update(state: LedgerState) -> tuple[LedgerSection, ...] | None:
        require_ledger(state, name)
        removed = {s.key: unread & _given_up(s) for s in _own(landing.name, state)}
        if not (taken := Coverage.union(removed.values())):
            return None
        extra[REPLACED] = Replaced(ranges=taken).to_text()
        return tuple(_without(s, removed.get(s.key, Coverage())) for s in state.sections)

    record = SnapshotRecord(
        kind=SnapshotKind.REPLACE, branch=landing.branch, landing=landing.name, lane=session.lane, extra=extra
    )
    return swap_sections(session.tables, name, record, update)


def _own(landing: str, state: LedgerState) -> list[LedgerSection]:
    return [s for s in state.sections if s.landing == landing]


def _given_up(section: LedgerSection) -> Coverage:
    """Return the given-up ranges of an entry: without a landed row or an evaluated record."""
    return unevaluated(section.evaluated, without_rows(section.provenance, section.covered))


def _without(section: LedgerSection, removed: Coverage) -> LedgerSection:
    if not removed:
        return section
    kept = tuple(e.rest(removed, e.rows) if e.per_offset is RowsPerOffset.NONE else e for e in section.provenance)
    provenance = tuple(e for e in kept if e.coverage)
    return replace(section, covered=section.covered - removed, provenance=provenance, epoch=uuid4())
