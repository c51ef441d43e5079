# SPDX-License-Identifier: Apache-2.0
"""What of a landing failed or had too many rejects, while its log is folded: what is blocked, and what is tried alone.

Contract: a range is blocked by name once a slice that was its alone is over its budget, or failed in
:data:`FAILURES_TO_BLOCK` cycles. What several ranges have failed together tells of none of them: each is tried alone
first. A block is over when every table has its range, or a person raised its budget; a report that judged by a budget
from before that word says nothing.
"""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from airflow_provider_lakecommit.core.log import Raised, SliceReported
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.core.state import Blocked

FAILURES_TO_BLOCK = 3
"""A range whose slices reported a failure in this many cycles is blocked by name, once one of these was its alone."""


class Blocks:
    """Mutable while folding. ``failures`` are the ranges that failed in one cycle, in two, and so on; ``evidence`` are
    ranges with the log offset of what says so.
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
        """A slice is over its budget; whether something is blocked by that.

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
        """A slice could not be done; whether something is blocked by that."""
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
        """By the word of a person at this log offset."""
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
