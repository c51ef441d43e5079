# SPDX-License-Identifier: Apache-2.0
"""What a void would lose: reported slices whose ranges the source cannot give again.

Contract: pure. A slice that was reported and is not in its table yet may be voided only if its ranges can be read
again. :func:`gone` tells what the source no longer has of some ranges, :func:`irreplaceable` which slices hold such
ranges, :func:`losses` what voiding them would lose, in offsets and records. Whoever begins an epoch or voids a slice
asks here first: what is irreplaceable is published before, or the void is refused with its losses. :func:`disentangled`
tells which slices a plan voids, because a block in one of their partitions holds up the others.

Failure story: a partition of which the source tells nothing (the topic was made anew, is not read any more, or is in
another cluster) has nothing to read again, so all of it is irreplaceable. To keep a slice too long costs a wait, to
void one too many loses its rows. Beyond the end of a log nothing is irreplaceable: where a log became shorter other
records come at these offsets, and a slice that holds them would keep these from being read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from airflow_provider_lakecommit.core.entangled import entangled
from airflow_provider_lakecommit.core.model import LedgerSection
from airflow_provider_lakecommit.core.offsets import Coverage, RangeSet, SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.core.settle import settle
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState

Marks = Mapping[SourcePartition, Watermark]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What a void would lose of one partition: ranges that were reported and cannot be read again, and at most how many
    records they have.
    """

    partition: SourcePartition
    ranges: RangeSet
    records: int

    def __str__(self) -> str:
        return f"{self.partition} {self.ranges} ({self.records} records)"


def gone(coverage: Coverage, marks: Marks) -> Coverage:
    """What of these ranges the source does not have (any more)."""
    return Coverage({p: _gone(s, marks.get(p)) for p, s in coverage.parts.items()})


def irreplaceable(
    accepted: Iterable[AcceptedSlice], marks: Marks, table: str | None = None
) -> tuple[AcceptedSlice, ...]:
    """The slices of which the source lacks something.

    :param table: only those that have something for this table: of the others no row can be lost
    """
    return tuple(a for a in accepted if (table is None or a.matters(table)) and gone(a.coverage, marks))


def disentangled(landing_state: LandingState, marks: Marks) -> dict[UUID, str]:
    """Attempts that a plan gives up so that other partitions go on, each with the reason: only what can be read again
    is given up.
    """
    found = entangled(landing_state, lambda a: bool(gone(a.coverage, marks)))
    return {e.slice.report.attempt: str(e) for e in found if not e.kept}


def losses(accepted: Iterable[AcceptedSlice], marks: Marks) -> tuple[Loss, ...]:
    """What voiding these slices would lose, by partition."""
    ranges: dict[SourcePartition, RangeSet] = {}
    records: dict[SourcePartition, int] = {}
    for slice_ in accepted:
        for report in slice_.report.spans:
            p = report.span.partition
            lost = _gone(RangeSet.of(report.span.range), marks.get(p))
            if lost:
                ranges[p] = ranges.get(p, RangeSet()) | lost
                records[p] = records.get(p, 0) + min(len(lost), report.counts.landed + report.counts.rejected)
    return tuple(Loss(partition=p, ranges=s, records=records[p]) for p, s in sorted(ranges.items()))


def losses_text(found: Iterable[Loss]) -> str:
    return ", ".join(map(str, found)) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rescued:
    """What a word that voids leaves of the pending slices of a table: ``published`` before it, over the holes
    ``bridged`` that the word gives up anyway; ``lost`` of the rest cannot be read again.
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
    marks: Marks,
    given_up: Callable[[LedgerSection], Coverage],
) -> Rescued:
    """What is to be published before a word voids these slices: nothing, while all of them can be read again.

    :param given_up: by the word, of a ledger
    """
    if not irreplaceable(accepted, marks, table):
        return Rescued()
    first = settle(accepted, section).ready
    published = _all_of(first)
    after = replace(section, covered=section.covered | published)
    rest = [a for a in accepted if a not in first]
    holes = (given_up(after) - _all_of(rest)) & _below(_all_of(irreplaceable(rest, marks, table)))
    bridged = replace(after, covered=after.covered | holes)
    then = settle(rest, bridged).ready
    left = [a for a in rest if a not in then]
    return Rescued(
        published=published | _all_of(then),
        bridged=holes if then else Coverage(),
        lost=losses(irreplaceable(left, marks, table), marks),
    )


def _all_of(accepted: Iterable[AcceptedSlice]) -> Coverage:
    return Coverage.union(a.coverage for a in accepted)


def _below(coverage: Coverage) -> Coverage:
    """Everything up to the end of each partition's ranges."""
    return Coverage({p: RangeSet.of((0, s.ranges[-1].end)) for p, s in coverage.parts.items()})


def _gone(s: RangeSet, mark: Watermark | None) -> RangeSet:
    return s if mark is None else s & RangeSet.of((0, mark.start))
