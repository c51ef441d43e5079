# SPDX-License-Identifier: Apache-2.0
"""Decide which reported slices a plan voids, so that their ranges are read again, and which missing ranges it refuses.

An unpublished slice may be voided only if its ranges can be read again; otherwise it is published first, or the void is
refused with its losses. A source partition without watermarks (recreated, no longer read, another cluster) can provide
nothing. Keeping a slice too long costs a wait, voiding it wrongly loses rows. Offsets beyond the end of a log are
replaceable: where a log became shorter, other records come there, and a kept slice would block them.

A record goes to exactly one table, so a range that only some tables lack is read for these alone only under the rules
by which the other tables have it (:mod:`~airflow_provider_lakecommit.core.rules`); :func:`other_rules` returns the
ranges for which that fails. Slices that are only reported are voided instead (:func:`outruled`), if the source still
has them: all tables read them again. Unknown rules count as different, unless there never were others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from uuid import UUID

from airflow_provider_lakecommit.core.blocks import blocked_slices
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Missing, Watermark
from airflow_provider_lakecommit.core.rules import UNKNOWN, evaluated_otherwise, merged, unevaluated
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState

Watermarks = Mapping[SourcePartition, Watermark]


def removed(coverage: Coverage, watermarks: Watermarks) -> Coverage:
    """Return the part of these ranges that the source does not have."""
    return Coverage({p: _removed(s, watermarks.get(p)) for p, s in coverage.parts.items()})


def irreplaceable(
    accepted: Iterable[AcceptedSlice], watermarks: Watermarks, table: str | None = None
) -> tuple[AcceptedSlice, ...]:
    """Return the slices that the source cannot provide completely.

    :param table: only slices with something for this table, as no row of others can be lost
    """
    return tuple(a for a in accepted if (table is None or a.matters(table)) and removed(a.coverage, watermarks))


def voidable_slices(landing_state: LandingState, watermarks: Watermarks) -> dict[UUID, str]:
    """Return the attempts that a plan voids so that other partitions go on, with the reasons."""

    def kept(a: AcceptedSlice) -> bool:
        return bool(removed(a.coverage, watermarks))

    found = ((a, p) for a, p in blocked_slices(landing_state, kept) if not kept(a))
    return {a.report.attempt: f"{a.coverage} waits for a blocked or failing range of {p}" for a, p in found}


def losses(accepted: Iterable[AcceptedSlice], watermarks: Watermarks) -> tuple[str, ...]:
    """Return what voiding these slices would lose: per partition the reported ranges that cannot be read again, and at
    most how many records they have.
    """
    ranges: dict[SourcePartition, RangeSet] = {}
    records: dict[SourcePartition, int] = {}
    for slice_ in accepted:
        for report in slice_.report.spans:
            p = report.span.partition
            lost = _removed(RangeSet.of(report.span.range), watermarks.get(p))
            if lost:
                ranges[p] = ranges.get(p, RangeSet()) | lost
                records[p] = records.get(p, 0) + min(len(lost), report.counts.good + report.counts.rejected)
    return tuple(f"{p} {s} ({records[p]} records)" for p, s in sorted(ranges.items()))


def losses_text(found: Iterable[str]) -> str:
    return ", ".join(found) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """What a voiding decision leaves of a table's pending slices.

    ``published`` before it, over the ``bridged`` holes that it gives up anyway; ``lost`` cannot be read again.
    """

    published: Coverage = field(default_factory=Coverage)
    bridged: Coverage = field(default_factory=Coverage)
    lost: tuple[str, ...] = ()

    @property
    def covered(self) -> Coverage:
        return self.published | self.bridged


def rescued(
    table: str,
    section: LedgerSection,
    accepted: Sequence[AcceptedSlice],
    watermarks: Watermarks,
    given_up: Callable[[LedgerSection], Coverage],
    *,
    drained: bool = False,
) -> Rescued:
    """Return what to publish before a decision voids these slices: nothing if all can be read again.

    :param given_up: ranges of a ledger that the decision gives up
    :param drained: publish what can be published in any case, because another table has irreplaceable slices
    """
    if not drained and not irreplaceable(accepted, watermarks, table):
        return Rescued()
    first = settle(accepted, section).ready
    published = _all_of(first)
    after = replace(section, covered=section.covered | published)
    rest = [a for a in accepted if a not in first]
    holes = (given_up(after) - _all_of(rest)) & _below(_all_of(irreplaceable(rest, watermarks, table)))
    bridged = replace(after, covered=after.covered | holes)
    then = settle(rest, bridged).ready
    left = [a for a in rest if a not in then]
    return Rescued(
        published=published | _all_of(then),
        bridged=holes if then else Coverage(),
        lost=losses(irreplaceable(left, watermarks, table), watermarks),
    )


def _all_of(accepted: Iterable[AcceptedSlice]) -> Coverage:
    return Coverage.union(a.coverage for a in accepted)


def _below(coverage: Coverage) -> Coverage:
    return Coverage({p: RangeSet.of((0, s.ranges[-1].end)) for p, s in coverage.parts.items()})


def _removed(s: RangeSet, mark: Watermark | None) -> RangeSet:
    return s if mark is None else s & RangeSet.of((0, mark.start))


def other_rules(
    landing_state: LandingState, missing: Missing, rules: str, alike: Mapping[str, Coverage] = MappingProxyType({})
) -> dict[tuple[tuple[str, ...], str], Coverage]:
    """Return the ranges that cannot be read for the tables that lack them, by these tables and the table that has the
    ranges by other or unknown rules.

    :param rules: the current rules
    :param alike: by table, ranges of unknown rules that can only have been judged by the current ones
    """
    out = {}
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
                out[tables, holder] = ranges
    return out


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
