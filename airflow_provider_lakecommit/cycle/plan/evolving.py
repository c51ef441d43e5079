# SPDX-License-Identifier: Apache-2.0
"""Change the columns of a landing's tables: before a window is planned, or on an operator's request.

Contract: once per window, before anything of it is written: by the planner, never by a task. A table's changes come
from its records (:mod:`~airflow_provider_lakecommit.formats.evolution.inferred`), or from the types of its SQL. One
commit per table; the planner then reads everything again, so that the plan has the tables' schemas. :func:`evolve_now`
reads the records that no table has yet, or, if there are none, all that the source has, whatever the landing's
``evolve`` is; the table's history keeps the user. It plans and lands nothing.

Invariants: a record goes to exactly one table (:mod:`~airflow_provider_lakecommit.cycle.plan.dispositions`): while a
table of the landing lacks ranges or rows that another one has, or is unreadable, columns stay as they are, as other
columns are other rules. A user's change is respected: dropped and renamed columns stay so.

Failure story: if a catalog refuses a schema change, this is reported and the landing continues with the existing
columns; an unavailable catalog is an error of the plan.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_lakecommit.core import Coverage, Decision, OffsetRange
from airflow_provider_lakecommit.cycle.plan.column_check import (
    MOST_NAMED,
    ColumnCheck,
    TableCheck,
    column_check,
    evolution_of,
    some_of,
)
from airflow_provider_lakecommit.cycle.plan.reports import missing_ranges
from airflow_provider_lakecommit.cycle.plan.tables import read
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession
from airflow_provider_lakecommit.exceptions import CommitRefusedError, CommitUnknownError
from airflow_provider_lakecommit.formats import Change, EvolveRequest, evolve_table


def evolve_now(
    session: LandingSession, decision: Decision | None
) -> tuple[tuple[str, ...], dict[str, tuple[Change, ...]]]:
    """Return the findings as lines, and the changes by table.

    :param session: of a landing whose ``evolve`` limits the changes
    :param decision: the operator's decision; ``None``: write nothing
    :raises LakecommitError: an error that would keep a window from being planned
    """
    source = session.source.watermarks()
    session.control.ensure()
    reading = read(session, source, dry=decision is None)
    state = reading.log.state
    missing = missing_ranges(session, state, reading.source, state.claims(session.now(), ()))
    marks = reading.source.partitions.items()
    everything = Coverage.of((p, OffsetRange(w.start, w.stable)) for p, w in marks if w.start < w.stable)
    check = column_check(session, reading.prepared, reading.log, missing.coverage or everything, missing)
    if decision is None or check.waits or not check.changes:
        return check.lines, {}
    changes = [f"{one.table}: {c}" if one.named else str(c) for one in check.tables for c in one.found.changes]
    decided = replace(decision, what="; ".join(changes))
    return check.not_made, evolve(session, check, decided)


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
