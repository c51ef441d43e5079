# SPDX-License-Identifier: Apache-2.0
"""The log of a continuous run: a line per interval, all lines of a window with a problem, and the sum at the end.

Contract: until it is first caught up, a continuous run logs like any run. Afterwards the lines of a window are buffered
until it is closed, then written if it had a problem, otherwise dropped. Warnings are written at once, each once per
interval. The buffer is bounded.

A :class:`Total` is the sum of a run's cycles, and does not grow with their number. :meth:`Total.add` keeps only the
facts of a closed cycle that the run reports at its end. The snapshots of a table become one: the newest, with the
additions of all.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from airflow_provider_lakecommit.core import STATUS, summed
from airflow_provider_lakecommit.cycle.results import PublishedSnapshot, merged_snapshots
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome, RunOutcome

MOST_BUFFERED = 200
"""Most buffered lines of a window; the newest are kept."""
MOST_WARNINGS = 100
_NUMBER = re.compile(r"[0-9][0-9a-f-]*")


class WindowLog:
    """A log for the parts of a continuous run. ``write`` takes lines that are written at once."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write
        self.quiet = False
        self._buffered: deque[str] = deque(maxlen=MOST_BUFFERED)
        self._warned: set[str] = set()

    def __call__(self, line: str) -> None:
        if not self.quiet:
            self.write(line)
        elif "WARNING" not in line:
            self._buffered.append(line)
        elif (kind := _NUMBER.sub("#", line)) not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(kind)
            self.write(line)

    def end(self, *, trouble: bool) -> None:
        """Flush or drop the lines of a closed window."""
        if trouble:
            for line in self._buffered:
                self.write(line)
        self._buffered.clear()

    def next_interval(self) -> None:
        self._warned.clear()


def had_trouble(outcome: CycleOutcome) -> bool:
    """Return True if an operator may want to read something about a closed cycle."""
    return not outcome.whole or outcome.deferred or bool(outcome.written.trouble or outcome.released)


@dataclass(slots=True)
class Interval:
    """The results of the windows since the last line.

    ``youngest`` and ``oldest`` are ages of records in seconds when they became readable in the table: the least age of
    the newest, and the greatest of the oldest.
    """

    records: int = 0
    rows: int = 0
    windows: int = 0
    youngest: float | None = None
    oldest: float = 0.0
    blocked: int = 0
    failed: tuple[str, ...] = ()

    def add(self, outcome: CycleOutcome, table: str, *, youngest: float, oldest: float) -> None:
        self.blocked, self.failed = len(outcome.closed.blocked), tuple(outcome.closed.failed)
        if not outcome.closed.published:
            return
        self.windows += 1
        self.records += sum(len(p.coverage) for p in outcome.closed.published if p.table == table)
        self.rows += outcome.closed.rows
        self.youngest = youngest if self.youngest is None else min(self.youngest, youngest)
        self.oldest = max(self.oldest, oldest)

    def line(self, seconds: float, ahead: int, held_up: int) -> str:
        """Return the log line of the interval.

        :param seconds: since the last line
        :param ahead: offsets of the source beyond the newest plan; ``held_up`` by open transactions
        """
        text = f"followed for {seconds:.0f} s: {self.records:,} offsets, {self.rows:,} rows, {self.windows} windows"
        if self.youngest is not None:
            text += f"; records were {self.youngest:.1f} to {self.oldest:.1f} s old when published"
        text += f"; {ahead:,} offsets behind"
        if held_up:
            text += f", {held_up:,} held up by open transactions"
        if self.failed:
            text += f"; commits fail for {', '.join(self.failed)}"
        return text + (f"; {self.blocked} ranges blocked, see `{STATUS}`" if self.blocked else "")


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
