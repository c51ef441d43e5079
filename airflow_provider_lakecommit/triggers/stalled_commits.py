# SPDX-License-Identifier: Apache-2.0
"""Ends a sensor that waits until commits get through, in the triggerer, without a worker.

Success as soon as the guard passes, spread over ``jitter`` seconds, so that waiting tasks do not start at once. The
deadline is checked every five seconds, whatever the brokers do. A worker handles failures, because it knows the task's
retries and callbacks; a sensor that may skip instead is skipped here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from airflow_provider_lakecommit.stall import Guard, GuardAnswer, StallRules, Verdict
from airflow_provider_lakecommit.triggers.control_topic import ControlTopicTrigger

if TYPE_CHECKING:
    from airflow_provider_lakecommit.stall import Commits, Ruling

__all__ = ["FAILED", "TIMED_OUT", "StalledCommitTrigger", "guard_from_json", "guard_to_json"]

FAILED, TIMED_OUT = "failed", "timed_out"


_OF_RULES = ("landing", "stalled_cycles", "only_cycles", "interval")
_OF_GUARD = ("unknown_holds", "max_age", "fail_after", "waits_since")


def guard_to_json(guard: Guard) -> dict[str, Any]:
    rules = {name: getattr(guard.rules, name) for name in _OF_RULES}
    hold = sorted(v.value for v in guard.hold)
    return {**rules, "hold": hold, **{name: getattr(guard, name) for name in _OF_GUARD}}


def guard_from_json(values: Mapping[str, Any]) -> Guard:
    return Guard(
        rules=StallRules(**{name: values[name] for name in _OF_RULES}),
        hold=frozenset(Verdict(v) for v in values["hold"]),
        **{name: values[name] for name in _OF_GUARD},
    )


class StalledCommitTrigger(ControlTopicTrigger):
    """Waits until commits of a group get through.

    :param control_group_id: the group
    :param guard: from :func:`guard_to_json`
    :param deadline: seconds of the epoch
    :param jitter: seconds
    :param soft_fail: skip instead of failing
    """

    def __init__(
        self,
        *,
        control_group_id: str,
        guard: Mapping[str, Any],
        deadline: float,
        jitter: float,
        soft_fail: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.control_group_id = control_group_id
        self.guard = dict(guard)
        self.deadline = deadline
        self.jitter = jitter
        self.soft_fail = soft_fail
        self._guard = guard_from_json(guard)

    def more(self) -> dict[str, Any]:
        return {
            "control_group_id": self.control_group_id,
            "guard": self.guard,
            "deadline": self.deadline,
            "jitter": self.jitter,
            "soft_fail": self.soft_fail,
        }

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Commits]) -> AsyncIterator[TriggerEvent]:
        """Yield at most one event."""
        async for commits in shared_stream:
            now = time.time()
            ruling = self._ruling(commits)
            if ruling is not None and ruling.answer is GuardAnswer.GO:
                await asyncio.sleep(random.uniform(0, self.jitter))
                # Airflow logs that it fired; another line for each of thousands would delay them all.
                self.log.debug("%s: %s", self.control_group_id, ruling)
                yield TaskSuccessEvent()
                return
            how = FAILED if ruling is not None and ruling.answer is GuardAnswer.FAIL else None
            if how is None and now >= self.deadline:
                how = TIMED_OUT
            if how is not None:
                reason = str(ruling or commits.trouble or "the control topic has not been read to its end")
                self.log.info("%s %s: %s", self.control_group_id, how, reason)
                skips = self.soft_fail and how == TIMED_OUT
                yield TaskSkippedEvent() if skips else TriggerEvent({"how": how, "reason": reason})  # type: ignore[no-untyped-call]
                return

    def _ruling(self, commits: Commits) -> Ruling | None:
        """Return the ruling, ``None`` while brokers are unreachable: that is neither a stall nor a recovery."""
        if commits.groups is None or commits.trouble is not None:
            return None
        return commits.ruling(self.control_group_id, self._guard)
