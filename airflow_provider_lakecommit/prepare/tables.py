# SPDX-License-Identifier: Apache-2.0
"""Making the tables of a landing ready: there, readable by this landing, with a ledger whose epoch is current.

Contract: after :func:`prepare` every table of the landing has a ledger section of this lane, and each of these was
dealt with *before* anything else, by one compare-and-swap: a first run (origin), a table that joins later (it starts
where the data table's ledger ends), a topic that was added, a rollback, a spec change that voids, a lost control log
(new epoch). :func:`prepare_for_commit` makes no origin and keeps tables apart: one that fails is named and does not
hold up the others.

Failure story: a ledger that is gone, or a table that was dropped and made anew while the log remembers it, needs a
person and is an error that names the command. What two processes do at once is done once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import UUID

from pyiceberg.table import Table

from airflow_provider_lakecommit.committer.adopted import check_adopted
from airflow_provider_lakecommit.committer.brought_back import check_not_brought_back
from airflow_provider_lakecommit.committer.ledger import LedgerState, read_ledger, require_ledger
from airflow_provider_lakecommit.core.log import SliceReported, TablePublished
from airflow_provider_lakecommit.core.model import LIVE, LedgerSection, TableTarget
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet
from airflow_provider_lakecommit.core.routing import DEAD_LETTER
from airflow_provider_lakecommit.core.rules import merged
from airflow_provider_lakecommit.core.state import TableLedger
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, LedgerError, TableError
from airflow_provider_lakecommit.kafka.source_topic import SourceState
from airflow_provider_lakecommit.prepare.absent import newest_target, remembered
from airflow_provider_lakecommit.prepare.epochs import joined, renewed
from airflow_provider_lakecommit.prepare.pending import endangered
from airflow_provider_lakecommit.prepare.sections import (
    check_cluster,
    check_lane_open,
    first_offsets,
    new_section,
    origin_position,
    own_section,
)
from airflow_provider_lakecommit.reset_commands import RESET_ATTEST, RESET_OFFSETS
from airflow_provider_lakecommit.session.landing_session import LandingSession
from airflow_provider_lakecommit.session.tables import table_of
from airflow_provider_lakecommit.session.targets import check_fit, target_of
from airflow_provider_lakecommit.wire.quarantine import read_entries

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
    """The tables that are ready, and what failed by table; ``without``: how those were that a plan does without."""

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
        """Who had the landing plan nothing, by the data table, and why."""
        return self.tables[0].ledger.section.suspended

    @property
    def targets(self) -> tuple[TableTarget, ...]:
        return (*(target_of(t.name, t.table, t.ledger.section.epoch) for t in self.tables), *self.without)


def prepare(session: LandingSession, source: SourceState, *, dry: bool = False) -> Prepared:
    """Everything a plan needs of the tables. One beside the leading one that cannot be read, or needs a person, is
    among the failures, where the log knows it (:mod:`~airflow_provider_lakecommit.prepare.absent`).

    :param dry: write nothing; what would be made is only thought
    :raises TableError: missing, or not able to take the rows
    :raises LedgerError: needs a person
    :raises SourceError: the source is another cluster
    :raises CatalogError: the catalog is away
    :raises SpecWaits: a spec change has to wait for a commit
    """
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    without: list[TableTarget] = []
    for name in session.landing.tables:
        try:
            if not _does_without(session, name):
                out.append(_ready(session, name, source, out[0].ledger.section if out else None, dry=dry))
        except (TableError, LedgerError, CatalogError) as e:
            if not out or (target := newest_target(session, name)) is None:
                raise
            failures[name] = e
            without.append(target)
    return Prepared(tables=tuple(out), failures=failures, without=tuple(without))


def _ready(
    session: LandingSession, name: str, source: SourceState, leading: LedgerSection | None, *, dry: bool
) -> PreparedTable:
    """One table, which is there afterwards, with a section of this lane.

    :param leading: of the first table, if this is another one
    """
    table = table_of(session, name, dry=dry, before_making=partial(check_first_run, session))
    state = _sound_ledger(session, name, table)
    _check_alone(session, name, state, source)
    if state.section(session.landing.name, session.lane) is None:
        check_lane_open(session, name)
        check_first_run(session, name, table)
        if leading is None:
            _check_former(session, name)
        check_fit(session.landing, target_of(name, table, session.new_id()))
        section = _origin(session, source, leading)
        state = _thought(state, section) if dry else joined(session, name, table, state, section)
    else:
        # Before anything is written: of another cluster nothing is known that a ledger could be changed by.
        check_cluster(session, name, own_section(state, session), source.cluster_id)
        if not dry:
            state = renewed(session, name, state, source, leading)
    return prepared_table(session, name, table, state)


def prepare_for_commit(session: LandingSession, *, tell: bool = True) -> Prepared:
    """The tables that have a ledger of this lane, as they are now; each failure is kept apart.

    :param tell: say what failed
    """
    out: list[PreparedTable] = []
    failures: dict[str, Exception] = {}
    for name in session.landing.tables:
        try:
            if (found := prepare_table(session, name)) is not None:
                out.append(found)
        except LakecommitError as e:
            if tell:
                session.log(f"{name}: {e}")
            failures[name] = e
    return Prepared(tables=tuple(out), failures=failures)


def prepare_table(session: LandingSession, name: str) -> PreparedTable | None:
    """A table as it is now, if it has a ledger of this lane.

    :raises LakecommitError: it cannot be read, or needs a person
    """
    table = session.tables.find(name)
    if table is None:
        if _does_without(session, name):
            return None
        # One that was there is told as what it is, also where it went between plan and commit.
        check_first_run(session, name)
        landing = session.landing
        made = landing.create_of(name) is not None or name not in landing.data_tables
        told, ask = "no plan has made it, see what the plan said", "create it, or state `create` in the landing"
        why = told if made else ask
        raise TableError(f"there is no table {name} in {session.tables.called}: {why}")
    state = _sound_ledger(session, name, table)
    if state.section(session.landing.name, session.lane) is None:
        check_lane_open(session, name)
        check_first_run(session, name, table)
        return None
    return prepared_table(session, name, table, renewed(session, name, state, None, None))


def _does_without(session: LandingSession, name: str) -> bool:
    """Is the table missing, and are its records dead letters as long as it is?

    :raises LedgerError: it was there
    """
    landing = session.landing
    tolerated = landing.routing is not None and landing.routing.missing == DEAD_LETTER and name != landing.table
    if not tolerated or name not in landing.data_tables or landing.create_of(name) is not None:
        return False
    if session.tables.find(name) is not None:
        return False
    check_first_run(session, name)
    session.log(f"WARNING: there is no table {name}: records for it are rejected until there is")
    return True


def _sound_ledger(session: LandingSession, name: str, table: Table) -> LedgerState:
    """The ledger of a table, as long as it tells what is in it.

    :raises LedgerError: it does not, and a person has to say it
    """
    state = read_ledger(table.metadata, session.landing.branch)
    require_ledger(state, name)
    check_not_brought_back(table, state, name)
    live = state.section(session.landing.name, LIVE)
    # Who handed the table back suspended the landing by that: its runs plan nothing, and need not fail.
    if session.lane != LIVE or live is None or not (live.suspended and live.sink and live.sink.lands):
        check_adopted(table.metadata, state, session.landing.name, name)
    return state


def _origin(session: LandingSession, source: SourceState, data: LedgerSection | None) -> LedgerSection:
    """The first section of a lane: at ``start`` for the data table, at the data table's end for one that joins
    later.
    """
    if data is None:
        starts, control = first_offsets(source.partitions, session.landing.start), origin_position(session)
    else:
        behind = _left_by_former(session, data)
        starts = {p: _first(behind[p], data.end(p)) for p in data.starts.keys() | source.partitions.keys()}
        control = data.control
    return new_section(session, source, starts, Coverage(), control)


def _left_by_former(session: LandingSession, data: LedgerSection) -> Coverage:
    """What the data table has, and a table in which the landing had other records of it has not: that one is not named
    any more, so that the one which joins in its place has to take it.
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
            f"{left} is reported for a table that the landing names no more, and is not in it: it is read again"
        )
    return left


def _first(ranges: RangeSet, end: int) -> int:
    return min(end, ranges.ranges[0].start) if ranges else end


def check_first_run(session: LandingSession, name: str, table: Table | None = None) -> None:
    """A table that is missing or without a ledger is a first run only if the log does not remember slices for it.

    :raises LedgerError: it does
    """
    uuids = remembered(session, name)
    if table is not None and table.metadata.table_uuid in uuids:
        raise LedgerError(
            f"branch {session.landing.branch} of {name} has no snapshot of landing {session.landing.name}, and the "
            "control topic remembers its slices for this very table: it was rolled back to before the first one, or "
            f"replaced, and its rows are gone with that. `{RESET_OFFSETS} SPEC --from earliest` reads again what the "
            f"source has of them; if somebody has brought them back, say what is there with `{RESET_ATTEST} SPEC --at "
            "TOPIC:PARTITION=OFFSET,…`"
        )
    if uuids:
        raise LedgerError(
            f"{name} of {session.tables.called} has no ledger, but the control topic remembers slices of landing "
            f"{session.landing.name} for table {', '.join(sorted(map(str, uuids)))}: it was dropped, renamed or made "
            "anew, or this is another catalog than before. Bring it back, or correct where the catalog is; else say "
            f"that it holds what was landed (`{RESET_ATTEST} SPEC --from-log`, ResetAttestOperator) or where it goes "
            f"on (`{RESET_OFFSETS} SPEC --from OFFSETS`, ResetOffsetsOperator)"
        )


def _check_former(session: LandingSession, name: str) -> None:
    """A landing that goes to another table takes what is reported for the former one there first, if nobody can read it
    again: the new table begins with what the source has.
    """
    entries = (e for _, some in session.all_entries() for e in some)
    named = {t.table for e in entries if isinstance(e, SliceReported) for t in e.report.tables}
    own = {(session.landing.name, session.lane)}
    for former in sorted(named - set(session.landing.tables)):
        state = ledger_state(session, former)
        if state is not None and (lost := endangered(session, former, state, own)):
            raise LedgerError(
                f"landing {session.landing.name} has reported for {former}, which it names no more, what the source "
                f"has no more: {'; '.join(lost.values())}. {name} cannot get it: name {former} again until `lakecommit "
                f"land SPEC` has published it, or give it up with `{RESET_OFFSETS} SPEC --from earliest "
                f"--give-up-reported` while {former} is named"
            )


def _thought(state: LedgerState, section: LedgerSection) -> LedgerState:
    return replace(state, sections=(*state.sections, section))


def prepared_table(session: LandingSession, name: str, table: Table, state: LedgerState) -> PreparedTable:
    """A table with the ledger that was read from it.

    :raises LedgerError: there is no section of this lane
    """
    return PreparedTable(name=name, table=table, state=state, ledger=table_ledger(session, name, state))


def ledger_state(session: LandingSession, name: str) -> LedgerState | None:
    """The ledger of a table as it is; ``None``: there is no such table.

    :raises CatalogError: the catalog is away
    """
    table = session.tables.find(name)
    return None if table is None else read_ledger(table.metadata, session.landing.branch)


def table_ledger(session: LandingSession, name: str, state: LedgerState) -> TableLedger:
    """What the fold needs of a table.

    :raises LedgerError: there is no section of this lane
    """
    judged = merged({}, (item for s in state.sections for item in s.judged.items()), most=None)
    section, others = own_section(state, session), state.covered(exclude=(session.landing.name, session.lane))
    return TableLedger(table=name, uuid=state.table_uuid, section=section, others=others, judged=judged).as_needed


def _check_alone(session: LandingSession, name: str, state: LedgerState, source: SourceState) -> None:
    """Two landings of one topic into one table would both want every offset of it."""
    for s in state.sections:
        shared = sorted({p.topic for p in s.starts.keys() & source.partitions.keys()})
        if s.landing != session.landing.name and shared:
            raise TableError(
                f"landing {s.landing} lands {', '.join(shared)} into {name} already, so landing {session.landing.name} "
                f"cannot: give one of them another table, or a landing that was renamed its old name back"
            )
