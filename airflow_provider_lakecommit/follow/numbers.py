# SPDX-License-Identifier: Apache-2.0
"""Which cycles of a follow are whose: those that are under way, and those that it has given up after an error.

Contract: numbers go up and are never used twice. A cycle that an error ended stays open in the log, and what it
reported is published by the next one; its claims are released by the START of that one, as those of a dead process are,
because nobody works for it any more: the loop lets all jobs end before it raises.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from airflow_provider_lakecommit.core.model import Cycle
from airflow_provider_lakecommit.session.landing_session import LandingSession, RunIdentity, cycle_id_of

__all__ = ["CycleNumbers"]


class CycleNumbers:
    """Of one follow.

    :param identify: the identity of the run's n-th cycle
    :param release: tells which other open cycles are of dead processes
    :param in_turn: the identity of a cycle that is opened now
    """

    def __init__(
        self,
        session: LandingSession,
        identify: Callable[[int], RunIdentity],
        release: Callable[[Cycle], bool],
        in_turn: Callable[[RunIdentity], RunIdentity],
    ) -> None:
        self._session = session
        self._identify = identify
        self._release = release
        self._in_turn = in_turn
        self._newest = -1
        self._given_up: set[UUID] = set()
        self.next = 0

    def identify(self, number: int) -> RunIdentity:
        """For the loop, which asks when it opens a cycle."""
        self._newest = max(self._newest, number)
        return self._in_turn(self._identify(number))

    def release(self, cycle: Cycle) -> bool:
        """For the loop: are the claims of an open cycle to end?"""
        return cycle.commit_id in self._given_up or self._release(cycle)

    def closed(self, number: int) -> None:
        """That cycle is closed; its START has released what was given up."""
        self.next = number + 1
        self._given_up.clear()

    def give_up(self) -> None:
        """Those that were opened and not closed."""
        self._given_up |= {cycle_id_of(self._session, self._identify(n)) for n in range(self.next, self._newest + 1)}
        self.next = max(self.next, self._newest + 1)
