# SPDX-License-Identifier: Apache-2.0
"""Find missing ranges that must not be read for the tables that lack them: a record goes to exactly one table.

A range that only some tables lack is read for these alone. That is safe only under the rules by which the other tables
have it (:mod:`~airflow_provider_lakecommit.core.rules`), else a record could end up in two tables or in none. Slices
that are only reported are voided instead (:func:`outruled`), if the source still has them: all tables read them again.
Unknown rules count as different, unless there never were others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Missing, Watermark
from airflow_provider_lakecommit.core.planning.voiding import removed
from airflow_provider_lakecommit.core.rules import UNKNOWN, evaluated_otherwise, merged, unevaluated
from airflow_provider_lakecommit.core.state import LandingState


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRange:
    """Ranges that ``tables`` lack, and that ``holder`` has by other or unknown rules."""

    tables: tuple[str, ...]
    holder: str
    ranges: Coverage


def other_rules(
    landing_state: LandingState, missing: Missing, rules: str, alike: Mapping[str, Coverage] = MappingProxyType({})
) -> tuple[RefusedRange, ...]:
    """Return the ranges that cannot be read for the tables that lack them.

    :param rules: the current rules
    :param alike: by table, ranges of unknown rules that can only have been judged by the current ones
    """
    out: list[RefusedRange] = []
    for tables, lacking in missing.ranges.items():
        for holder, ledger in landing_state.ledgers.items():
            if holder in tables:
                continue
            pending = ((a.report.rules, a.coverage) for a in landing_state.accepted[holder])
            same = merged(ledger.evaluated, pending, most=None)
            landed = lacking & ledger.all_covered
            present = landed | (lacking & landing_state.accepted_coverage(holder))
            ranges = evaluated_otherwise(same, present, rules) | (
                unevaluated(same, present) - alike.get(holder, Coverage())
            )
            if ranges:
                out.append(RefusedRange(tables=tables, holder=holder, ranges=ranges))
    return tuple(out)


def outruled(
    landing_state: LandingState, rules: str, watermarks: Mapping[SourcePartition, Watermark]
) -> dict[UUID, str]:
    """Return the attempts that a plan voids, with the reasons: judged by other rules, and some table lacks their
    ranges.

    Attempts that a table has landed, or that the source no longer has, are kept.
    """
    accepted = (a for some in landing_state.accepted.values() for a in some)
    others = {a.report.attempt: a for a in accepted if a.report.rules not in (rules, UNKNOWN)}
    if not others:
        return {}
    ledgers = landing_state.ledgers
    landed = Coverage.union(ledger.all_covered for ledger in ledgers.values())
    has = {table: ledger.all_covered | landing_state.accepted_coverage(table) for table, ledger in ledgers.items()}
    out: dict[UUID, str] = {}
    for attempt, a in others.items():
        lacking = [table for table, there in has.items() if a.coverage - there]
        if lacking and not (a.coverage & landed) and not removed(a.coverage, watermarks):
            why = f"{' and '.join(lacking)} lacks it and would apply other rules: it is read again for all tables"
            out[attempt] = f"{a.coverage}: {why}"
    return out
