# SPDX-License-Identifier: Apache-2.0
"""Starts a landing when its backlog is large enough: rows, bytes, or the age of the oldest record.

For an `AssetWatcher`: one event when a limit is reached; the next one after the backlog was below all limits, after a
plan has taken some of it, or after ``again`` seconds, in case the run did nothing. Planned records do not count, even
if they are not landed yet or a table was rolled back to before them: no table is read. Unreachable brokers and missing
topics are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_lakecommit.core import BacklogLimits
from airflow_provider_lakecommit.exceptions import LakecommitError, SpecError
from airflow_provider_lakecommit.landing import Landing, seconds_of

if TYPE_CHECKING:
    from airflow_provider_lakecommit.control import BacklogWatch
    from airflow_provider_lakecommit.core import Backlog

__all__ = ["BacklogTrigger"]


class BacklogTrigger(BaseEventTrigger):
    """Fires when a landing's backlog reaches a limit. At least one limit is needed.

    :param landing: the landing, or its name with ``topics``
    :param topics: topics of a landing that is given by its name
    :param control_topic: its control topic; by default that of `[lakecommit]`
    :param kafka_config_id: connection of type `kafka`; by default that of the landing
    :param rows: unplanned records
    :param bytes: their estimated bytes
    :param age: time since the oldest of them was written: seconds, a timedelta, or a text such as ``1h30m``
    :param interval: time between two checks
    :param again: time after which the same backlog is reported again
    """

    def __init__(
        self,
        *,
        landing: Landing | str,
        topics: list[str] | None = None,
        control_topic: str | None = None,
        kafka_config_id: str | None = None,
        rows: int | None = None,
        bytes: int | None = None,
        age: float | str | timedelta | None = None,
        interval: float | str | timedelta = 10.0,
        again: float | str | timedelta = 300.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        declared = landing if isinstance(landing, Landing) else None
        self.landing = landing.name if isinstance(landing, Landing) else landing
        self.topics = list(declared.topic_names) if declared else list(topics or ())
        self.control_topic = control_topic or (declared.connections.control_topic if declared else None)
        self.kafka_config_id = kafka_config_id or (declared.connections.kafka if declared else "kafka_default")
        oldest = None if age is None else seconds_of(age, "age")
        self.limits = BacklogLimits(rows=rows, bytes=bytes, age=oldest)
        self.interval = seconds_of(interval, "interval")
        self.again = seconds_of(again, "again")
        if not self.topics:
            raise SpecError(
                "LC8708", f"a backlog of landing {self.landing!r}: give `topics` too, because only its name is given"
            )
        if self.limits == BacklogLimits():
            raise SpecError("LC8709", f"a backlog of landing {self.landing!r}: give one of `rows`, `bytes` and `age`")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.BacklogTrigger", {
            "landing": self.landing,
            "topics": self.topics,
            "control_topic": self.control_topic,
            "kafka_config_id": self.kafka_config_id,
            "rows": self.limits.rows,
            "bytes": self.limits.bytes,
            "age": self.limits.age,
            "interval": self.interval,
            "again": self.again,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        loop = asyncio.get_running_loop()
        pool = ThreadPoolExecutor(1, thread_name_prefix=f"lakecommit-backlog-{self.landing}")
        reader, last = _Reader(self), _LastEvent(again=self.again)
        try:
            while True:
                backlog = await loop.run_in_executor(pool, reader.read)
                reached = self.limits.reached(backlog) if backlog is not None else []
                if backlog is not None and last.is_news(backlog, reached, time.monotonic()):
                    self.log.info("landing %s: %s are not planned yet", self.landing, "; ".join(reached))
                    yield TriggerEvent({"landing": self.landing, "reached": reached})  # type: ignore[no-untyped-call]
                await asyncio.sleep(self.interval)
        finally:
            pool.submit(reader.close)
            pool.shutdown(wait=False)


class _LastEvent:
    def __init__(self, *, again: float) -> None:
        self._again = again
        self._at: float | None = None
        self._planned = 0

    def is_news(self, backlog: Backlog, reached: list[str], now: float) -> bool:
        if not reached:
            self._at = None
            return False
        if self._at is not None and backlog.planned == self._planned and now - self._at < self._again:
            return False
        self._at, self._planned = now, backlog.planned
        return True


class _Reader:
    def __init__(self, trigger: BacklogTrigger) -> None:
        self._trigger = trigger
        self._watch: BacklogWatch | None = None

    def read(self) -> Backlog | None:
        try:
            if self._watch is None:
                self._watch = self._made()
            return self._watch.read()
        except LakecommitError as e:
            self._trigger.log.warning("landing %s: cannot read its backlog: %s", self._trigger.landing, e)
            self.close()
            return None

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _made(self) -> BacklogWatch:
        from airflow_provider_lakecommit.control import BacklogWatch
        from airflow_provider_lakecommit.hooks import Settings, kafka_settings

        t = self._trigger
        topic = t.control_topic or Settings.read().control_topic
        return BacklogWatch(t.landing, tuple(t.topics), topic, kafka_settings(t.kafka_config_id))
