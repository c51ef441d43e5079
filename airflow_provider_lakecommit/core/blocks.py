# SPDX-License-Identifier: Apache-2.0
"""Track failed and over-budget ranges while the log is folded: which are blocked, and which are read alone next.

A range is blocked once a slice of this range alone is over its budget, or failed in :data:`FAILURES_TO_BLOCK` cycles.
A joint failure does not implicate any single range: each is tried alone first. A block ends when every table has the
range or an operator raises its budget. Reports judged by a budget from before that decision are ignored.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.log import Raised, SliceReported
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import Blocked

FAILURES_TO_BLOCK = 3
"""Cycles in which a range must fail before it is blocked."""


class Blocks:
    """Mutable while folding. ``failures[n]`` failed in more than n cycles; ``evidence`` pairs ranges with log
    offsets.
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
        if any(at > opened and r.coverage.overlaps(report.coverage) for r, at in self.raised):
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
        self.forget_failures(raised.coverage)
        self.evidence = [(c - raised.coverage, at) for c, at in self.evidence]
        self.evidence.append((raised.coverage, offset))
        self.lift(raised.coverage)

    def forget_failures(self, coverage: Coverage) -> None:
        self.failures = [f - coverage for f in self.failures]

    def lift(self, coverage: Coverage) -> None:
        kept = [replace(b, coverage=b.coverage - coverage) for b in self.blocked]
        self.blocked = [b for b in kept if b.coverage]
