# SPDX-License-Identifier: Apache-2.0
"""Whether a run continues, and after which pause: after a cycle without progress, and in continuous mode after an
error.

Contract: functions of the cycles and errors so far; nothing waits here. A cycle without progress is *idle*; one whose
window was not admitted is *refused*, unless its own commit published something, which may have cleared the state. A
cycle with progress resets the counts. Of the errors of a continuous run, the first row that applies decides:

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

from airflow_provider_lakecommit.core import STATUS, RefusalState
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome, first_of
from airflow_provider_lakecommit.exceptions import ClosedError, FencedError, SparkJobError, Terminal, Transient

MOST_IDLE_CYCLES = 4
"""Idle cycles in a row before a run gives up: one more than it takes to block a range by name."""
PAUSES = (0.5, 2.0, 5.0)
"""Seconds before the next cycle after one, two, more idle cycles with a transient reason."""
REFUSED_PAUSES = (0.0, 2.0, 10.0, 30.0)
"""Seconds before the next cycle after one, two, more in a row without an admitted window; after one more the run ends.
The first is zero: that cycle's own commit may have cleared the state.
"""


@dataclass(slots=True)
class PausePolicy:
    """The policy of one run."""

    idle: int = 0
    refused: int = 0
    standing: bool = False
    """True if the window is refused until an operator acts."""

    def note(self, outcome: CycleOutcome) -> None:
        """Record the newest closed cycle."""
        self.refused = self.refused + 1 if outcome.deferred and not outcome.closed.published else 0
        state = outcome.opened.plan.refused
        needs_a_hand = state is not None and state.needs_a_hand and not outcome.opened.slices
        self.standing = state is RefusalState.SUSPENDED or needs_a_hand
        over_before = outcome.opened.finished
        self.idle = 0 if outcome.progress or outcome.deferred or over_before else self.idle + 1

    @property
    def over(self) -> bool:
        """Return True if windows were refused so often, or until an operator acts, that the run ends with nothing to
        do.
        """
        return self.standing or self.refused > len(REFUSED_PAUSES)

    def pause(self, outcome: CycleOutcome) -> float:
        """Return the seconds before the next cycle, after this one was noted.

        :raises SparkJobError: no cycle makes progress; with the newest reason
        """
        if outcome.deferred:
            return REFUSED_PAUSES[max(self.refused, 1) - 1]
        if self.idle >= MOST_IDLE_CYCLES:
            raise SparkJobError("LC6217", _why_given_up(outcome, self.idle))
        return PAUSES[min(self.idle, len(PAUSES)) - 1] if self.idle and outcome.written.may_pass else 0.0


def _why_given_up(last: CycleOutcome, idle: int) -> str:
    reasons = last.written.trouble or last.closed.voided or last.closed.missing
    why = f"{first_of(reasons)} the reason" if reasons else "it was granted no slice"
    return (
        f"{idle} cycles in a row made no progress; of the last one {why}. Published rows stay: fix the cause, and "
        f"the same command continues from there; `{STATUS} SPEC` shows what is left to land"
    )


ERROR_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
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
        return ERROR_PAUSES[min(self.row, len(ERROR_PAUSES)) - 1]
