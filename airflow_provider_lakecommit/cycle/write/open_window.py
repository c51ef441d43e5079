# SPDX-License-Identifier: Apache-2.0
"""A run's open cycle, and its outcome once it is closed; and which open cycles the next START must end.

Contract: values of one run, in memory. The START of a later cycle ends cycles without a worker: their process is dead,
this run closed them without a COMPLETE, as commits failed for some table, or a run of this process ended with an error
before it closed them. Only the last kind is shared by the runs of a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from uuid import UUID

from airflow_provider_lakecommit.core import Cycle
from airflow_provider_lakecommit.cycle.outcome import CycleOutcome, Written
from airflow_provider_lakecommit.cycle.results import Closed, Opened
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.cycle.write.window_writer import WindowWrite
from airflow_provider_lakecommit.exceptions import LakecommitError

MOST_ABANDONED = 1000
"""Most abandoned cycles that a process remembers; the claims of older ones end by their deadline."""
_abandoned: dict[UUID, None] = {}
"""Abandoned cycles of all runs of this process, the oldest first."""


@dataclass(slots=True, kw_only=True)
class OpenWindow:
    """An open cycle of the run. ``error`` is what kept its jobs from beginning; without either it is over."""

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
        """Return the outcome of a cycle that was found to be over."""
        lacking, ticket = tuple(map(str, self.opened.lacking)), self.opened.ticket
        closed = Closed(commit_id=ticket.commit_id, finished=True, note=self.opened.note, missing=lacking)
        return self.outcome(Written(), closed)


def without_window(number: int, done: tuple[Opened, Closed], seconds: float) -> CycleOutcome:
    """Return the outcome of a cycle that only committed."""
    opened, closed = done
    return CycleOutcome(number=number, opened=opened, written=Written(), closed=closed, seconds={"close": seconds})


def abandon(commit_ids: Iterable[UUID]) -> None:
    """Let the next run of this process end these cycles: their run ended with an error and left them open."""
    _abandoned.update(dict.fromkeys(commit_ids))
    for oldest in list(_abandoned)[:-MOST_ABANDONED]:
        _abandoned.pop(oldest, None)


class Releases:
    """The cycles that the START of a run's next cycle ends.

    :param is_dead: decides which open cycles are of dead processes
    :ivar dead: those that the newest read found, including abandoned ones
    """

    def __init__(self, is_dead: Callable[[Cycle], bool]) -> None:
        self._is_dead = is_dead
        self._left: set[UUID] = set()
        self._known: set[UUID] = set()
        self.dead: set[UUID] = set()

    def leave(self, commit_id: UUID) -> None:
        """Record a cycle that the run closed without completing it."""
        self._left.add(commit_id)

    def is_left(self, cycle: Cycle) -> bool:
        return cycle.commit_id in self._left

    def end_with(self, windows: Iterable[OpenWindow]) -> None:
        """After an error, abandon the run's open cycles, and those that it closed without a COMPLETE."""
        abandon([*self._left, *(w.opened.ticket.commit_id for w in windows)])

    def take_up(self, commit_id: UUID) -> None:
        """Record that the run works on that cycle: it is not abandoned any more."""
        _abandoned.pop(commit_id, None)

    def begin(self) -> None:
        """Begin a read of the open cycles."""
        self.dead, self._known = set(), set()

    def __call__(self, cycle: Cycle) -> bool:
        """Return True if it must end."""
        if self.is_left(cycle):
            self._known.add(cycle.commit_id)
            return True
        if cycle.commit_id not in self.dead and (cycle.commit_id in _abandoned or self._is_dead(cycle)):
            self.dead.add(cycle.commit_id)
        return cycle.commit_id in self.dead

    def done(self) -> None:
        """Record that a cycle was opened after the read: left cycles that it did not ask about were already over."""
        self._left &= self._known
