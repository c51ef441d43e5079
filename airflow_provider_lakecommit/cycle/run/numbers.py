# SPDX-License-Identifier: Apache-2.0
"""The cycle numbers of a continuous run.

Contract: numbers increase and are never reused, even after an error ended cycles before they were closed: these stay
open in the log, and the next START of this process releases their claims
(:mod:`~airflow_provider_lakecommit.cycle.write.open_window`).
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity


class CycleNumbers:
    """The cycle numbers of one continuous run.

    :param identify: returns the identity of the run's n-th cycle
    :param in_turn: returns the identity of a cycle that is opened now
    """

    def __init__(self, identify: Callable[[int], RunIdentity], in_turn: Callable[[RunIdentity], RunIdentity]) -> None:
        self._identify = identify
        self._in_turn = in_turn
        self._newest = -1
        self.next = 0

    def identify(self, number: int) -> RunIdentity:
        """Return an identity for the loop, which calls this when it opens a cycle."""
        self._newest = max(self._newest, number)
        return self._in_turn(self._identify(number))

    def closed(self, number: int) -> None:
        """Record that the cycle is closed."""
        self.next = number + 1

    def give_up(self) -> None:
        """Retire the numbers of cycles that were opened and not closed."""
        self.next = max(self.next, self._newest + 1)
