# SPDX-License-Identifier: Apache-2.0
"""What an error does to a follow: it goes on after a pause, or it ends.

Contract: pure; the first row that applies decides.

=============================================  ====================================================
the error                                      the follow
=============================================  ====================================================
any, after it was told to stop                 ends
somebody else took its place (fenced, closed)  ends
one that needs a person (``Terminal``)         ends
any, before it has closed a cycle              ends, so that what is set up wrongly is told at once
of Spark jobs, :data:`MOST_SPARK` in a row     ends
any other that may pass (``Transient``)        goes on, after a pause that grows
any other                                      ends
=============================================  ====================================================

Servers that are away come back, so they are waited for as long as it takes. Each try is a cycle of its own, so that
commits that fail are counted as those of runs by a schedule are.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_lakecommit.exceptions import ClosedError, FencedError, SparkJobError, Terminal, Transient

__all__ = ["MOST_SPARK", "PAUSES", "Troubles"]

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try after one, two, more errors in a row."""
MOST_SPARK = 3
"""Errors in a row of Spark jobs; each is of several cycles that moved nothing, or of a session that did not start."""


@dataclass(slots=True)
class Troubles:
    """The errors in a row of one follow. ``sound`` tells whether it has closed a cycle."""

    sound: bool = False
    row: int = 0
    spark: int = 0

    def passed(self) -> None:
        """Something was closed that moved something, or had nothing to move."""
        self.sound, self.row, self.spark = True, 0, 0

    def pause(self, error: Exception, *, stopping: bool) -> float | None:
        """Seconds after which to go on; ``None``: it ends."""
        self.row += 1
        self.spark += isinstance(error, SparkJobError)
        if stopping or not self.sound or isinstance(error, (ClosedError, FencedError, Terminal)):
            return None
        if self.spark >= MOST_SPARK or not isinstance(error, Transient):
            return None
        return PAUSES[min(self.row, len(PAUSES)) - 1]
