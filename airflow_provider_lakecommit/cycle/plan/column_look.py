# SPDX-License-Identifier: Apache-2.0
"""What the records of some ranges, or the SQL that makes rows of them, want of the tables of a landing.

Contract: :func:`column_look` reads and decides, and changes nothing. Each table is told by the records that are for it:
they are sampled once and dealt out as the tasks would, by the landing's `route`. A table for which the landing has SQL
is told by the columns that this gives. A table of which no record was seen wants nothing.

Invariants: what may not be changed yet is said in ``waits``: other columns are other rules, so that none are changed
while a table lacks what another one has.

Failure story: brokers, registry and SQL raise what they raise elsewhere, and the plan is made again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FloatType, IntegerType, StructType

from airflow_provider_lakecommit.control import read_entries
from airflow_provider_lakecommit.core import Coverage, Missing, OffsetRange, SliceReported, SourcePartition
from airflow_provider_lakecommit.cycle.plan.tables import Prepared
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.cycle.session.sql_columns import evolves_by_sql, wanted_by_sql
from airflow_provider_lakecommit.formats import Evolution, RecordSample, Wanted, dotted, paths_in, side_of, source_for
from airflow_provider_lakecommit.formats.evolution.changes import evolution
from airflow_provider_lakecommit.landing import Landing

__all__ = ["MOST_NAMED", "ColumnLook", "TableLook", "column_look", "evolution_of", "some_of"]

MOST_LOOKED_BACK = 500
"""Records of the control log before those that the plan needs in which reports tell of unknown fields."""
MOST_PLACES = 50
"""Of such fields, whose first records are looked at."""
_WIDENED = (IntegerType, FloatType, DecimalType)
"""Types of which there are wider ones."""
MOST_NAMED = 10
"""Columns that one line names, or one line each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLook:
    """What the records of some ranges want of a table, or the SQL that makes its rows of them. ``named``: is it one of
    several?
    """

    table: str
    wanted: Wanted
    found: Evolution
    named: bool = False

    @property
    def not_made(self) -> tuple[str, ...]:
        """What is not changed, and why."""
        return (*self.told(self.found.left_out), *self.told(self.found.misfits))

    def told(self, some: Sequence[object]) -> tuple[str, ...]:
        """For people, in one line."""
        table = f"{self.table}: " if self.named else ""
        return (f"{table}columns, by {self.wanted.told_by}: {some_of(some)}",) if some else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLook:
    """What some ranges want of the tables of rows. ``waits``: why nothing may be changed yet."""

    ranges: Coverage
    tables: tuple[TableLook, ...]
    waits: str = ""

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
        """For people."""
        return (*(line for one in self.tables for line in one.told(one.found.changes)), *self.not_made)

    @property
    def not_made(self) -> tuple[str, ...]:
        """What is not changed, and why."""
        waits = (f"columns do not change yet: {self.waits}",) if self.waits and self.changes else ()
        return (*(line for one in self.tables for line in one.not_made), *waits)


def column_look(
    session: LandingSession,
    prepared: Prepared,
    folded: FoldedLog,
    ranges: Coverage,
    missing: Missing,
    last: ColumnLook | None = None,
) -> ColumnLook:
    """What some ranges want.

    :param last: an earlier look; if it is of the same ranges, no record is asked again
    :raises SourceError: the records may not be read
    :raises SourceUnavailableError: the brokers, or a registry, do not answer
    :raises TableError: SQL cannot be run
    """
    landing = session.landing
    tables = {t.name: t.table.metadata for t in prepared.tables if t.name in landing.data_tables}
    known = {} if last is None or last.ranges != ranges else {one.table: one.wanted for one in last.tables}
    wanted = known if known.keys() == tables.keys() else _wanted(session, folded, tables, ranges)
    looks = tuple(
        TableLook(
            table=name,
            wanted=wanted[name],
            found=evolution_of(landing, name, metadata, wanted[name]),
            named=len(landing.data_tables) > 1,
        )
        for name, metadata in tables.items()
    )
    return ColumnLook(ranges=ranges, tables=looks, waits=_uneven(prepared, folded, missing))


def _wanted(
    session: LandingSession, folded: FoldedLog, tables: Mapping[str, TableMetadata], ranges: Coverage
) -> dict[str, Wanted]:
    """By table, each by its SQL or by its records."""
    landing = session.landing
    out = {t: wanted_by_sql(landing, t, m.schema()) for t, m in tables.items() if evolves_by_sql(landing, t)}
    if told := {t: m.schema() for t, m in tables.items() if t not in out}:
        source = source_for(landing, session.kafka)
        sample = source.sample(ranges, _unknown_places(session, folded, list(told.values())))
        for table, part in _by_table(session, sample, told).items():
            out[table] = source.wanted(told[table], part)
    nothing = Wanted(columns=StructType(), told_by=RecordSample(ranges=ranges).told)
    return {table: out.get(table, nothing) for table in tables}


def _by_table(session: LandingSession, sample: RecordSample, tables: Collection[str]) -> dict[str, RecordSample]:
    """Of each of these tables the records that are for it, if there are any; where no other takes a record, all."""
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

    there = [(place, value) for place, value in some if value is not None]
    found = tables_of_values(session.landing, [value for _, value in there], session.kafka) if there else {}
    return {table: [there[i] for i in places] for table, places in found.items() if places}


def evolution_of(landing: Landing, table: str, metadata: TableMetadata, wanted: Wanted) -> Evolution:
    """What is wanted of a table, held against it."""
    # With what decodes records, whose loading a plan that does not look at any is spared.
    from airflow_provider_lakecommit.spark import filled_beside_rows, filled_elsewhere

    skip = filled_elsewhere(landing) if evolves_by_sql(landing, table) else filled_beside_rows(landing)
    found = evolution(
        metadata.schema(),
        wanted.columns,
        widen=landing.evolve == "widen",
        side=side_of(metadata),
        skip=skip,
        limits=wanted.limits,
    )
    return Evolution(
        changes=found.changes,
        misfits=(*(m for m in wanted.misfits if m.column.partition(".")[0] not in skip), *found.misfits),
        left_out=(*(one for one in wanted.left_out if one.column.partition(".")[0] not in skip), *found.left_out),
    )


def _unknown_places(session: LandingSession, folded: FoldedLog, schemas: Sequence[Schema]) -> Coverage:
    """Where tasks of the newest slices first met fields that a table lacks still, or values for which types may be
    widened. Of several tables it is not told which one lacked the field: it is looked for until all have it.
    """
    wide = _WIDENED if session.landing.evolve == "widen" else ()
    known = set.intersection(
        *({dotted(p) for p, one in paths_in(s.fields) if not isinstance(one.field_type, wide)} for s in schemas)
    )
    log = session.control.read(folded.partition, max(0, folded.read_from - MOST_LOOKED_BACK))
    entries = read_entries(log.records, session.landing.name, session.lane)
    found: dict[str, tuple[SourcePartition, int]] = {}
    for report in (e.report for e in reversed(entries) if isinstance(e, SliceReported)):
        partitions = {(s.span.partition.topic, s.span.partition.partition): s.span.partition for s in report.spans}
        for name, (topic, number, offset) in report.unknown_at.items():
            if name not in known and (topic, number) in partitions and len(found) < MOST_PLACES:
                found.setdefault(name, (partitions[topic, number], offset))
    return Coverage.of((p, OffsetRange(offset, offset + 1)) for p, offset in found.values())


def _uneven(prepared: Prepared, folded: FoldedLog, missing: Missing) -> str:
    """Which table lacks what another one has, so that it would be judged by other columns; empty: none does."""
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


def some_of(told: Sequence[object]) -> str:
    """The first of them, for people."""
    more = f"; and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    return "; ".join(map(str, told[:MOST_NAMED])) + more
