# SPDX-License-Identifier: Apache-2.0
"""The step of a plan that looks whether the data table takes what the window's records have, and has it changed.

Contract: once per window, before anything of it is said or written: by the planner, never by a task, and only of the
data table. :class:`ColumnStep` looks, and makes one commit where that is due; the planner then looks at everything
anew, so that the plan carries the schema that the table has. A landing with ``evolve="none"`` is not looked at.

Invariants: a record has one fate (:mod:`~airflow_provider_lakecommit.prepare.fates`): while a table of the landing
lacks ranges that another one has, or rows of them, columns stay as they are, because other columns are other rules.
A person's change is not fought: what was dropped or renamed stays so.

Failure story: what does not fit is named, and either is for the dead letters, by their budget, or no window is planned
(``on_incompatible``). A catalog that refuses to change the schema is named, and the landing goes on with the columns
that there are; one that is away is that to the plan too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import DecimalType, FloatType, IntegerType

from airflow_provider_lakecommit.core.decisions import Decision
from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import Plan
from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange, SourcePartition
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.evolve.changes import Change, Evolution, evolution
from airflow_provider_lakecommit.evolve.commit import EvolveRequest, evolve_table
from airflow_provider_lakecommit.evolve.paths import dotted, paths_in
from airflow_provider_lakecommit.evolve.schema import side_of
from airflow_provider_lakecommit.evolve.wanted import Wanted, source_for
from airflow_provider_lakecommit.exceptions import CommitRefusedError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.planning.admission import Refuse
from airflow_provider_lakecommit.planning.decide import empty_plan
from airflow_provider_lakecommit.planning.missing import Missing
from airflow_provider_lakecommit.prepare.tables import Prepared
from airflow_provider_lakecommit.reset_commands import RESET_OFFSETS
from airflow_provider_lakecommit.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.wire.quarantine import read_entries

__all__ = ["ColumnLook", "ColumnStep", "evolve"]

MOST_LOOKED_BACK = 500
"""Records of the control log before those that the plan needs in which reports tell of unknown fields."""
MOST_PLACES = 50
"""Of such fields, whose first records are looked at."""
_WIDENED = (IntegerType, FloatType, DecimalType)
"""Types of which there are wider ones."""
MOST_NAMED = 10
"""Columns that one line names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnLook:
    """What the records of some ranges want of the data table. ``waits``: why nothing may be changed yet."""

    ranges: Coverage
    wanted: Wanted
    found: Evolution
    waits: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        return (*self._told(self.found.changes), *self.not_made)

    @property
    def not_made(self) -> tuple[str, ...]:
        """What is not changed, and why."""
        waits = (f"columns stay as they are for now: {self.waits}",) if self.waits and self.found.changes else ()
        return (*self._told(self.found.left_out), *self._told(self.found.misfits), *waits)

    def _told(self, some: Sequence[object]) -> tuple[str, ...]:
        return (f"columns, by {self.wanted.told_by}: {_some(some)}",) if some else ()


@dataclass(slots=True)
class ColumnStep:
    """The looks and the one change of a cycle that is being opened."""

    session: LandingSession
    last: ColumnLook | None = None
    _due: bool = False
    _done: bool = False

    def change(self) -> None:
        """Make the change that the last look called for, if it did.

        :raises CommitUnknownError: what became of the request cannot be learned in time
        :raises CatalogError: the catalog is away
        """
        if self._due and self.last is not None:
            self._done = True
            self._due = False
            evolve(self.session, self.last)

    def judged(
        self, prepared: Prepared, folded: FoldedLog, plan: Plan, missing: Missing
    ) -> tuple[Plan, tuple[str, ...]]:
        """The plan as it may be sent, and lines for people: of a landing that is to stop before records that do not
        fit, it is empty where there are some.

        :raises SourceError: the records may not be read
        :raises SourceUnavailableError: the brokers do not answer
        """
        landing, before = self.session.landing, self.last
        if landing.evolve == "none" or not plan.slices:
            return plan, ()
        look = self.look(prepared, folded, plan.coverage, missing)
        for line in () if before is not None and before.wanted is look.wanted else look.not_made:
            self.session.log(f"{landing.table}: {line}")
        if landing.on_incompatible == "stop" and look.found.misfits:
            return _refused(landing, look, plan), look.lines
        self._due = bool(look.found.changes) and not look.waits and not self._done
        return plan, look.lines

    def look(self, prepared: Prepared, folded: FoldedLog, ranges: Coverage, missing: Missing) -> ColumnLook:
        """What the records of some ranges want. They are asked for once, unless other ranges are looked at.

        :raises SourceError: the records may not be read
        :raises SourceUnavailableError: the brokers do not answer
        """
        landing, metadata = self.session.landing, prepared.tables[0].table.metadata
        again = self.last is not None and self.last.ranges == ranges
        wanted = self.last.wanted if self.last and again else self._wanted(folded, metadata, ranges)
        found, waits = _held_against(landing, metadata, wanted), _uneven(prepared, folded, missing)
        self.last = ColumnLook(ranges=ranges, wanted=wanted, found=found, waits=waits)
        return self.last

    @property
    def due(self) -> bool:
        """Is there something to change first? Then the plan looks at everything anew."""
        return self._due

    def _wanted(self, folded: FoldedLog, metadata: TableMetadata, ranges: Coverage) -> Wanted:
        landing = self.session.landing
        seen = _unknown_places(self.session, folded, metadata)
        return source_for(landing, self.session.kafka).wanted(metadata.schema(), ranges, seen)


def evolve(session: LandingSession, look: ColumnLook, decision: Decision | None = None) -> tuple[Change, ...]:
    """Change the data table by a look; returns what was changed.

    :param decision: of the person who asks for it
    :raises CommitUnknownError: what became of the request cannot be learned in time
    :raises CatalogError: the catalog is away
    """
    landing, by = session.landing, look.wanted.told_by
    request = EvolveRequest(
        table=landing.table,
        landing=landing.name,
        lane=session.lane,
        branch=landing.branch,
        changes=partial(_changes, landing, look.wanted),
        reason=f"{session.now():%Y-%m-%d %H:%M} UTC, landing {landing.name} ({session.lane}), by {by}",
        decision=decision,
    )
    try:
        made = evolve_table(session.tables, request)
    except CommitRefusedError as e:
        session.log(
            f"WARNING: {landing.table} stays as it is, {session.tables.called} does not let it be changed: {e}. The "
            f"landing goes on with the columns that there are; what is due: {_some(look.found.changes)}"
        )
        return ()
    for change in made:
        session.log(f"{landing.table}: {change}, by {by}")
    return made


def _refused(landing: Landing, look: ColumnLook, plan: Plan) -> Plan:
    """The plan without its window, and why."""
    why = Refuse(
        state=RefusalState.INCOMPATIBLE,
        reason=f"{landing.table}: {_some(look.found.misfits)}, by {look.wanted.told_by}",
        clears='a column that takes them, on_incompatible="dead_letter", or a person who has the landing go '
        f"on behind these records (`{RESET_OFFSETS}`)",
    )
    nothing = empty_plan(plan.landing, plan.lane, plan.spec_version, plan.asked_at, why)
    return replace(nothing, ends=plan.ends, left=plan.left + sum(len(s) for s in plan.slices))


def _changes(landing: Landing, wanted: Wanted, metadata: TableMetadata) -> tuple[Change, ...]:
    return _held_against(landing, metadata, wanted).changes


def _held_against(landing: Landing, metadata: TableMetadata, wanted: Wanted) -> Evolution:
    # With what decodes records, whose loading a plan that does not look at any is spared.
    from airflow_provider_lakecommit.spark.decoders import filled_beside_rows

    skip = filled_beside_rows(landing)
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


def _unknown_places(session: LandingSession, folded: FoldedLog, metadata: TableMetadata) -> Coverage:
    """Where tasks of the newest slices first met fields that the table lacks still, or values for which types may be
    widened.
    """
    wide = _WIDENED if session.landing.evolve == "widen" else ()
    known = {dotted(path) for path, one in paths_in(metadata.schema().fields) if not isinstance(one.field_type, wide)}
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
    for tables, ranges in missing.ranges.items():
        if len(tables) < len(prepared.tables):
            return f"{', '.join(tables)} lacks {ranges}, which other tables of the landing have"
    for one in prepared.tables:
        others = Coverage.union(t.ledger.section.covered for t in prepared.tables if t.name != one.name)
        for accepted in folded.state.accepted[one.name]:
            share = accepted.report.table(one.name)
            if share is not None and share.rows and accepted.coverage.overlaps(others):
                return f"{one.name} has not taken its rows of {accepted.coverage} yet, which are landed elsewhere"
    return ""


def _some(told: Sequence[object]) -> str:
    more = f"; and {len(told) - MOST_NAMED} more" if len(told) > MOST_NAMED else ""
    return "; ".join(map(str, told[:MOST_NAMED])) + more
