# SPDX-License-Identifier: Apache-2.0
"""End work early without losing what was read: control records ask tasks to end after the current record.

Contract: :func:`end_job` and :func:`end_cycle` send one record, which the addressed tasks see within two seconds, on
any engine; each reports its progress as a slice of its own and ends. No attempt continues a cycle that was ended: later
cycles plan the rest. Signal handlers may call :meth:`EarlyEnd.request`: it only wakes a waiting thread.

Failure story: if the control topic is not writable, tasks could not report either, so the work is given up at once; so
is work that has not ended after the grace. Slices reported by then count in any case.
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

ROLE = "end"


class CyclePlace(SlotHolder, Protocol):
    """The position of a cycle in the control topic."""

    @property
    def commit_id(self) -> UUID: ...
    @property
    def lane(self) -> str: ...
    @property
    def partition(self) -> int: ...


def end_cycle(control: ControlPort, landing: Landing, cycle: CyclePlace, reason: str) -> None:
    """Ask all tasks of a cycle to end after the current record; no attempt continues it.

    :param reason: user and reason, for logs and the notes of runs
    :raises ControlTopicError: the record cannot be sent
    """
    writer_id = transactional_id(landing.name, cycle.lane, cycle.deployment, cycle.slot, ROLE)
    _send_request(control, cycle.partition, writer_id, _sender(landing, cycle.lane, cycle.commit_id), None, reason)


def end_job(control: ControlPort, job: WindowJob, reason: str) -> None:
    """Ask the tasks of one job to end after the current record. Other attempts at its group are not affected.

    :param reason: for logs
    :raises ControlTopicError: the record cannot be sent
    """
    role, lane = f"{ROLE}-{job.group}{f'-{job.replica}' if job.replica else ''}", job.plan.lane
    writer_id = transactional_id(job.landing.name, lane, job.deployment, job.slot, role)
    sender = _sender(job.landing, lane, job.commit_id)
    _send_request(control, job.control_partition, writer_id, sender, job.job_id, reason)


def _sender(landing: Landing, lane: str, commit_id: UUID) -> Sender:
    form = landing.connections.control_events
    return Sender(landing=landing.name, lane=lane, role=ROLE, commit_id=commit_id, form=form)


def _send_request(
    control: ControlPort, partition: int, writer_id: str, sender: Sender, job: UUID | None, reason: str
) -> None:
    record = sender.end_request(uuid4(), datetime.now(UTC), job=job, reason=reason)
    with control.writer(writer_id, partition) as writer:
        writer.send([record])


class EarlyEnd:
    """A thread that ends work on request.

    :param request_end: asks running tasks to end, with the reason
    :param give_up: ends those that still run, after the grace
    """

    def __init__(self, request_end: Callable[[str], None], give_up: Callable[[], None]) -> None:
        self._request_end, self._give_up = request_end, give_up
        # Its `put` is the one safe way to wake a thread from a signal handler.
        self._requests: SimpleQueue[tuple[str, float] | None] = SimpleQueue()
        threading.Thread(target=self._wait, name="lakecommit-early-end", daemon=True).start()

    def request(self, reason: str, grace: float) -> None:
        """End early; returns at once.

        :param grace: seconds for tasks to report what they have read
        """
        self._requests.put((reason, grace))

    def close(self) -> None:
        """Stop the thread: all work is over."""
        self._requests.put(None)

    def _wait(self) -> None:
        request = self._requests.get()
        with suppress(LakecommitError, Empty):
            while request is not None:
                reason, grace = request
                self._request_end(reason)
                request = self._requests.get(timeout=grace)
            return
        self._give_up()
