# SPDX-License-Identifier: Apache-2.0
"""Reports when commits of a group stall and when they recover: one event per transition.

For an `AssetWatcher`, whose asset then starts the DAG that pages, pauses or restarts. Airflow's asset store keeps the
last reported state, so a restarted triggerer reports nothing twice, unless it died between a report and the store.
*Slowing* and *unknown* change nothing. While brokers are unreachable nothing is reported, and the backlog is read
before a new verdict.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_provider_lakecommit.stall import CALM, Guard, StallRules, Verdict
from airflow_provider_lakecommit.triggers.control_topic import ControlTopicTrigger

if TYPE_CHECKING:
    from airflow_provider_lakecommit.stall import Commits

__all__ = ["RECOVERED", "CommitStateTrigger"]

RECOVERED = "recovered"
ALARMS = frozenset(Verdict) - CALM


class CommitStateTrigger(ControlTopicTrigger):
    """Fires when the verdict on a group becomes an alarm, another alarm, or healthy again.

    The payload has ``group``, ``state`` (the verdict, or `recovered`), ``before``, ``reason``, ``clears``.

    :param control_topic: the topic
    :param control_group_id: the group: `lakecommit-<name>` of a landing, `connect-<name>` of a connector
    :param kafka_config_id: connection of type `kafka`
    :param alarms: reported verdicts; by default dead, stalled, split, losing and blocked
    :param stalled_cycles: number of consecutive incomplete or failed cycles that make a stall
    :param interval: seconds between two cycles of a connector, if known
    """

    def __init__(
        self,
        *,
        control_group_id: str,
        alarms: Collection[str] | None = None,
        stalled_cycles: int = 3,
        interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.control_group_id = control_group_id
        self.alarms = sorted(Verdict(v) for v in alarms) if alarms is not None else sorted(ALARMS)
        self.stalled_cycles = stalled_cycles
        self.interval = interval

    def more(self) -> dict[str, Any]:
        return {
            "control_group_id": self.control_group_id,
            "alarms": [str(v) for v in self.alarms],
            "stalled_cycles": self.stalled_cycles,
            "interval": self.interval,
        }

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Commits]) -> AsyncIterator[TriggerEvent]:
        """Yield one event per transition, indefinitely."""
        guard = Guard(rules=StallRules(stalled_cycles=self.stalled_cycles, interval=self.interval))
        reported = await self._recall()
        async for commits in shared_stream:
            if commits.groups is None or commits.trouble is not None:
                continue
            ruling = commits.ruling(self.control_group_id, guard)
            state = self._state(ruling.verdict)
            if state is None or state == reported:
                continue
            if reported is not None or state != RECOVERED:
                self.log.info("%s: %s", self.control_group_id, ruling)
                payload = {"group": self.control_group_id, "state": state, "before": reported}
                yield TriggerEvent({**payload, "reason": ruling.reason, "clears": ruling.clears})  # type: ignore[no-untyped-call]
            reported = state
            await self._keep(state)

    def _state(self, verdict: str) -> str | None:
        if verdict in self.alarms:
            return verdict
        return RECOVERED if verdict == Verdict.HEALTHY else None

    @property
    def _key(self) -> str:
        return f"lakecommit/{self.control_topic}/{self.control_group_id}"

    async def _recall(self) -> str | None:
        """Return the last reported state; ``None`` without a store, as outside of a watcher."""
        if self.asset_state_store is None:
            return None
        try:
            found = await self.asset_state_store.aget(self._key)
        except Exception as e:
            self.log.warning("the last reported state is unknown: %s", e)
            return None
        return found if isinstance(found, str) else None

    async def _keep(self, state: str) -> None:
        if self.asset_state_store is None:
            return
        try:
            await self.asset_state_store.aset(self._key, state)
        except Exception as e:
            self.log.warning("%s is reported but not stored: %s", state, e)
