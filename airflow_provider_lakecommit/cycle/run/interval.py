# SPDX-License-Identifier: Apache-2.0
"""What a follow says: a line once in a while, and all of a window that had trouble.

Contract: until it is caught up for the first time a follow tells what any run tells. After that the lines of a window
are held back until it is closed: they are said if it had trouble, and dropped if not. Warnings are said at once, each
once in an interval. What is held back is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_lakecommit.core import STATUS
from airflow_provider_lakecommit.cycle.outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.run.window import Ahead

__all__ = ["Interval", "WindowLog", "had_trouble"]

HELD = 200
"""Lines of one window that are held back, the newest."""
MOST_WARNINGS = 100
_NUMBER = re.compile(r"[0-9][0-9a-f-]*")


class WindowLog:
    """A log for the parts of a follow. ``say`` is where lines go that are told at once."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.quiet = False
        self._held: deque[str] = deque(maxlen=HELD)
        self._warned: set[str] = set()

    def __call__(self, line: str) -> None:
        if not self.quiet:
            self.say(line)
        elif "WARNING" not in line:
            self._held.append(line)
        elif (kind := _NUMBER.sub("#", line)) not in self._warned and len(self._warned) < MOST_WARNINGS:
            self._warned.add(kind)
            self.say(line)

    def end(self, *, trouble: bool) -> None:
        """A window is closed."""
        if trouble:
            for line in self._held:
                self.say(line)
        self._held.clear()

    def next_interval(self) -> None:
        self._warned.clear()


def had_trouble(outcome: CycleOutcome) -> bool:
    """Return True if an operator may want to read something about a closed cycle."""
    return not outcome.whole or outcome.deferred or bool(outcome.written.trouble or outcome.released)


@dataclass(slots=True)
class Interval:
    """What came of the windows since the last line.

    ``youngest`` and ``oldest`` are ages in seconds, of records when they could be read in the table: of the newest at
    least, and of the oldest at most.
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

    def line(self, seconds: float, ahead: Ahead) -> str:
        """:param seconds: since the last line"""
        text = f"followed for {seconds:.0f} s: {self.records:,} offsets, {self.rows:,} rows, {self.windows} windows"
        if self.youngest is not None:
            text += f"; records were {self.youngest:.1f} to {self.oldest:.1f} s old when published"
        text += f"; {ahead.records:,} offsets behind"
        if ahead.held_up:
            text += f", {ahead.held_up:,} held up by open transactions"
        if self.failed:
            text += f"; commits fail for {', '.join(self.failed)}"
        return text + (f"; {self.blocked} ranges blocked, see `{STATUS}`" if self.blocked else "")
