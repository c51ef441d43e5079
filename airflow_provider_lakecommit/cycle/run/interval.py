# SPDX-License-Identifier: Apache-2.0
"""The log of a continuous run: a line per interval, and all lines of a window with a problem.

Contract: until it is first caught up, a continuous run logs like any run. Afterwards the lines of a window are buffered
until it is closed, then written if it had a problem, otherwise dropped. Warnings are written at once, each once per
interval. The buffer is bounded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from airflow_provider_lakecommit.core import STATUS
from airflow_provider_lakecommit.cycle.outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.run.window import Ahead

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
