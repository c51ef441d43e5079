# SPDX-License-Identifier: Apache-2.0
"""Blocked ranges: which ranges are blocked, which slices wait behind them, and when they are tried again.

A range is blocked once a slice of this range alone is over its budget, or failed in :data:`FAILURES_TO_BLOCK` cycles.
A joint failure does not implicate any single range: each is tried alone first. A block ends when every table has the
range or an operator raises its budget. Reports judged by a budget from before that decision are ignored.

A slice of several partitions is blocked if its table lacks a blocked or failing range before it, or if a blocked slice
before it is kept. The planner voids those whose ranges can be read again
(:func:`~airflow_provider_lakecommit.core.planning.voiding.voidable_slices`), so that their other partitions go on. The
others stay accepted until the blocked range is done or given up. Until then their partitions share no slice.

A block is *outdated* when the landing's spec or the data table's columns differ from those it was judged by. It is
tried once under each of them, with the landing's own budget, so nothing is given up that the declaration keeps: without
a dead-letter table no record may be rejected. Blocks without recorded rules are compared by spec only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.log import Raised, SliceReported
from airflow_provider_lakecommit.core.model import Budget
from airflow_provider_lakecommit.core.offsets import Coverage, SourcePartition
from airflow_provider_lakecommit.core.rules import UNKNOWN
from airflow_provider_lakecommit.core.state import AcceptedSlice, Blocked, LandingState

FAILURES_TO_BLOCK = 3
"""Cycles in which a range must fail before it is blocked."""


class Blocks:
    """Failed and over-budget ranges; mutable while folding. ``failures[n]`` failed in more than n cycles;
    ``evidence`` pairs ranges with log offsets.
    """

    def __init__(self) -> None:
        self.blocked: list[Blocked] = []
        self.raised: list[tuple[Raised, int]] = []
        self.recut = Coverage()
        self.failures = [Coverage() for _ in range(FAILURES_TO_BLOCK)]
        self.failed_in: dict[UUID, Coverage] = {}
        self.evidence: list[tuple[Coverage, int]] = []

    @property
    def failed(self) -> Coverage:
        return self.failures[0]

    @property
    def coverage(self) -> Coverage:
        return Coverage.union(b.coverage for b in self.blocked)

    def note_rejects(self, e: SliceReported, opened: int) -> bool:
        """Record a slice that is over its budget; return True if that blocks something.

        :param opened: log offset of its cycle's START
        """
        report = e.report
        if any(at > opened and coverage.overlaps(report.coverage) for (coverage, _), at in self.raised):
            return False
        # Also of one that is blocked: what a person gives up then is known by it, until all tables have it.
        self.evidence.append((report.coverage, e.offset))
        if len(report.spans) == 1:
            return self.block(report.coverage, str(report.blocked), e)
        self.recut = self.recut | report.coverage
        return False

    def note_failure(self, e: SliceReported) -> bool:
        """Record a failed slice; return True if that blocks something."""
        report = e.report
        # By its offsets, not by its slice: a slice, and parts of it, may fail one after the other in one cycle.
        before = self.failed_in.get(e.commit_id, Coverage())
        self.failed_in[e.commit_id] = before | report.coverage
        new = report.coverage - before
        for k in range(FAILURES_TO_BLOCK - 1, 0, -1):
            self.failures[k] = self.failures[k] | (self.failures[k - 1] & new)
        self.failures[0] = self.failures[0] | new
        self.evidence.append((report.coverage, e.offset))
        often = self.failures[-1] & report.coverage
        if len(report.spans) > 1 or not often:
            return False
        return self.block(often, f"failed in {FAILURES_TO_BLOCK} cycles: {report.failed}", e)

    def block(self, coverage: Coverage, reason: str, e: SliceReported) -> bool:
        new = coverage - self.coverage
        if new:
            version, rules = e.report.spec_version, e.report.rules
            self.blocked.append(
                Blocked(coverage=new, reason=reason, offset=e.offset, at=e.at, spec_version=version, rules=rules)
            )
        return bool(new)

    def raise_budget(self, raised: Raised, offset: int) -> None:
        self.raised.append((raised, offset))
        coverage, _ = raised
        self.forget_failures(coverage)
        self.evidence = [(c - coverage, at) for c, at in self.evidence]
        self.evidence.append((coverage, offset))
        self.lift(coverage)

    def forget_failures(self, coverage: Coverage) -> None:
        self.failures = [f - coverage for f in self.failures]

    def lift(self, coverage: Coverage) -> None:
        kept = [replace(b, coverage=b.coverage - coverage) for b in self.blocked]
        self.blocked = [b for b in kept if b.coverage]


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


def outdated(landing_state: LandingState, spec_version: str, rules: str) -> tuple[Blocked, ...]:
    """Return the blocks judged by another spec or other columns.

    :param rules: the current rules
    """
    blocked = landing_state.blocked
    return tuple(b for b in blocked if b.spec_version != spec_version or b.rules not in (UNKNOWN, rules))


def own_budget(budget: Budget, dead_letter_table: str | None) -> Budget:
    """Return the budget that a landing declares for a slice."""
    return budget if dead_letter_table is not None else Budget(max_records=0, max_ratio=0.0)


def lifted(landing_state: LandingState, blocks: Sequence[Blocked], budget: Budget) -> tuple[LandingState, list[Raised]]:
    """Return the state without these blocks, and the decision to record in the log."""
    if not blocks:
        return landing_state, []
    coverage = Coverage.of(item for b in blocks for item in b.coverage.items())
    raised = (coverage, budget)
    state = replace(
        landing_state,
        blocked=tuple(b for b in landing_state.blocked if b not in blocks),
        raised=(*landing_state.raised, raised),
        failed=landing_state.failed - coverage,
    )
    return state, [raised]
