# SPDX-License-Identifier: Apache-2.0
"""The least that a trigger can be which ends its task: what it costs is what Airflow itself takes for any of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent


class MomentTrigger(BaseTrigger):
    """Ends its task with success at a moment, in seconds of the epoch."""

    def __init__(self, moment: float) -> None:
        super().__init__()
        self.moment = moment

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Where it is, and what to make it of."""
        return f"{__name__}.{type(self).__name__}", {"moment": self.moment}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event."""
        await asyncio.sleep(self.moment - time.time())
        yield TaskSuccessEvent()
