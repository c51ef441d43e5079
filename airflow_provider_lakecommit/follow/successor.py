# SPDX-License-Identifier: Apache-2.0
"""Whether a later run follows the landing by now, so that this one ends.

Contract: a run takes its turn when it opens its first cycle. Each question reads what came to the control log since the
one before, so that no later run is missed and no record is read twice. It is said once.

Failure story: where the log cannot be read nobody has taken over, as far as is known: the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.session.turns import LogPlace, cycles_since, log_end, successor_of, turn_at

__all__ = ["Successor"]


class Successor:
    """Of one run.

    :param say: takes the line that tells of it
    :param turns: does the run take over from those of its DAG that follow already? If not, none takes over from it
    """

    def __init__(self, session: LandingSession, say: Callable[[str], None], *, turns: bool) -> None:
        self._session, self._say, self._turns = session, say, turns
        self._run: RunIdentity | None = None
        self._place: LogPlace | None = None
        self._taken_over = False

    def in_turn(self, run: RunIdentity) -> RunIdentity:
        """The identity of a cycle of the run, with its turn.

        :raises ControlTopicError: the control topic cannot be read or made
        """
        if self._turns and self._run is None:
            self._place = log_end(self._session)
            self._run = replace(run, turn=turn_at(self._place))
        return run if self._run is None else replace(run, turn=self._run.turn)

    def ask(self) -> bool:
        """Has a later run begun?"""
        if self._run is None or self._place is None or self._taken_over:
            return self._taken_over
        try:
            cycles, self._place = cycles_since(self._session, self._place)
        except LakecommitError:
            return False
        if (successor := successor_of(cycles, self._run)) is not None:
            self._taken_over = True
            self._say(f"run {successor} follows from here on: this one opens no further window")
        return self._taken_over
