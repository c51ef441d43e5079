# SPDX-License-Identifier: Apache-2.0
"""The planning step that compares the tables of rows with the window's records, and changes their columns.

Contract: once per window, before anything of it is written: by the planner, never by a task. A table's changes come
from its records (:mod:`~airflow_provider_lakecommit.formats.evolution.inferred`), or from the types of its SQL.
:class:`ColumnStep` reads, and makes one commit per table if due; the planner then reads everything again, so that the
plan has the tables' schemas. It skips a landing with ``evolve="none"``.

Invariants: a record goes to exactly one table (:mod:`~airflow_provider_lakecommit.cycle.plan.fates`): while a table of
the landing lacks ranges or rows that another one has, or is unreadable, columns stay as they are, because other columns
are other rules. A user's change is respected: dropped and renamed columns stay so.

Failure story: records that do not fit are named, and either are dead letters within the budget, or no window is planned
(``on_incompatible``). If a catalog refuses a schema change, this is reported and the landing continues with the
existing columns; an unavailable catalog is an error of the plan. SQL with a column that its table cannot get is a
:class:`~airflow_provider_lakecommit.exceptions.TableError` of the plan: no row could be written.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_provider_lakecommit.core import RESET_OFFSETS, Decision, Missing, Plan, RefusalState, Refuse, empty_plan
from airflow_provider_lakecommit.cycle.plan.column_look import (
    MOST_NAMED,
    ColumnLook,
    TableLook,
    column_look,
    evolution_of,
    some_of,
)
from airflow_provider_lakecommit.cycle.plan.tables import Prepared
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog, LandingSession
from airflow_provider_lakecommit.cycle.session.sql_columns import evolves_by_sql
from airflow_provider_lakecommit.exceptions import CommitRefusedError, CommitUnknownError, TableError
from airflow_provider_lakecommit.formats import Change, EvolveRequest, evolve_table
from airflow_provider_lakecommit.landing import Landing


@dataclass(slots=True)
class ColumnStep:
    """The reads and the one change of a cycle that is being opened."""

    session: LandingSession
    last: ColumnLook | None = None
    _due: bool = False
    _done: bool = False

    def change(self) -> None:
        """Make the changes that the last read requires, if any.

        :raises CommitUnknownError: the result of a request cannot be determined in time
        :raises CatalogError: the catalog is unavailable
        """
        if self._due and self.last is not None:
            self._done = True
            self._due = False
            evolve(self.session, self.last)

    def judged(
        self, prepared: Prepared, folded: FoldedLog, plan: Plan, missing: Missing
    ) -> tuple[Plan, tuple[str, ...]]:
        """Return the plan to send, and lines to show; if the landing stops at records that do not fit, the plan is
        empty when there are some.

        :raises SourceError: the records cannot be read
        :raises SourceUnavailableError: the brokers do not answer
        :raises TableError: SQL gives a column that the table lacks and cannot get
        """
        landing, before = self.session.landing, self.last
        if landing.evolve == "none" or not plan.slices:
            return plan, ()
        look = self.last = column_look(self.session, prepared, folded, plan.coverage, missing, before)
        if before is None or before.ranges != look.ranges:
            for line in look.not_made:
                self.session.log(line if landing.routing else f"{landing.table}: {line}")
        if landing.columns.on_incompatible == "stop" and look.misfits:
            return _refused(look, plan), look.lines
        self._due = look.changes and not look.waits and not self._done
        if not self._due:
            _check_sql(landing, prepared, look)
        return plan, look.lines

    @property
    def due(self) -> bool:
        """Return True if something must change first. Then the plan reads everything again."""
        return self._due


def evolve(
    session: LandingSession, look: ColumnLook, decision: Decision | None = None
) -> dict[str, tuple[Change, ...]]:
    """Change the tables; return the changes by table.

    :param decision: of the requesting operator
    :raises CommitUnknownError: the result of a request cannot be determined in time
    :raises CatalogError: the catalog is unavailable
    """
    return {one.table: _evolve(session, one, decision) for one in look.tables if one.found.changes}


def _evolve(session: LandingSession, one: TableLook, decision: Decision | None) -> tuple[Change, ...]:
    landing, by = session.landing, one.wanted.origin
    request = EvolveRequest(
        table=one.table,
        landing=landing.name,
        lane=session.lane,
        branch=landing.branch,
        changes=lambda metadata: evolution_of(landing, one.table, metadata, one.wanted).changes,
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


def _refused(look: ColumnLook, plan: Plan) -> Plan:
    """Return the plan without its window, with the reason."""
    found = [one for one in look.tables if one.found.misfits]
    why = Refuse(
        state=RefusalState.INCOMPATIBLE,
        reason="; ".join(f"{one.table}: {some_of(one.found.misfits)}, by {one.wanted.origin}" for one in found),
        clears="a column of a matching type, columns.on_incompatible: dead_letter, or your decision to continue "
        f"after these records (`{RESET_OFFSETS}`)",
    )
    nothing = empty_plan(plan.landing, plan.lane, plan.spec_version, plan.requested_at, why)
    return replace(nothing, ends=plan.ends, left=plan.left + sum(len(s) for s in plan.slices))


def _check_sql(landing: Landing, prepared: Prepared, look: ColumnLook) -> None:
    """Check that the tables now have the columns of the SQL.

    :raises TableError: one has not
    """
    tables = {t.name: t.table for t in prepared.tables}
    for one in look.tables:
        if evolves_by_sql(landing, one.table) and (one.found.changes or one.found.left_out):
            from airflow_provider_lakecommit.spark import check_schema

            try:
                check_schema(landing, tables[one.table].schema(), one.table)
            except TableError as e:
                waits = look.waits and f"{look.waits}; until then, records land with the previous SQL"
                why = waits or some_of(one.found.left_out) or "the catalog refuses the change"
                raise TableError("LC6004", f"{one.table}: {e}; the table is not changed: {why}") from e
