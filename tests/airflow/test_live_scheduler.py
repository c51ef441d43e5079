# SPDX-License-Identifier: Apache-2.0
"""A real scheduler, Dag processor and API server run landings: states, asset events, a cleared run, a killed task."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.airflow.gated import GATED
from tests.airflow.live import RUN_SECONDS, Live, orders, until, until_its_job_has_ended

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

Produce = Callable[..., list[tuple[int, int]]]


@pytest.mark.heavy
def test_a_scheduled_landing_starts_its_consumers_once_per_snapshot_and_a_cleared_run_does_nothing(
    live: Live, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(2)
    live.declare("followed", topic)
    produce(topic, orders(*range(10)), 0)
    produce(topic, orders(*range(10, 15)), 1)

    state, tasks = live.run("followed", "first")
    assert tasks == {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
    assert state == "success"
    assert live.lake.ids("shop.followed") == list(range(15))
    until("the run that follows the asset", lambda: live.runs("followed_downstream") == ["success"])

    head = live.lake.head("shop.followed")
    state, tasks = live.run("followed", "idle")
    assert tasks == {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}
    assert state == "success"

    produce(topic, orders(15), 0)
    live.client.clear("followed", "first")
    until("the cleared run's begin", lambda: live.states("followed", "first")["plan"] != "success")
    assert live.client.await_run("followed", "first", RUN_SECONDS) == "success"
    tasks = live.states("followed", "first")
    assert tasks["plan"] == "success"
    assert tasks["commit"] == tasks["outcome"] == "skipped"
    assert "was closed at offset" in live.log("followed", "first", "plan")
    assert live.lake.head("shop.followed") == head
    assert live.runs("followed_downstream") == ["success"]


@pytest.mark.heavy
def test_a_task_that_is_killed_reports_what_is_saved_and_the_next_run_lands_the_rest_once(
    live: Live, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.faults("killed")
    live.declare("killed", topic, slice_records=1, options={"spark_conf": GATED})
    produce(topic, orders(*range(6)))
    # One for each of the two tasks that run at once: the job stands with two slices done.
    held = ("write.2", "write.3")
    for place in held:
        faults.hold(place)
    live.client.trigger("killed", "broken")
    for offset in (0, 1):
        done = f"{topic}[0][{offset}, {offset + 1}): done in"
        until(f"slice {offset}", lambda done=done: done in live.log("killed", "broken", "write"))
    until("both tasks at their places", lambda: all(faults.reached(place) for place in held))
    live.client.mark_task("killed", "broken", "land.write/0", "failed")
    assert live.client.await_run("killed", "broken", RUN_SECONDS) == "failed"
    tasks = live.states("killed", "broken")
    assert tasks == {"plan": "success", "write[0]": "failed", "commit": "success", "outcome": "failed"}
    assert live.lake.ids("shop.killed") == [0, 1]
    until("the end of its writer", lambda: "offsets will be read again: " in live.log("killed", "broken", "write"))
    log = live.log("killed", "broken", "write")
    assert "stopped; requested the end of its Spark jobs" in log
    assert re.search(r"are reported and will not be read again; 4 offsets will be read again: ", log)
    until_its_job_has_ended("killed")
    for place in held:
        faults.let_go(place)

    state, tasks = live.run("killed", "mended")
    assert state == "success"
    assert live.lake.ids("shop.killed") == list(range(6))
