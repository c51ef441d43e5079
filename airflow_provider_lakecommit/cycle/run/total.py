# SPDX-License-Identifier: Apache-2.0
"""The sum of a run's cycles, which does not grow with their number.

Contract: :meth:`Total.add` keeps only the facts of a closed cycle that the run reports at its end. The snapshots of a
table become one: the newest, with the additions of all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from airflow_provider_lakecommit.core import summed
from airflow_provider_lakecommit.cycle.outcome import CycleOutcome, RunOutcome
from airflow_provider_lakecommit.cycle.results import PublishedSnapshot, merged_snapshots


@dataclass(slots=True, kw_only=True)
class Total:
    """The sum of one run of a landing."""

    landing: str
    cycles: int = 0
    snapshots: int = 0
    _last: CycleOutcome | None = None
    _published: dict[str, PublishedSnapshot] = field(default_factory=dict)
    _ignored: dict[str, int] = field(default_factory=dict)
    _rejects: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: CycleOutcome) -> None:
        self.cycles += 1
        self._last = outcome
        self.publish(outcome.closed.published)
        self._ignored = summed((self._ignored, outcome.closed.ignored_fields))
        self._rejects = summed((self._rejects, outcome.closed.rejects))

    def publish(self, published: Iterable[PublishedSnapshot]) -> None:
        """Add snapshots of this run, the newest last."""
        for each in published:
            self.snapshots += 1
            before = self._published.get(each.table)
            self._published[each.table] = merged_snapshots([before, each]) if before else each

    def ended(self) -> RunOutcome:
        """Return the run's outcome, after at least one cycle."""
        if self._last is None:
            raise ValueError(f"no cycle of landing {self.landing} was closed")
        last = self._last
        return RunOutcome(
            landing=self.landing,
            cycles=self.cycles,
            snapshots=self.snapshots,
            closed=replace(last.closed, ignored_fields=self._ignored, rejects=self._rejects),
            published=tuple(self._published.values()),
            refused=last.opened.plan.reason if last.deferred else None,
        )
