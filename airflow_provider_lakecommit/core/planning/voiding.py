# SPDX-License-Identifier: Apache-2.0
"""Protect reported slices that the source cannot provide again from being voided.

An unpublished slice may be voided only if its ranges can be read again; otherwise it is published first, or the void is
refused with its losses. A source partition without watermarks (recreated, no longer read, another cluster) can provide
nothing. Keeping a slice too long costs a wait, voiding it wrongly loses rows. Offsets beyond the end of a log are
replaceable: where a log became shorter, other records come there, and a kept slice would block them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.core.blocks import blocked_slices
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState

Watermarks = Mapping[SourcePartition, Watermark]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Reported ranges of one partition that cannot be read again, and at most how many records they have."""

    partition: SourcePartition
    ranges: RangeSet
    records: int

    def __str__(self) -> str:
        return f"{self.partition} {self.ranges} ({self.records} records)"


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


def losses(accepted: Iterable[AcceptedSlice], watermarks: Watermarks) -> tuple[Loss, ...]:
    """Return what voiding these slices would lose, by partition."""
    ranges: dict[SourcePartition, RangeSet] = {}
    records: dict[SourcePartition, int] = {}
    for slice_ in accepted:
        for report in slice_.report.spans:
            p = report.span.partition
            lost = _removed(RangeSet.of(report.span.range), watermarks.get(p))
            if lost:
                ranges[p] = ranges.get(p, RangeSet()) | lost
                records[p] = records.get(p, 0) + min(len(lost), report.counts.landed + report.counts.rejected)
    return tuple(Loss(partition=p, ranges=s, records=records[p]) for p, s in sorted(ranges.items()))


def losses_text(found: Iterable[Loss]) -> str:
    return ", ".join(map(str, found)) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """What a voiding decision leaves of a table's pending slices.

    ``published`` before it, over the ``bridged`` holes that it gives up anyway; ``lost`` cannot be read again.
    """

    published: Coverage = field(default_factory=Coverage)
    bridged: Coverage = field(default_factory=Coverage)
    lost: tuple[Loss, ...] = ()

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
