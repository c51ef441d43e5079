# SPDX-License-Identifier: Apache-2.0
"""The wait of a sensor that has work to do at its end: handed to a worker instead of ended in the triggerer.

Airflow calls no `on_success_callback` or `on_skipped_callback` of a task that ends in the triggerer, and sends no event
of its outlets, so the sensor's `execute_complete` finishes the task.
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
    """The same wait, finished by a worker."""

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Commits]) -> AsyncIterator[TriggerEvent]:
        """Yield at most one event; its payload is the name of the task's final state."""
        async for event in super().filter_shared_stream(shared_stream):
            if isinstance(event, BaseTaskEndEvent):
                yield TriggerEvent(event.task_instance_state.value)  # type: ignore[no-untyped-call]
            else:
                yield event
