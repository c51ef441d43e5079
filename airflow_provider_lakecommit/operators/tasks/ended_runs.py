# SPDX-License-Identifier: Apache-2.0
"""Which DAG runs have ended: the claims of their open cycles are free.

Contract: Airflow is requested only for cycles of this deployment's runs, and never of the own run; once for each run in
:data:`KNOWN_SECONDS`, by one thread at a time, because the landings of a set check the same runs at the same time.

Failure story: an unknown run counts as alive: its claim then ends at its deadline.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow_provider_lakecommit.hooks import Settings

if TYPE_CHECKING:
    from airflow_provider_lakecommit.core import Cycle
    from airflow_provider_lakecommit.cycle import LandingSession

ENDED = ("success", "failed")
"""States of a DAG run in which none of its tasks runs any more."""
UNKNOWN_RUN = (
    "is not known to this Airflow: it was deleted, or another Airflow also has the [lakecommit] deployment_id {!r} "
    "(give each its own, otherwise they end each other's work)"
)
KNOWN_SECONDS = 10.0
"""How long an answer is valid: an ended run may be cleared, and run again."""


class EndedRuns:
    """The ended runs as seen by one task.

    :param ti: the task instance that sends the requests
    :param log: the task's log
    """

    def __init__(self, ti: Any, log: Any) -> None:
        self._ti, self._log = ti, log
        self._deployment = Settings.read().deployment_id
        self._asking = threading.Lock()
        self._known: dict[tuple[str, str], tuple[bool, float]] = {}

    def of(self, session: LandingSession) -> Callable[[Cycle], bool]:
        """Return a function that is True for cycles of a landing whose DAG run has ended or was deleted."""
        from airflow_provider_lakecommit.cycle import RunIdentity, cycle_id_of

        def is_over(cycle: Cycle) -> bool:
            run = RunIdentity(deployment=self._deployment, dag_id=cycle.dag, run_id=cycle.run, number=cycle.number)
            own = (cycle.dag, cycle.run) == (self._ti.dag_id, self._ti.run_id)
            if own or cycle_id_of(session, run) != cycle.commit_id or not self._has_ended(cycle.dag, cycle.run):
                return False
            self._log.info("the claims of cycle %s are free, its run %s has ended", cycle.commit_id, cycle.run)
            return True

        return is_over

    def _has_ended(self, dag: str, run: str) -> bool:
        with self._asking:
            ended, until = self._known.get((dag, run), (False, 0.0))
            if until < time.monotonic():
                ended = self._request(dag, run)
                self._known[dag, run] = ended, time.monotonic() + KNOWN_SECONDS
            return ended

    def _request(self, dag: str, run: str) -> bool:
        try:
            there = self._ti.get_dr_count(dag_id=dag, run_ids=[run])
            ended = self._ti.get_dr_count(dag_id=dag, run_ids=[run], states=list(ENDED))
        except Exception as e:
            self._log.warning("Airflow does not report whether run %s of %s is alive: %s", run, dag, e)
            return False
        if not there:
            self._log.warning("run %s of %s %s", run, dag, UNKNOWN_RUN.format(self._deployment))
        return bool(ended) or not there
