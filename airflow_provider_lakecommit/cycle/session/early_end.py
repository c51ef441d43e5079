# SPDX-License-Identifier: Apache-2.0
"""Ending work early without losing what was read: tasks are asked in the control log to end behind the record in hand.

Contract: :func:`end_job` and :func:`end_cycle` send one record, which the tasks that are meant see within two seconds,
on any engine; each reports what it has as a slice of its own and ends. A cycle that was ended is for no attempt any
more: what it lacks is planned by later ones. :meth:`EarlyEnd.request` may be called by a signal handler: it only wakes
a thread that waits since before.

Failure story: where the control topic cannot be written nobody could report either, so that the work is given up at
once; so is what has not ended after the grace. What is reported by then counts in any case.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Protocol
from uuid import UUID, uuid4

from airflow_provider_lakecommit.control import Sender
from airflow_provider_lakecommit.core import transactional_id
from airflow_provider_lakecommit.cycle.session.ports import ControlPort, SlotHolder
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.spark import WindowJob

__all__ = ["CyclePlace", "EarlyEnd", "end_cycle", "end_job"]

ROLE = "end"


class _SlotOfCycle(SlotHolder, Protocol):
    @property
    def commit_id(self) -> UUID: ...


class CyclePlace(_SlotOfCycle, Protocol):
    """Where a cycle is in the control log."""

    @property
    def lane(self) -> str: ...
    @property
    def partition(self) -> int: ...


def end_cycle(control: ControlPort, landing: Landing, cycle: CyclePlace, reason: str) -> None:
    """Ask all tasks of a cycle to end behind the record in hand; no attempt goes on with it.

    :param reason: by whom and why, for logs and the notes of runs
    :raises ControlTopicError: it cannot be said
    """
    _say(control, landing, cycle, cycle.lane, cycle.partition, None, reason)


def end_job(control: ControlPort, job: WindowJob, reason: str) -> None:
    """Ask the tasks of one job to end behind the record in hand. Those of another attempt at its group are not meant.

    :param reason: why, for logs
    :raises ControlTopicError: it cannot be said
    """
    _say(control, job.landing, job, job.plan.lane, job.control_partition, job, reason)


def _say(
    control: ControlPort,
    landing: Landing,
    whose: _SlotOfCycle,
    lane: str,
    partition: int,
    job: WindowJob | None,
    reason: str,
) -> None:
    sender = Sender(
        landing=landing.name, lane=lane, role=ROLE, commit_id=whose.commit_id, form=landing.connections.control_events
    )
    record = sender.end_asked(uuid4(), datetime.now(UTC), job=None if job is None else job.job_id, reason=reason)
    role = ROLE if job is None else f"{ROLE}-{job.group}{f'-{job.replica}' if job.replica else ''}"
    who = transactional_id(landing.name, lane, whose.deployment, whose.slot, role)
    with control.writer(who, partition) as writer:
        writer.send([(record.key, record.value, record.headers)])


class EarlyEnd:
    """A thread that ends work when it is requested.

    :param ask: asks those that are under way, with the reason
    :param give_up: ends what still is, after the grace
    """

    def __init__(self, ask: Callable[[str], None], give_up: Callable[[], None]) -> None:
        self._ask, self._give_up = ask, give_up
        # Its `put` is the one way to wake a thread that a signal handler may take at any moment.
        self._requests: SimpleQueue[tuple[str, float] | None] = SimpleQueue()
        threading.Thread(target=self._wait, name="lakecommit-early-end", daemon=True).start()

    def request(self, reason: str, grace: float) -> None:
        """End early; returns at once.

        :param grace: seconds that tasks have to report what they have read
        """
        self._requests.put((reason, grace))

    def close(self) -> None:
        """All is over: there is nothing to give up."""
        self._requests.put(None)

    def _wait(self) -> None:
        request = self._requests.get()
        with suppress(LakecommitError, Empty):
            while request is not None:
                reason, grace = request
                self._ask(reason)
                request = self._requests.get(timeout=grace)
            return
        self._give_up()
