# SPDX-License-Identifier: Apache-2.0
"""Common base of the triggers on a control topic: one consumer for all of them in a triggerer.

Triggers with an equal key share one stream (Airflow's shared streams). It carries the state of all groups, about once a
second while cycles start and end and every five seconds otherwise, so late subscribers know as much as the first. The
stream's own thread reads and folds: nothing blocks the triggerer's loop. An error in the stream would fail all
subscribers, so unreachable brokers and a missing topic are reported as trouble, and tried again. Only errors that a
user must fix, like a missing connection, are raised.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

if TYPE_CHECKING:
    from airflow_provider_lakecommit.stall import Commits, CommitWatch

COMPLETION_SECONDS = 3600.0
"""Default of a landing's ``completion_timeout``."""


class ControlTopicTrigger(BaseEventTrigger):
    """Base of the triggers on a control topic.

    :param control_topic: the topic
    :param kafka_config_id: connection of type `kafka`
    :param completion_timeout: seconds after which an open cycle of a landing has failed
    :param since: start with records of that age, in seconds; by default with the first record
    """

    def __init__(
        self,
        *,
        control_topic: str,
        kafka_config_id: str = "kafka_default",
        completion_timeout: float = COMPLETION_SECONDS,
        since: float | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.control_topic = control_topic
        self.kafka_config_id = kafka_config_id
        self.completion_timeout = completion_timeout
        self.since = since

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {
            "control_topic": self.control_topic,
            "kafka_config_id": self.kafka_config_id,
            "completion_timeout": self.completion_timeout,
            "since": self.since,
            **self.more(),
        }

    def more(self) -> dict[str, Any]:
        return {}

    def shared_stream_key(self) -> Hashable:
        """Return the key of triggers that read the same in the same way."""
        return ("lakecommit", self.kafka_config_id, self.control_topic, self.completion_timeout, self.since)

    @classmethod
    async def open_shared_stream(cls, kwargs: dict[str, Any]) -> AsyncGenerator[Commits, None]:
        """Yield the states of all groups, indefinitely."""
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"lakecommit-{kwargs['control_topic']}")
        try:
            # Import outside of the loop.
            watch = await loop.run_in_executor(pool, _watch, kwargs)
            try:
                while True:
                    commits = await loop.run_in_executor(pool, watch.read)
                    if commits is not None:
                        yield commits
            finally:
                # After a running read; it is not awaited.
                pool.submit(watch.close)
        finally:
            pool.shutdown(wait=False)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Run with a consumer of its own: for `dag.test()`."""
        async with aclosing(self.open_shared_stream(self.serialize()[1])) as stream:
            async for event in self.filter_shared_stream(stream):
                yield event


def _watch(kwargs: Mapping[str, Any]) -> CommitWatch:
    from airflow_provider_lakecommit.hooks import kafka_settings
    from airflow_provider_lakecommit.stall import CommitWatch, WatchedTopic

    watched_topic = WatchedTopic(
        topic=kwargs["control_topic"], completion_timeout=kwargs["completion_timeout"], since=kwargs["since"]
    )
    return CommitWatch(watched_topic, lambda: kafka_settings(kwargs["kafka_config_id"]))
