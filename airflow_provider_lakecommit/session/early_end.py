# SPDX-License-Identifier: Apache-2.0
"""Ending work early without losing what was read: tasks are asked in the control log to end behind the record in hand.

Contract: :func:`ask_to_end` is one record, which the tasks of the cycle that are under way see within two seconds, on
any engine; each reports what it has as a slice of its own and ends. A *final* one is for all attempts: what the cycle
lacks then is planned by later ones. :meth:`EarlyEnd.request` may be called by a signal handler: it only wakes a thread
that waits since before.

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

from airflow_provider_lakecommit.core.identity import transactional_id
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.session.ports import ControlPort
from airflow_provider_lakecommit.wire.records import Sender

__all__ = ["EarlyEnd", "OpenCycle", "ask_to_end"]

ROLE = "end"


class OpenCycle(Protocol):
    """Where a cycle is in the control log."""

    @property
    def lane(self) -> str: ...
    @property
    def commit_id(self) -> UUID: ...
    @property
    def slot(self) -> int: ...
    @property
    def partition(self) -> int: ...
    @property
    def deployment(self) -> str: ...


def ask_to_end(
    control: ControlPort,
    landing: Landing,
    cycle: OpenCycle,
    reason: str,
    *,
    group: int | None = None,
    final: bool = False,
) -> int:
    """Ask the tasks of a cycle to end behind the record in hand; returns the offset of the record that says so.

    :param reason: by whom and why, for logs
    :param group: only those of this group
    :param final: no attempt goes on with the cycle
    :raises ControlTopicError: it cannot be said
    """
    sender = Sender(
        landing=landing.name, lane=cycle.lane, role=ROLE, commit_id=cycle.commit_id, form=landing.control_events
    )
    record = sender.end_asked(uuid4(), datetime.now(UTC), group=group, final=final, reason=reason)
    role = ROLE if group is None else f"{ROLE}-{group}"
    who = transactional_id(landing.name, cycle.lane, cycle.deployment, cycle.slot, role)
    with control.writer(who, cycle.partition) as writer:
        return writer.send([(record.key, record.value, record.headers)])[-1]


class EarlyEnd:
    """A thread that ends work when it is requested.

    :param ask: asks those that are under way, with the reason
    :param give_up: ends what still is
    :param grace: seconds between the two
    """

    def __init__(self, ask: Callable[[str], None], give_up: Callable[[], None], grace: float) -> None:
        self._ask, self._give_up, self._grace = ask, give_up, grace
        # Its `put` is the one way to wake a thread that a signal handler may take at any moment.
        self._requests: SimpleQueue[str | None] = SimpleQueue()
        threading.Thread(target=self._wait, name="lakecommit-early-end", daemon=True).start()

    def request(self, reason: str) -> None:
        """End early; returns at once."""
        self._requests.put(reason)

    def close(self) -> None:
        """All is over: there is nothing to give up."""
        self._requests.put(None)

    def _wait(self) -> None:
        reason = self._requests.get()
        with suppress(LakecommitError, Empty):
            while reason is not None:
                self._ask(reason)
                reason = self._requests.get(timeout=self._grace)
            return
        self._give_up()
