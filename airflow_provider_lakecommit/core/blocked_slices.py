# SPDX-License-Identifier: Apache-2.0
"""Find reported slices that a block in one of their partitions keeps from being published.

A slice of several partitions is blocked if its table lacks a blocked or failing range before it, or if a blocked slice
before it is kept. The planner voids those whose ranges can be read again
(:func:`~airflow_provider_lakecommit.core.planning.voiding.voidable_slices`), so that their other partitions go on. The
others stay accepted until the blocked range is done or given up. Until then their partitions share no slice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.state import AcceptedSlice, LandingState


def blocked_slices(
    landing_state: LandingState, keeps: Callable[[AcceptedSlice], bool] = lambda _: True
) -> Iterator[tuple[AcceptedSlice, SourcePartition]]:
    """Yield the blocked slices of all tables, each with the partition in which it must wait.

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
) -> Iterator[tuple[AcceptedSlice, SourcePartition]]:
    while found := [(s, p) for s in left if (p := _where(s, stuck)) is not None]:
        yield from found
        stuck = stuck | Coverage.union(s.coverage for s, _ in found if keeps(s))
        removed = {s.report.attempt for s, _ in found}
        left = [s for s in left if s.report.attempt not in removed]


def _where(s: AcceptedSlice, stuck: Coverage) -> SourcePartition | None:
    behind = (p for p, r in s.coverage.parts.items() if stuck[p] and stuck[p].ranges[0].start < r.ranges[-1].end)
    return next(behind, None)


def partitions_of_blocked_slices(landing_state: LandingState) -> frozenset[SourcePartition]:
    """Return the partitions that may not share a slice with others."""
    return frozenset(p for s, _ in blocked_slices(landing_state) for p in s.coverage.parts)


def without(landing_state: LandingState, attempts: Collection[UUID]) -> LandingState:
    """Return the state as if these attempts were voided."""
    if not attempts:
        return landing_state
    left = {t: tuple(a for a in some if a.report.attempt not in attempts) for t, some in landing_state.accepted.items()}
    return replace(landing_state, accepted=left)
