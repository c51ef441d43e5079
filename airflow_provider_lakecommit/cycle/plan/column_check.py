# SPDX-License-Identifier: Apache-2.0
"""The columns that some ranges' records, or the SQL of a landing, need in its tables; and their change.

Contract: :func:`column_check` reads and decides, and changes nothing. Records are sampled once and assigned to tables
by the landing's `route`, as tasks do; a table with SQL gets the columns of the SQL. A table without a sampled record
needs nothing. :func:`evolve` changes columns once per window, before anything of it is written: by the planner, never
by a task, by one commit per table. The planner then reads everything again, so that the plan has the tables' schemas.

Invariants: a record goes to exactly one table (:mod:`~airflow_provider_lakecommit.cycle.plan.dispositions`), and other
columns are other rules. So ``waits`` says why nothing may change yet: a table of the landing lacks ranges or rows that
another one has, or is unreadable. A user's change is respected: dropped and renamed columns stay so.

Failure story: brokers, registry and SQL raise their usual errors, and the plan is made again. Records that do not fit
are dead letters within the budget, or no window is planned (``on_incompatible``). SQL with a column that its table
cannot get is a :class:`~airflow_provider_lakecommit.exceptions.TableError` of the plan: no row could be written. If a
catalog refuses a schema change, this is reported and the landing continues with the existing columns; an unavailable
catalog is an error of the plan.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FloatType, IntegerType, StructType

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import (
    RESET_OFFSETS,
    Coverage,
    Decision,
    Missing,
    OffsetRange,
    Plan,
    RefusalState,
    Refuse,
    SliceReported,
    SourcePartition,
    empty_plan,
)
from airflow_provider_lakecommit.cycle.plan.ready_tables import Prepared
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.cycle.session.tables import evolves_by_sql, sql_types
from airflow_provider_lakecommit.exceptions import CommitRefusedError, CommitUnknownError, TableError
from airflow_provider_lakecommit.formats import (
    Change,
    Evolution,
    EvolveRequest,
    InferredTypes,
    RecordSample,
    dotted,
    evolve_table,
    paths_in,
    side_of,
    source_for,
)
from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.landing import Landing

MOST_REREAD = 500
"""Records of the control topic before those the plan needs, in which reports name unknown fields."""
MOST_PATHS = 50
"""Most such fields whose first records are read."""
_WIDENED = (IntegerType, FloatType, DecimalType)
"""Types that can be widened."""
MOST_NAMED = 10
"""Most columns in one line, or most lines of one column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCheck:
    """The columns that a table needs for some ranges' records or its SQL. ``named``: it is one of several tables."""

    table: str
    inferred: InferredTypes
    found: Evolution
    named: bool = False

    @property
    def not_made(self) -> tuple[str, ...]:
        """Return the omitted changes, and why."""
        return (*self.line_of(self.found.left_out), *self.line_of(self.found.misfits))

    def line_of(self, some: Sequence[object]) -> tuple[str, ...]:
        """Format items in one line."""
        table = f"{self.table}: " if self.named else ""
        return (f"{table}columns, by {self.inferred.origin}: {some_of(some)}",) if some else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCheck:
    """The columns that some ranges need in the tables of rows. ``waits``: why nothing may be changed yet; ``tried``:
    the changes were made or refused once.
    """

    ranges: Coverage
    tables: tuple[TableCheck, ...]
    waits: str = ""
    tried: bool = False

    @property
    def changes(self) -> bool:
        """Return True if anything must be changed."""
        return any(one.found.changes for one in self.tables)

    @property
    def misfits(self) -> bool:
        """Return True if anything does not fit."""
        return any(one.found.misfits for one in self.tables)

    @property
    def lines(self) -> tuple[str, ...]:
        return (*(line for one in self.tables for line in one.line_of(one.found.changes)), *self.not_made)

    @property
    def not_made(self) -> tuple[str, ...]:
        """Return the omitted changes, and why."""
        waits = (f"columns do not change yet: {self.waits}",) if self.waits and self.changes else ()
        return (*(line for one in self.tables for line in one.not_made), *waits)


def column_check(
    session: LandingSession,
    prepared: Prepared,
    folded: FoldedLog,
    ranges: Coverage,
    missing: Missing,
    last: ColumnCheck | None = None,
) -> ColumnCheck:
    """Return the columns that some ranges need.

    :param last: an earlier result; for the same ranges, its records are reused
    :raises SourceError: the records cannot be read
    :raises SourceUnavailableError: the brokers, or a registry, do not answer
    :raises TableError: SQL cannot be run
    """
    landing = session.landing
    tables = {t.name: t.table.metadata for t in prepared.tables if t.name in landing.data_tables}
    known = {} if last is None or last.ranges != ranges else {one.table: one.inferred for one in last.tables}
    inferred = known if known.keys() == tables.keys() else _inferred(session, folded, tables, ranges)
    checked = tuple(
        TableCheck(
            table=name,
            inferred=inferred[name],
            found=evolution_of(landing, name, metadata, inferred[name]),
            named=len(landing.data_tables) > 1,
        )
        for name, metadata in tables.items()
    )
    tried = last is not None and last.tried
    return ColumnCheck(ranges=ranges, tables=checked, waits=_uneven(prepared, folded, missing), tried=tried)


def stops(landing: Landing, check: ColumnCheck) -> bool:
    """Return True if the landing plans no window of these records, because some do not fit."""
    return landing.columns.on_incompatible == "stop" and check.misfits


def is_due(landing: Landing, check: ColumnCheck | None) -> bool:
    """Return True if columns must change before the window is planned."""
    return check is not None and check.changes and not (check.waits or check.tried or stops(landing, check))


def refused(check: ColumnCheck, plan: Plan) -> Plan:
    """Return the plan without its window, with the reason."""
    found = [one for one in check.tables if one.found.misfits]
    why = Refuse(
        state=RefusalState.INCOMPATIBLE,
        reason="; ".join(f"{one.table}: {some_of(one.found.misfits)}, by {one.inferred.origin}" for one in found),
        clears="a column of a matching type, columns.on_incompatible: dead_letter, or your decision to continue "
        f"after these records (`{RESET_OFFSETS}`)",
    )
    nothing = empty_plan(plan.landing, plan.lane, plan.spec_version, plan.requested_at, why)
    return replace(nothing, ends=plan.ends, left=plan.left + sum(len(s) for s in plan.slices))


def evolve(
    session: LandingSession, check: ColumnCheck, decision: Decision | None = None
) -> dict[str, tuple[Change, ...]]:
    """Change the tables; return the changes by table.

    :param decision: of the requesting operator
    :raises CommitUnknownError: the result of a request cannot be determined in time
    :raises CatalogError: the catalog is unavailable
    """
    return {one.table: _evolve(session, one, decision) for one in check.tables if one.found.changes}


def _evolve(session: LandingSession, one: TableCheck, decision: Decision | None) -> tuple[Change, ...]:
    landing, by = session.landing, one.inferred.origin
    request = EvolveRequest(
        table=one.table,
        landing=landing.name,
        lane=session.lane,
        branch=landing.branch,
        changes=lambda metadata: evolution_of(landing, one.table, metadata, one.inferred).changes,
        reason=f"{session.now():%Y-%m-%d %H:%M} UTC, landing {landing.name} ({session.lane}), by {by}",
        decision=decision,
    )
    try:
        made = evolve_table(session.tables, request)
    except CommitRefusedError as e:
        session.log(
            f"WARNING: {one.table} was not changed: {session.tables.called} refused it: {e}. The landing "
            f"continues with the existing columns; pending changes: {some_of(one.found.changes)}"
        )
        return ()
    except CommitUnknownError as e:
        raise CommitUnknownError(
            "LC6003",
            f"{e}. The request was to change columns: {some_of(one.found.changes)}. If the catalog never accepts "
            "this, set `evolve: none` and the landing continues with the existing columns",
        ) from None
    for change in made[:MOST_NAMED]:
        session.log(f"{one.table}: {change}, by {by}")
    if len(made) > MOST_NAMED:
        session.log(f"{one.table}: {len(made) - MOST_NAMED} more changes, by {by}")
    return made


def check_sql(landing: Landing, prepared: Prepared, check: ColumnCheck) -> None:
    """Check that the tables now have the columns of the SQL.

    :raises TableError: one has not
    """
    tables = {t.name: t.table for t in prepared.tables}
    for one in check.tables:
        if evolves_by_sql(landing, one.table) and (one.found.changes or one.found.left_out):
            from airflow_provider_lakecommit.spark import check_schema

            try:
                check_schema(landing, tables[one.table].schema(), one.table)
            except TableError as e:
                waits = check.waits and f"{check.waits}; until then, records land with the previous SQL"
                why = waits or some_of(one.found.left_out) or "the catalog refuses the change"
                raise TableError("LC6004", f"{one.table}: {e}; the table is not changed: {why}") from e


def _inferred(
    session: LandingSession, folded: FoldedLog, tables: Mapping[str, TableMetadata], ranges: Coverage
) -> dict[str, InferredTypes]:
    """Return the needed columns of each table, by its SQL or its records."""
    landing = session.landing
    out = {t: sql_types(landing, t, m.schema()) for t, m in tables.items() if evolves_by_sql(landing, t)}
    if schemas := {t: m.schema() for t, m in tables.items() if t not in out}:
        source = source_for(landing, session.kafka)
        sample = source.sample(ranges, _unknown_paths(session, folded, list(schemas.values())))
        for table, part in _by_table(session, sample, schemas).items():
            out[table] = source.inferred(schemas[table], part)
    nothing = InferredTypes(columns=StructType(), origin=RecordSample(ranges=ranges).description)
    return {table: out.get(table, nothing) for table in tables}


def _by_table(session: LandingSession, sample: RecordSample, tables: Collection[str]) -> dict[str, RecordSample]:
    """Return the records of each of these tables, if any; all records, if no other table takes some."""
    landing = session.landing
    if landing.routing is None:
        return {landing.table: sample}
    own, before = (_dealt(session, some) for some in (sample.own, sample.before))
    return {
        table: replace(sample, own=own.get(table, ()), before=before.get(table, ()))
        for table in tables
        if table in own or table in before
    }


def _dealt(session: LandingSession, some: Sequence[tuple[str, bytes | None]]) -> dict[str, list[tuple[str, bytes]]]:
    from airflow_provider_lakecommit.spark import tables_of_values

    there = [(index, value) for index, value in some if value is not None]
    found = tables_of_values(session.landing, [value for _, value in there], session.kafka) if there else {}
    return {table: [there[i] for i in indexes] for table, indexes in found.items() if indexes}


def evolution_of(landing: Landing, table: str, metadata: TableMetadata, inferred: InferredTypes) -> Evolution:
    """Compare a table with the needed columns."""
    # With the decoders, which a plan without a sample need not load.
    from airflow_provider_lakecommit.spark import filled_beside_rows, filled_elsewhere

    skip = filled_elsewhere(landing) if evolves_by_sql(landing, table) else filled_beside_rows(landing)
    found = evolution(
        metadata.schema(),
        inferred.columns,
        widen=landing.evolve == "widen",
        side=side_of(metadata),
        skip=skip,
        limits=inferred.limits,
    )
    return Evolution(
        changes=found.changes,
        misfits=(*(m for m in inferred.misfits if m.column.partition(".")[0] not in skip), *found.misfits),
        left_out=(*(one for one in inferred.left_out if one.column.partition(".")[0] not in skip), *found.left_out),
    )


def _unknown_paths(session: LandingSession, folded: FoldedLog, schemas: Sequence[Schema]) -> Coverage:
    """Return where tasks of the newest slices first met fields that a table still lacks, or values that need wider
    types. With several tables the lacking one is unknown: the field counts until all have it.
    """
    wide = _WIDENED if session.landing.evolve == "widen" else ()
    known = set.intersection(
        *({dotted(p) for p, one in paths_in(s.fields) if not isinstance(one.field_type, wide)} for s in schemas)
    )
    log = session.control.read(folded.partition, max(0, folded.read_from - MOST_REREAD))
    entries = read_entries(log.records, session.landing.name, session.lane)
    found: dict[str, tuple[SourcePartition, int]] = {}
    for report in (e.report for e in reversed(entries) if isinstance(e, SliceReported)):
        partitions = {(s.span.partition.topic, s.span.partition.partition): s.span.partition for s in report.spans}
        for name, (topic, number, offset) in report.unknown_at.items():
            if name not in known and (topic, number) in partitions and len(found) < MOST_PATHS:
                found.setdefault(name, (partitions[topic, number], offset))
    return Coverage.of((p, OffsetRange(offset, offset + 1)) for p, offset in found.values())


def _uneven(prepared: Prepared, folded: FoldedLog, missing: Missing) -> str:
    """Return which table lacks ranges that another one has, and would use other columns for them; empty if none."""
    if prepared.failures:
        return f"{', '.join(prepared.failures)} cannot be read, or needs your action"
    for tables, ranges in missing.ranges.items():
        if len(tables) < len(prepared.tables):
            return f"{', '.join(tables)} lacks {ranges}, which other tables of the landing have"
    for one in prepared.tables:
        others = Coverage.union(t.ledger.section.covered for t in prepared.tables if t.name != one.name)
        for accepted in folded.state.accepted[one.name]:
            share = accepted.report.table(one.name)
            if share is not None and share.rows and accepted.coverage.overlaps(others):
                return f"{one.name} lacks its rows of {accepted.coverage}, which other tables already have"
    return ""


def some_of(items: Sequence[object]) -> str:
    """Format the first items."""
    more = f"; and {len(items) - MOST_NAMED} more" if len(items) > MOST_NAMED else ""
    return "; ".join(map(str, items[:MOST_NAMED])) + more
