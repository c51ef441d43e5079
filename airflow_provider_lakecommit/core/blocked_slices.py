# SPDX-License-Identifier: Apache-2.0
"""Find reported slices that a block in one of their partitions keeps from being published.

A slice of several partitions is blocked if its table lacks a blocked or failing range before it, or if a blocked slice
before it is kept. The planner voids those whose ranges can be read again
(:func:`~airflow_provider_lakecommit.core.planning.voiding.voidable_slices`), so that their other partitions go on. The
others stay accepted until the blocked range is done or given up. Until then their partitions share no slice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedSlice:
    """A slice, and the partition in which it must wait."""

    slice: AcceptedSlice
    partition: SourcePartition
    kept: bool

    def __str__(self) -> str:
        return f"{self.slice.coverage} waits for a blocked or failing range of {self.partition}"


def blocked_slices(
    landing_state: LandingState, keeps: Callable[[AcceptedSlice], bool] = lambda _: True
) -> Iterator[BlockedSlice]:
    """Yield the blocked slices of all tables.

    :param keeps: whether a slice stays accepted
    """
    stuck = landing_state.blocked_coverage | landing_state.failed
    if not stuck:
        return
    for table, ledger in landing_state.ledgers.items():
        has = ledger.all_covered | landing_state.accepted_coverage(table)
        shared = [s for s in landing_state.accepted[table] if len(s.coverage.parts) > 1]
        yield from _behind(stuck - has, shared, keeps)


def _behind(
    stuck: Coverage, left: Sequence[AcceptedSlice], keeps: Callable[[AcceptedSlice], bool]
) -> Iterator[BlockedSlice]:
    while True:
        found = [BlockedSlice(slice=s, partition=p, kept=keeps(s)) for s in left if (p := _where(s, stuck)) is not None]
        yield from found
        kept = [item for e in found if e.kept for item in e.slice.coverage.items()]
        if not kept:
            return
        stuck = stuck | Coverage.of(kept)
        removed = {e.slice.report.attempt for e in found}
        left = [s for s in left if s.report.attempt not in removed]


def _where(s: AcceptedSlice, stuck: Coverage) -> SourcePartition | None:
    behind = (p for p, r in s.coverage.parts.items() if stuck[p] and stuck[p].ranges[0].start < r.ranges[-1].end)
    return next(behind, None)


def partitions_of_blocked_slices(landing_state: LandingState) -> frozenset[SourcePartition]:
    """Return the partitions that may not share a slice with others."""
    return frozenset(p for e in blocked_slices(landing_state) for p in e.slice.coverage.parts)


def without(landing_state: LandingState, attempts: Collection[UUID]) -> LandingState:
    """Return the state as if these attempts were voided."""
    if not attempts:
        return landing_state
    left = {t: tuple(a for a in some if a.report.attempt not in attempts) for t, some in landing_state.accepted.items()}
    return replace(landing_state, accepted=left)
