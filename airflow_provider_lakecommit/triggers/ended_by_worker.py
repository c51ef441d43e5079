# SPDX-License-Identifier: Apache-2.0
"""The wait of a sensor that has something to do when it ends: handed to a worker instead of ended in the triggerer.

Contract: ends when :class:`~airflow_provider_lakecommit.triggers.stalled_commits.StalledCommitTrigger` ends. What that
one ends by itself is handed to the sensor's `execute_complete`, because Airflow calls no `on_success_callback` or
`on_skipped_callback` of a task that ends in the triggerer, and tells of none of its outlets. It takes a worker for a
moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from airflow.triggers.base import BaseTaskEndEvent, TriggerEvent

from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger

if TYPE_CHECKING:
    from airflow_provider_lakecommit.stall import Commits

__all__ = ["EndedByWorkerTrigger"]


class EndedByWorkerTrigger(StalledCommitTrigger):
    """The same wait, ended by a worker."""

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Commits]) -> AsyncIterator[TriggerEvent]:
        """One event at most; what would end the task is the name of its state."""
        async for event in super().filter_shared_stream(shared_stream):
            if isinstance(event, BaseTaskEndEvent):
                yield TriggerEvent(event.task_instance_state.value)  # type: ignore[no-untyped-call]
            else:
                yield event
