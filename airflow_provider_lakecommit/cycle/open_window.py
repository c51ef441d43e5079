# SPDX-License-Identifier: Apache-2.0
"""A cycle of a run that is open, and what it comes to once it is closed; which open cycles the next START is to end.

Contract: values of one run, in memory. A cycle is ended by the START of a later one where nobody works for it any more:
its process is dead, or this run has closed it without a COMPLETE, as commits failed for some table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.run import CycleOutcome, Written
from airflow_provider_lakecommit.cycle.window_writer import WindowWrite
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.session.landing_session import RunIdentity

__all__ = ["OpenWindow", "Releases", "without_window"]


@dataclass(slots=True, kw_only=True)
class OpenWindow:
    """A cycle of the run that is open. ``error`` is what kept its jobs from beginning; without either it is over."""

    number: int
    run: RunIdentity
    opened: Opened
    writing: WindowWrite | None = None
    error: LakecommitError | None = None
    released: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    def outcome(self, written: Written, closed: Closed) -> CycleOutcome:
        return CycleOutcome(
            number=self.number,
            opened=self.opened,
            written=written,
            closed=closed,
            seconds=self.seconds,
            released=self.released,
        )

    def ended_before(self) -> CycleOutcome:
        """It was found to be over."""
        lacking, ticket = tuple(map(str, self.opened.lacking)), self.opened.ticket
        closed = Closed(commit_id=ticket.commit_id, finished=True, note=self.opened.note, missing=lacking)
        return self.outcome(Written(), closed)


def without_window(number: int, done: tuple[Opened, Closed], seconds: float) -> CycleOutcome:
    """A cycle that has only committed."""
    opened, closed = done
    return CycleOutcome(number=number, opened=opened, written=Written(), closed=closed, seconds={"close": seconds})


class Releases:
    """What the START of a run's next cycle ends.

    :param is_dead: tells which open cycles are of dead processes
    :ivar dead: those that the newest look has found
    """

    def __init__(self, is_dead: Callable[[Cycle], bool]) -> None:
        self._is_dead = is_dead
        self._left: set[UUID] = set()
        self._seen: set[UUID] = set()
        self.dead: set[UUID] = set()

    def leave(self, commit_id: UUID) -> None:
        """The run closed that cycle, and it is not complete."""
        self._left.add(commit_id)

    def is_left(self, cycle: Cycle) -> bool:
        return cycle.commit_id in self._left

    def begin(self) -> None:
        """A look at the open cycles begins."""
        self.dead, self._seen = set(), set()

    def __call__(self, cycle: Cycle) -> bool:
        """Is it to be ended?"""
        if self.is_left(cycle):
            self._seen.add(cycle.commit_id)
            return True
        if cycle.commit_id not in self.dead and self._is_dead(cycle):
            self.dead.add(cycle.commit_id)
        return cycle.commit_id in self.dead

    def done(self) -> None:
        """A cycle was opened after the look: of those that were left, what it did not ask about was over before."""
        self._left &= self._seen
