# SPDX-License-Identifier: Apache-2.0
"""Which DAG runs do not work any more: what their open cycles claim is free.

Contract: Airflow is asked for cycles of this deployment's runs only, and never of the own run; once for each run in
:data:`KNOWN_SECONDS`, by one thread at a time, as the landings of a set ask for the same runs at the same time.

Failure story: what cannot be known is taken for alive: its claim then ends by its deadline.
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

__all__ = ["EndedRuns"]

ENDED = ("success", "failed")
"""States of a DAG run in which no task of it works any more."""
UNKNOWN_RUN = (
    "is not known to this Airflow: it was deleted, or another Airflow has the [lakecommit] deployment_id {!r} too "
    "(give each its own, else they end each other's work)"
)
KNOWN_SECONDS = 10.0
"""For which an answer is used again: a run that has ended may be cleared, and works again."""


class EndedRuns:
    """As one task sees them.

    :param ti: the task instance, which asks
    :param log: of the task
    """

    def __init__(self, ti: Any, log: Any) -> None:
        self._ti, self._log = ti, log
        self._deployment = Settings.read().deployment_id
        self._asking = threading.Lock()
        self._known: dict[tuple[str, str], tuple[bool, float]] = {}

    def of(self, session: LandingSession) -> Callable[[Cycle], bool]:
        """Tells cycles of a landing whose DAG run has ended or was deleted."""
        from airflow_provider_lakecommit.cycle import RunIdentity, cycle_id_of

        def is_over(cycle: Cycle) -> bool:
            run = RunIdentity(deployment=self._deployment, dag_id=cycle.dag, run_id=cycle.run, number=cycle.number)
            own = (cycle.dag, cycle.run) == (self._ti.dag_id, self._ti.run_id)
            if own or cycle_id_of(session, run) != cycle.commit_id or not self._has_ended(cycle.dag, cycle.run):
                return False
            self._log.info("what cycle %s claims is free, as its run %s has ended", cycle.commit_id, cycle.run)
            return True

        return is_over

    def _has_ended(self, dag: str, run: str) -> bool:
        with self._asking:
            ended, until = self._known.get((dag, run), (False, 0.0))
            if until < time.monotonic():
                ended = self._ask(dag, run)
                self._known[dag, run] = ended, time.monotonic() + KNOWN_SECONDS
            return ended

    def _ask(self, dag: str, run: str) -> bool:
        try:
            there = self._ti.get_dr_count(dag_id=dag, run_ids=[run])
            ended = self._ti.get_dr_count(dag_id=dag, run_ids=[run], states=list(ENDED))
        except Exception as e:
            self._log.warning("Airflow does not say whether run %s of %s is alive: %s", run, dag, e)
            return False
        if not there:
            self._log.warning("run %s of %s %s", run, dag, UNKNOWN_RUN.format(self._deployment))
        return bool(ended) or not there
