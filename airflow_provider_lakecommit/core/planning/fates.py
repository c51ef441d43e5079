# SPDX-License-Identifier: Apache-2.0
"""One fate for each record: which missing ranges must not be read for the tables that lack them.

Contract: pure. A range that only some tables of a landing lack is read for these alone. That gives the tables the same
records only if it is judged by the rules by which the others have it (:mod:`~airflow_provider_lakecommit.core.rules`):
by other ones, a record that is a row of one table could be a reject in the other, or be in neither. What is only
reported for these is given up instead (:func:`outruled`), where the source has it still: all tables read it again then.

Failure story: where nobody knows by which rules a table has a range, it is taken for other ones, unless there never
were others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Missing, Watermark
from airflow_provider_lakecommit.core.planning.voiding import gone
from airflow_provider_lakecommit.core.rules import UNKNOWN, merged, otherwise, unjudged
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRange:
    """Ranges that some ``tables`` lack, and that the table ``holder`` has by other rules than those of now, or by
    rules that nobody knows.
    """

    tables: tuple[str, ...]
    holder: str
    ranges: Coverage


def other_rules(
    landing_state: LandingState, missing: Missing, rules: str, alike: Mapping[str, Coverage] = MappingProxyType({})
) -> tuple[RefusedRange, ...]:
    """What cannot be read for the tables that lack it: a record of it could end in two tables of the landing, or in
    none.

    :param rules: by which records are judged now
    :param alike: by table, ranges of no known rules that can only have been judged by these
    """
    out: list[RefusedRange] = []
    for tables, lacking in missing.ranges.items():
        for holder, ledger in landing_state.ledgers.items():
            if holder in tables:
                continue
            pending = ((a.report.rules, a.coverage) for a in landing_state.accepted[holder])
            same = merged(ledger.judged, pending, most=None)
            landed = lacking & ledger.all_covered
            held = landed | (lacking & landing_state.accepted_coverage(holder))
            ranges = otherwise(same, held, rules) | (unjudged(same, held) - alike.get(holder, Coverage()))
            if ranges:
                out.append(RefusedRange(tables=tables, holder=holder, ranges=ranges))
    return tuple(out)


def outruled(landing_state: LandingState, rules: str, marks: Mapping[SourcePartition, Watermark]) -> dict[UUID, str]:
    """Attempts that a plan gives up because they were judged by other rules than those of now, and a table lacks their
    ranges: each with the reason. What a table has landed of, or the source has no more, is kept.

    :param rules: by which records are judged now
    """
    others = {a.report.attempt: a for some in landing_state.accepted.values() for a in some if _otherwise(a, rules)}
    if not others:
        return {}
    ledgers = landing_state.ledgers
    landed = Coverage.union(ledger.all_covered for ledger in ledgers.values())
    has = {table: ledger.all_covered | landing_state.accepted_coverage(table) for table, ledger in ledgers.items()}
    out: dict[UUID, str] = {}
    for attempt, a in others.items():
        lacking = [table for table, there in has.items() if a.coverage - there]
        if lacking and not (a.coverage & landed) and not gone(a.coverage, marks):
            why = f"{' and '.join(lacking)} lacks it and would apply other rules: it is read again for all tables"
            out[attempt] = f"{a.coverage}: {why}"
    return out


def _otherwise(a: AcceptedSlice, rules: str) -> bool:
    return a.report.rules not in (rules, UNKNOWN)
