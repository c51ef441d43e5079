# SPDX-License-Identifier: Apache-2.0
"""Parts of a live Airflow that are killed in the middle of a window, and what finds its work then.

Each test is a row of ``docs/project/adoption.rst``.
"""

from __future__ import annotations

import datetime
import os
import signal
from collections.abc import Callable, Iterator

import pytest

from dev.airflow_stack import WITH_TRIGGERER
from dev.processes import Process, kill_all, living
from tests.airflow.faults import Faults
from tests.airflow.live import RUN_SECONDS, Live, live_airflow, orders, until
from tests.support.coordinator import Coordinator, write_guard

pytestmark = [pytest.mark.airflow, pytest.mark.airflow_long, pytest.mark.integration]

Produce = Callable[..., list[tuple[int, int]]]
Make = Callable[..., str]

GREEN = {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
SOON = {
    # After that long without a sign of life a task, or a part, is given up.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "15",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "15",
}
AGAIN = {"default_args": {"retries": 2, "retry_delay": datetime.timedelta(seconds=0)}}


@pytest.fixture(scope="module")
def live(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_airflow(tmp_path_factory.mktemp("live-deaths"), bootstrap, WITH_TRIGGERER, SOON) as running:
        yield running


@pytest.fixture
def begin(live: Live, make_topic: Make, produce: Produce) -> Callable[[str], Faults]:
    """`begin(name)`: a run that has reported its first slice of three and holds before the second."""

    def make(name: str) -> Faults:
        topic = make_topic(1)
        faults = live.armed(name, topic, options=AGAIN, slice_records=2)
        produce(topic, orders(*range(6)))
        faults.hold("write.2")
        live.client.trigger(name, "a")
        until("the second slice", lambda: faults.reached("write.2"))
        return faults

    return make


def jobs_of(name: str) -> list[Process]:
    """Its stand-ins for spark-submit that live."""
    return [
        p for p in living().values() if "tests.airflow.stand_in" in p.command and f"lakecommit-{name}-" in p.command
    ]


def check(live: Live, name: str, *, retried: bool = True) -> None:
    """All is there once, and a further attempt did only what was not reported."""
    assert live.ended(name, "a") == ("success", GREEN)
    assert live.lake.ids(f"shop.{name}") == list(range(6))
    assert ("2 slices to do, 1 are already reported" in live.log(name, "a", "write")) == retried


def test_a_scheduler_that_dies_with_all_its_workers_is_followed_by_one_whose_retry_does_the_rest(
    live: Live, begin: Callable[[str], Faults]
) -> None:
    faults = begin("machine")
    ran = live.airflow.kill("scheduler")
    kill_all(jobs_of("machine"))
    assert ran, "the scheduler ran no task"
    faults.let_go("write.2")
    live.airflow.start()
    check(live, "machine")


def test_a_scheduler_that_dies_alone_is_followed_by_one_that_finds_its_tasks_at_work(
    live: Live, begin: Callable[[str], Faults]
) -> None:
    faults = begin("lonely")
    left = live.airflow.kill("scheduler", alone=True)
    try:
        live.airflow.start()
        faults.let_go("write.2")
        check(live, "lonely", retried=False)
    finally:
        kill_all(left)


def test_a_write_task_that_dies_while_its_job_lives_is_followed_by_one_next_to_it_and_nothing_doubles(
    live: Live, begin: Callable[[str], Faults]
) -> None:
    faults = begin("orphan")
    [job] = jobs_of("orphan")
    os.kill(job.parent, signal.SIGKILL)
    until("the next attempt's job", lambda: len(jobs_of("orphan")) == 2)
    faults.let_go("write.2")
    check(live, "orphan")


def test_a_triggerer_that_dies_is_followed_by_one_that_goes_on_waiting(
    live: Live, bootstrap: str, make_topic: Make
) -> None:
    connector = Coordinator(bootstrap, make_topic(1))
    last = connector.stall()
    known = {"control_topic": connector.topic, "control_group_id": connector.group}
    write_guard(live.folder, "guard", **known, on_stall="wait")
    live.client.await_dag("guard", RUN_SECONDS)
    live.client.trigger("guard", "stalled")
    live.await_state("guard", "stalled", "guard", "deferred")
    live.airflow.kill("triggerer")
    connector.complete(last)
    live.airflow.start()
    assert live.ended("guard", "stalled") == ("success", {"guard": "success", "work": "success"})
