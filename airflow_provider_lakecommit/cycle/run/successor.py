# SPDX-License-Identifier: Apache-2.0
"""Detect a later continuous run of the same landing, which ends this one.

Contract: a run's turn is the place where its first cycle was opened; it is sent from the first cycle opened after the
run has shown that it can land: Spark has done a slice of it, or there was nothing to do and Spark is running. So a run
that fails or is killed before that ends no other run. Each check reads the control records since the previous one, so
that no later run is missed and no record is read twice. It is reported once.

Failure story: while the log is unreadable, no takeover is known and the run continues. If the log was recreated, this
run takes a turn in the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from airflow_provider_lakecommit.cycle.plan.reports import own_partition
from airflow_provider_lakecommit.cycle.run_outcome import CycleOutcome
from airflow_provider_lakecommit.cycle.session.landing_session import LandingSession, RunIdentity
from airflow_provider_lakecommit.cycle.session.turns import cycles_since, log_end, successor_of, turn_at
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError


class Successor:
    """The successor of one run.

    :param log: takes the log line about it
    :param start: starts the engine, as :meth:`~airflow_provider_lakecommit.spark.launch.base.Engine.start`
    :param turns: take over from continuous runs of the same DAG; otherwise no run takes over from this one
    :ivar found: id of the later run
    """

    def __init__(
        self, session: LandingSession, log: Callable[[str], None], start: Callable[[], None], *, turns: bool
    ) -> None:
        self._session, self._log, self._start, self._turns = session, log, start, turns
        self._lands = self._announced = False
        self._run: RunIdentity | None = None
        self._read_from: tuple[int, int] | None = None
        """A partition of the control topic, and the offset from which it looks for later runs."""

        self.found = ""

    def in_turn(self, run: RunIdentity) -> RunIdentity:
        """Return the identity of a cycle of the run, with its turn once it has shown that it can land.

        :raises ControlTopicError: the control topic cannot be read or made
        """
        if self._turns and self._run is None:
            partition = self._partition()
            offset = log_end(self._session, partition)
            self._read_from, self._run = (partition, offset), replace(run, turn=turn_at(offset))
        if self._run is None or not self._lands:
            return run
        self._announced = True
        return replace(run, turn=self._run.turn)

    def _partition(self) -> int:
        """Return the control partition of the ledgers; while no ledger is readable, the one that cycles then use."""
        self._session.control.ensure()
        try:
            return own_partition(self._session)
        except CatalogError:
            return self._session.own_partition()

    @property
    def is_due(self) -> bool:
        """Return True if a cycle must be opened at once, so that the previous run ends."""
        return self._lands and not self._announced

    def closed(self, outcome: CycleOutcome) -> None:
        """Note that a cycle of the run was closed, and whether it shows that the run can land."""
        if self._turns and not self._lands:
            self._lands = self._shows_it_can_land(outcome)

    def _shows_it_can_land(self, outcome: CycleOutcome) -> bool:
        if outcome.opened.slices or outcome.deferred:
            return outcome.kept
        try:
            self._start()
        except LakecommitError:
            return False
        return True

    def has_begun(self) -> bool:
        """Return True if a later run has begun."""
        if self._run is None or self._read_from is None or self.found:
            return bool(self.found)
        partition, offset = self._read_from
        try:
            cycles, end = cycles_since(self._session, partition, offset)
        except LakecommitError:
            return False
        if end < offset:
            self._run = replace(self._run, turn=turn_at(end))
        self._read_from = partition, end
        if (successor := successor_of(cycles, self._run)) is not None:
            self.found = successor
            self._log(f"run {successor} continues from here: this run opens no more windows")
        return bool(self.found)
