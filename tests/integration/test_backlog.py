# SPDX-License-Identifier: Apache-2.0
"""The backlog of a landing on the real broker, and the trigger that tells it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import aclosing, closing

import pytest

from airflow_provider_lakecommit.control.backlog_reader import BacklogWatch
from airflow_provider_lakecommit.triggers.backlog import BacklogTrigger
from tests.support.waiting import until
from tests.support.world import World, records

pytestmark = pytest.mark.integration

PATIENCE = 600.0


def watch(world: World) -> BacklogWatch:
    landing = world.landing
    return BacklogWatch(landing.name, landing.topic_names, landing.control_topic_name, world.kafka)


@pytest.mark.heavy
def test_what_no_plan_has_taken_up_is_the_backlog(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(partitions=2)
    hour_ago = int((time.time() - 3600) * 1000)
    with closing(watch(world)) as looks:
        assert (looks.read().rows, looks.read().age) == (0, None)
        produce(world.landing.topics, records(0, 50), 0, timestamp=hour_ago)
        produce(world.landing.topics, records(50, 30), 1)
        until(lambda: looks.read().age is not None)
        found = looks.read()
        assert found.rows == 80
        assert 3600 <= (found.age or 0) < 7200
        assert 80 * 5 < found.bytes < 80 * 1000

        world.run()
        assert (looks.read().rows, looks.read().age) == (0, None)
        produce(world.landing.topics, records(80, 7), 1)
        until(lambda: looks.read().rows == 7)


def test_a_trigger_reports_a_backlog_before_the_first_run_and_after_it(
    make_world: Callable[..., World], produce: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=1)
    kafka = {"conn_type": "kafka", "extra": dict(world.kafka)}
    monkeypatch.setenv(f"AIRFLOW_CONN_{world.landing.connections.kafka.upper()}", json.dumps(kafka))

    async def scene() -> None:
        trigger = BacklogTrigger(landing=world.landing, rows=20, interval=0.2, again=3600.0)
        async with aclosing(trigger.run()) as events:  # type: ignore[type-var]
            for number in range(2):
                await asyncio.to_thread(produce, world.landing.topics, records(20 * number, 20))
                event = await asyncio.wait_for(anext(events), PATIENCE)
                assert event.payload["reached"] == ["20 rows, at least 20"]
                await asyncio.to_thread(world.run)

    asyncio.run(scene())
