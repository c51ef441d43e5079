# SPDX-License-Identifier: Apache-2.0
"""The facts that a plan is decided from, and the decision. Pure: everything here was read before.

Contract: :func:`planned` plans the missing ranges, and :func:`decide` adds what the records' columns and the source
change about that plan. What is planned is decided by :mod:`~airflow_provider_lakecommit.core.planning.decide`.

Failure story: a plan that could put a record in two tables, or in none, is an error
(:mod:`~airflow_provider_lakecommit.cycle.plan.fates`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from uuid import UUID

from airflow_provider_lakecommit.core import (
    Directives,
    LandingState,
    Missing,
    Plan,
    PlanInputs,
    Raised,
    decide_plan,
    lopsided,
)
from airflow_provider_lakecommit.cycle.plan.column_look import ColumnLook, refused, stops
from airflow_provider_lakecommit.cycle.plan.fates import check_agreement, check_fates
from airflow_provider_lakecommit.cycle.plan.stated import lines_of
from airflow_provider_lakecommit.cycle.plan.tables import Prepared
from airflow_provider_lakecommit.cycle.session.landing_session import FoldedLog
from airflow_provider_lakecommit.kafka import SourceState
from airflow_provider_lakecommit.landing import Landing


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The tables of a landing, its control log and its source, read in this order, except that the source is at least
    as new as the tables.
    """

    prepared: Prepared
    log: FoldedLog
    source: SourceState


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything that a plan depends on.

    :param state: the landing's state after the START has released, voided and retried
    :param retried: the START's notes on blocks that are tried again
    :param voided: attempts that the START voids, with reasons
    :param given: the inputs of the decision
    :param notes: lines about the window's limits
    :param of_source: lines about topics of which nothing is landed
    :param columns: the columns that the records of the planned window need, of a landing that evolves
    """

    landing: Landing
    reading: Reading
    state: LandingState
    retried: tuple[Raised, ...]
    voided: Mapping[UUID, str]
    missing: Missing
    given: PlanInputs
    notes: tuple[str, ...]
    of_source: tuple[str, ...]
    columns: ColumnLook | None = None


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


def planned(facts: Facts) -> tuple[Plan, tuple[str, ...]]:
    """Return the plan of the missing ranges, and lines that explain it.

    :raises LedgerError: a record could end in two tables of the landing, or in none
    """
    prepared, marks = facts.reading.prepared, facts.given.source
    if not prepared.suspended:
        check_agreement(facts.landing, prepared, marks)
        check_fates(facts.landing, facts.given.lane, prepared, facts.state, facts.missing, marks)
    return decide_plan(facts.state, facts.missing, facts.given)


def decide(facts: Facts) -> PlanDecision:
    """Decide what the cycle plans.

    :raises LedgerError: a record could end in two tables of the landing, or in none
    """
    plan, explain = planned(facts)
    if facts.columns is not None and stops(facts.landing, facts.columns):
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
    warnings, of_tables = lines_of(facts.landing, facts.reading.prepared, facts.given.terms.logged)
    of_columns = () if facts.columns is None else facts.columns.lines
    return PlanDecision(
        plan=plan,
        directives=Directives(released=tuple(facts.given.released), voided=tuple(facts.voided), raised=facts.retried),
        explain=(*explain, *of_columns, *of_tables),
        lines=tuple(lines),
        warnings=warnings,
    )
