# SPDX-License-Identifier: Apache-2.0
"""The facts that a plan is decided from, and the decision. Pure: everything here was read before.

Contract: :func:`planned` plans the missing ranges, by :mod:`~airflow_provider_lakecommit.core.planning.decide`, and
:func:`decide` adds what the records' columns and the source change about that plan.

A plan warns of skipped tables, a crowded ledger, and a data table that differs from its landing's `create`: that makes
a missing table and changes none, so a wrong first spec leaves a table that differs from the corrected one. While it has
no row, recreating it loses nothing. Records that it rejected may be dead letters by then: read again for one table
alone, they would be in both, so the dead-letter table must be recreated too.

Failure story: a plan that could put a record in two tables, or in none, is an error
(:mod:`~airflow_provider_lakecommit.cycle.plan.dispositions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from airflow_provider_lakecommit.core import (
    RESET_OFFSETS,
    Directives,
    LandingState,
    Missing,
    Plan,
    PlanInputs,
    Raised,
    decide_plan,
    lopsided,
)
from airflow_provider_lakecommit.cycle.plan.column_check import ColumnCheck, refused, stops
from airflow_provider_lakecommit.cycle.plan.dispositions import check_agreement, check_dispositions
from airflow_provider_lakecommit.cycle.plan.ready_tables import Prepared, PreparedTable, Reading
from airflow_provider_lakecommit.cycle.session.tables import differences
from airflow_provider_lakecommit.iceberg import DELETED, LOOKED_UP, SUPERSEDED, key_text, landing_snapshots
from airflow_provider_lakecommit.landing import Landing


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a plan depends on.

    :param retried: the START's notes on blocks that are tried again
    :param voided: attempts that the START voids, with reasons
    :param given: the inputs of the decision
    :param plan: the plan of the missing ranges, and ``explain`` its reasons
    :param notes: lines about the window's limits
    :param of_source: lines about topics of which nothing is landed
    :param columns: the columns that the records of the planned window and of blocked ranges need, of a landing that
        evolves
    """

    landing: Landing
    reading: Reading
    retried: tuple[Raised, ...]
    voided: Mapping[UUID, str]
    given: PlanInputs
    plan: Plan
    explain: tuple[str, ...]
    notes: tuple[str, ...]
    of_source: tuple[str, ...]
    columns: ColumnCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDecision:
    """A plan, and what its START changes besides.

    :param explain: the plan's explanation, for display
    :param lines: what to log about the plan
    :param warnings: what to log about the tables once the cycle is open
    """

    plan: Plan
    directives: Directives
    explain: tuple[str, ...]
    lines: tuple[str, ...]
    warnings: tuple[str, ...]


def planned(
    landing: Landing, prepared: Prepared, state: LandingState, missing: Missing, given: PlanInputs
) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of the missing ranges, and lines that explain it.

    :param state: the landing's state after the START has released, voided and retried
    :raises LedgerError: a record could end in two tables of the landing, or in none
    """
    if not prepared.suspended:
        check_agreement(landing, prepared, given.source)
        check_dispositions(landing, given.lane, prepared, state, missing, given.source)
    return decide_plan(state, missing, given)


def decide(facts: Facts) -> PlanDecision:
    """Decide what the cycle plans."""
    plan, explain = facts.plan, facts.explain
    if plan.slices and facts.columns is not None and stops(facts.landing, facts.columns):
        plan = refused(facts.columns, plan)
    lines = []
    if plan.refused:
        lines.append(f"{'WARNING: not all is planned' if plan.slices else 'no window is planned'}: {plan.reason}")
    if plan.slices:
        lines.extend(f"WARNING: {note}" for note in facts.of_source)
        limits = facts.given.limits
        uneven = () if limits.by_load else lopsided(plan.slices, limits)
        explain = (*facts.of_source, *facts.notes, *explain, *uneven)
    elif not plan.refused and facts.of_source:
        plan = replace(plan, reason="; ".join([str(plan.reason), *facts.of_source]))
    warnings, of_tables = _lines_of(facts.landing, facts.reading.prepared, facts.given.terms.logged)
    of_columns = () if facts.columns is None else facts.columns.lines
    return PlanDecision(
        plan=plan,
        directives=Directives(released=tuple(facts.given.released), voided=tuple(facts.voided), raised=facts.retried),
        explain=(*explain, *of_columns, *of_tables),
        lines=tuple(lines),
        warnings=warnings,
    )


def _lines_of(landing: Landing, prepared: Prepared, known: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the warnings of a plan, which are also logged, and everything that its explanation says of the tables.

    :param known: tables whose problems are already logged
    """
    left_out = {
        name: f"{name} is left out of this plan, and lacks the records that land now" for name in prepared.failures
    }
    apart = (f"{line}: {prepared.failures[name]}" for name, line in left_out.items() if name not in known)
    crowded = (f"{t.name}: {t.state.crowding}" for t in prepared.tables if t.state.crowding)
    warnings = (*apart, *crowded, *_not_as_stated(landing, prepared))
    logged = (line for name, line in left_out.items() if name in known)
    return warnings, (*logged, *warnings, *_upsert_lines(landing, prepared))


def _upsert_lines(landing: Landing, prepared: Prepared) -> Iterator[str]:
    """Yield what an upserting landing looks up in its table, by its last publication."""
    if not landing.upsert.key:
        return
    for t in prepared.tables:
        records = landing_snapshots(t.table.metadata, landing.branch, landing=landing.name)
        last = next((r.extra for r in records if LOOKED_UP in r.extra), None)
        if t.name == landing.table and last is not None:
            rows, _, files = last[LOOKED_UP].partition(" ")
            yield (
                f"{t.name} has {key_text(landing.upsert.key)}: the last publication looked for its keys in {rows} rows "
                f"of {files} files; {last.get(SUPERSEDED)} rows were superseded and {last.get(DELETED)} deleted"
            )


def _not_as_stated(landing: Landing, prepared: Prepared) -> Iterator[str]:
    """Yield the warnings about it, if any."""
    by_name = {t.name: t for t in prepared.tables}
    for name in landing.data_tables:
        if (data := by_name.get(name)) is not None:
            yield from _of_table(landing, data, by_name)


def _of_table(landing: Landing, data: PreparedTable, by_name: Mapping[str, PreparedTable]) -> Iterator[str]:
    if not (other := differences(landing, data.name, data.table)):
        return
    yield f"{data.name} is not as `create` says; `create` applies only to a missing table: {'; '.join(other)}"
    if _rows(landing, data) != {"0"}:
        return
    dead = by_name.get(landing.dead_letter_table or "")
    if dead is None or _rows(landing, dead) <= {"0"}:
        yield f"{data.name} has no rows yet: drop it, and the next run creates it as `create` states"
    else:
        yield f"{data.name} has no rows yet: {_both(landing, data, dead)}"


def _both(landing: Landing, data: PreparedTable, dead: PreparedTable) -> str:
    others = sorted({s.landing for s in dead.state.sections} - {landing.name})
    if others:
        return (
            f"drop it, and the next run reports the snapshot to roll {dead.name} back to: that table has its rejected "
            f"records and those of {', '.join(others)}"
        )
    return (
        f"drop it and {dead.name}, which has its rejected records; then `{RESET_OFFSETS} SPEC --from earliest` creates "
        "both, and the next run reads everything again as `create` states"
    )


def _rows(landing: Landing, one: PreparedTable) -> set[str]:
    """Return the known row counts of `main`, and of the branch that windows land on."""
    heads = (one.table.current_snapshot(), one.table.metadata.snapshot_by_name(landing.branch))
    counts = (h.summary.additional_properties.get("total-records") for h in heads if h and h.summary)
    return {count for count in counts if count is not None}
