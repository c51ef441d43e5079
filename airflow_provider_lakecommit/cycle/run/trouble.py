# SPDX-License-Identifier: Apache-2.0
"""The effect of an error on a continuous run: it continues after a pause, or it ends.

Contract: pure; the first row that applies decides.

=============================================  ====================================================
the error                                      the run
=============================================  ====================================================
any, after it was stopped                      ends
another run took its place (fenced, closed)    ends
one that needs an operator (``Terminal``)      ends
any, before it has closed a cycle              ends, so that a wrong setup is reported at once
of Spark jobs, :data:`MOST_SPARK` in a row     ends
any other that may pass (``Transient``)        continues, after a pause that grows
any other                                      ends
=============================================  ====================================================

Unavailable servers come back, so the run waits as long as it takes. Each retry is a cycle of its own, so that failed
commits count as those of scheduled runs do.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider_lakecommit.exceptions import ClosedError, FencedError, SparkJobError, Terminal, Transient

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next retry after one, two, more errors in a row."""
MOST_SPARK = 3
"""Errors of Spark jobs in a row; each is of several cycles without progress, or of a session that did not start."""


@dataclass(slots=True)
class Troubles:
    """The errors in a row of one continuous run. ``sound``: it has closed a cycle."""

    sound: bool = False
    row: int = 0
    spark: int = 0

    def passed(self) -> None:
        """Record a cycle with progress, or with nothing to do."""
        self.sound, self.row, self.spark = True, 0, 0

    def pause(self, error: Exception, *, stopping: bool) -> float | None:
        """Return the seconds after which to continue; ``None`` to end."""
        self.row += 1
        self.spark += isinstance(error, SparkJobError)
        if stopping or not self.sound or isinstance(error, (ClosedError, FencedError, Terminal)):
            return None
        if self.spark >= MOST_SPARK or not isinstance(error, Transient):
            return None
        return PAUSES[min(self.row, len(PAUSES)) - 1]
