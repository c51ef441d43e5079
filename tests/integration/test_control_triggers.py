# SPDX-License-Identifier: Apache-2.0
"""Triggers on control topics through Airflow's own shared streams, on the real broker."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import structlog
from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamManager

from airflow_provider_lakecommit.exceptions import ControlTopicError
from airflow_provider_lakecommit.stall import watch as commit_watch
from airflow_provider_lakecommit.stall.guard import Guard
from airflow_provider_lakecommit.stall.watch import CommitWatch, WatchedTopic, commits_of
from airflow_provider_lakecommit.triggers.commit_state import CommitStateTrigger
from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger, guard_to_json
from dev.servers.kafka import Broker
from tests.support.coordinator import Coordinator

pytestmark = pytest.mark.integration

PATIENCE = 600.0


@pytest.fixture(autouse=True)
def kafka(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": bootstrap}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))


@pytest.fixture
def watches(monkeypatch: pytest.MonkeyPatch) -> list[CommitWatch]:
    """All watches that were made."""
    made: list[CommitWatch] = []

    class Counted(CommitWatch):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            made.append(self)

    monkeypatch.setattr(commit_watch, "CommitWatch", Counted)
    return made


class Triggerer:
    """Runs triggers as Airflow's triggerer does."""

    def __init__(self) -> None:
        self._manager = SharedStreamManager(log=structlog.get_logger())
        self._ids = iter(range(1, 10_000))

    def begin(self, trigger: BaseEventTrigger) -> asyncio.Task[list[TriggerEvent]]:
        return asyncio.create_task(self._run(next(self._ids), trigger))

    async def _run(self, number: int, trigger: BaseEventTrigger) -> list[TriggerEvent]:
        key = trigger.shared_stream_key()
        assert key is not None
        stream = self._manager.subscribe(trigger_id=number, trigger=trigger, key=key)
        try:
            return [event async for event in trigger.filter_shared_stream(stream)]
        finally:
            await self._manager.unsubscribe(number, key)

    async def stop(self) -> None:
        await self._manager.stop_all()


def waits(connector: Coordinator, group: str | None = None, **options: Any) -> StalledCommitTrigger:
    values = {"guard": guard_to_json(Guard()), "deadline": time.time() + 3600, "jitter": 0.2, **options}
    return StalledCommitTrigger(control_topic=connector.topic, control_group_id=group or connector.group, **values)


@pytest.mark.heavy
def test_all_that_wait_on_a_topic_share_one_watch_and_late_ones_know_as_much(
    bootstrap: str, make_topic: Callable[..., str], watches: list[CommitWatch]
) -> None:
    topics = [make_topic(2) for _ in range(2)]
    connectors = [Coordinator(bootstrap, topic, f"connect-{n}") for topic in topics for n in range(3)]
    lasts = {c: c.stall() for c in connectors}

    async def scene() -> None:
        triggerer = Triggerer()
        tasks = {c: [triggerer.begin(waits(c, jitter=0.5)) for _ in range(20)] for c in connectors}
        back, *others = connectors
        back.complete(lasts[back])
        await asyncio.wait_for(asyncio.gather(*tasks[back]), PATIENCE)
        assert [[event.payload for event in task.result()] for task in tasks[back]] == [["success"]] * 20
        late = triggerer.begin(waits(back))
        assert [event.payload for event in await asyncio.wait_for(late, PATIENCE)] == ["success"]
        assert not any(task.done() for c in others for task in tasks[c])
        for c in others:
            c.complete(lasts[c])
        await asyncio.wait_for(asyncio.gather(*(task for c in others for task in tasks[c])), PATIENCE)
        await triggerer.stop()

    asyncio.run(scene())
    assert len(watches) == 2


@pytest.mark.heavy
def test_brokers_that_go_away_release_and_fail_no_waiter(
    broker: Broker, make_topic: Callable[..., str], watches: list[CommitWatch]
) -> None:
    connector = Coordinator(broker.bootstrap, make_topic(1))
    last = connector.stall()

    async def scene() -> None:
        triggerer = Triggerer()
        waiting, ends = triggerer.begin(waits(connector)), triggerer.begin(waits(connector, deadline=time.time() + 12))
        stream = StalledCommitTrigger.open_shared_stream(waits(connector).serialize()[1])
        async with aclosing(stream):
            await _seen(stream, lambda c: c.groups is not None)
            await asyncio.to_thread(broker.stop)
            try:
                await _seen(stream, lambda c: c.trouble is not None)
                [event] = await asyncio.wait_for(ends, PATIENCE)
                assert event.payload["how"] == "timed_out"
            finally:
                await asyncio.to_thread(broker.start)
            await _seen(stream, lambda c: c.trouble is None)
        assert not waiting.done()
        await asyncio.to_thread(connector.complete, last)
        assert [event.payload for event in await asyncio.wait_for(waiting, PATIENCE)] == ["success"]
        await triggerer.stop()

    asyncio.run(scene())


async def _seen(stream: AsyncIterator[Any], holds: Callable[[Any], bool]) -> None:
    async def look() -> None:
        async for commits in stream:
            if holds(commits):
                return

    await asyncio.wait_for(look(), PATIENCE)


@pytest.mark.heavy
def test_a_topic_that_is_made_later_is_waited_for(bootstrap: str, make_topic: Callable[..., str]) -> None:
    missing = Coordinator(bootstrap, "never-made-control")

    async def scene() -> None:
        triggerer = Triggerer()
        [event] = await asyncio.wait_for(triggerer.begin(waits(missing, deadline=time.time())), PATIENCE)
        assert event.payload["how"] == "timed_out"
        assert "never-made-control" in event.payload["reason"]
        await triggerer.stop()

    asyncio.run(scene())


class Store:
    """What Airflow keeps for an asset."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    async def aget(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    async def aset(self, key: str, value: Any) -> None:
        self.values[key] = value


def test_each_transition_is_reported_once_also_by_a_triggerer_that_starts_anew(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    connector, store = Coordinator(bootstrap, make_topic(2)), Store()
    connector.healthy()

    async def told(number: int, act: Callable[[], Any]) -> list[tuple[str, str]]:
        """What a fresh trigger tells, up to so many events."""
        trigger = CommitStateTrigger(control_topic=connector.topic, control_group_id=connector.group)
        trigger.asset_state_store = store  # type: ignore[assignment]
        found: list[tuple[str, str]] = []

        async def run() -> None:
            async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
                async for event in events:
                    found.append((event.payload["before"], event.payload["state"]))

        task = asyncio.create_task(run())
        while not store.values:
            await asyncio.sleep(0.1)
        await asyncio.to_thread(act)
        end = time.monotonic() + PATIENCE
        while len(found) < number or store.values != {trigger._key: found[-1][1]}:
            assert time.monotonic() < end
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    def stall() -> None:
        last = [connector.start() for _ in range(3)][-1]
        stalls.append(last)

    stalls: list[Any] = []
    assert asyncio.run(told(1, stall)) == [("recovered", "stalled")]
    assert asyncio.run(told(1, lambda: connector.complete(stalls[-1]))) == [("stalled", "recovered")]


def test_brokers_that_do_not_answer_are_an_error_of_a_single_check() -> None:
    with pytest.raises(ControlTopicError, match=r"127\.0\.0\.1:1.*LC2011"):
        commits_of(
            {"bootstrap.servers": "127.0.0.1:1"}, WatchedTopic(topic="c", completion_timeout=1.0), "g", timeout=1.0
        )


PROGRAM = """
import asyncio, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"pyspark", "py4j", "pyarrow", "pyiceberg", "pandas"}:
            raise ModuleNotFoundError(f"No module named {name!r} (blocked by the test)", name=name)

sys.meta_path.insert(0, Blocker())
topic = sys.argv[1]
from airflow_provider_lakecommit.sensors.stalled_commits import StalledCommitSensor
from airflow_provider_lakecommit.triggers.stalled_commits import StalledCommitTrigger, guard_to_json

sensor = StalledCommitSensor(task_id="guard", control_topic=topic, control_group_id="connect-orders", on_stall="wait")
ruling, target = sensor._ruling()

async def first():
    trigger = StalledCommitTrigger(
        control_topic=topic, control_group_id=target.group, guard=guard_to_json(target.guard), deadline=0, jitter=0
    )
    return await anext(trigger.run())

print(ruling.verdict, asyncio.run(first()).payload["how"])
"""


def test_a_connector_is_guarded_without_spark_and_without_arrow(
    bootstrap: str, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    connector = Coordinator(bootstrap, make_topic(2))
    connector.stall()
    command = [sys.executable, "-c", PROGRAM, connector.topic]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines()[-1] == "stalled timed_out"
