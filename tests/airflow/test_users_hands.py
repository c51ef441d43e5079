# SPDX-License-Identifier: Apache-2.0
"""What a user's hands do to runs in a live Airflow: Clear, Mark, Delete, the same run id again, retries, many runs.

Each test is one row, or some rows, of ``docs/operate/airflow_actions.rst``. Whatever is done: every record is in the
table exactly once in the end, no run hangs, and what a run did not do is not shown as done.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from tests.airflow.faults import Faults
from tests.airflow.live import Live, orders, until, until_its_job_has_ended

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

Produce = Callable[..., list[tuple[int, int]]]
Make = Callable[..., str]

GREEN = {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
IDLE = {"plan": "success", "write": "skipped", "commit": "skipped", "outcome": "skipped"}


def start(live: Live, dag: str, run: str, *, until_at: str, faults: Faults) -> None:
    """Trigger a run and wait until it is held at a place."""
    faults.hold(until_at)
    live.client.trigger(dag, run)
    until(f"{run} at {until_at}", lambda: faults.reached(until_at))


@pytest.mark.heavy
def test_a_failed_run_that_is_cleared_lands_what_it_lacked_and_its_writer_alone_cannot(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("cleared", topic, slice_records=2)
    produce(topic, orders(*range(6)))
    faults.kill("write.2")
    assert live.run("cleared", "a") == ("failed", {**GREEN, "write[0]": "failed", "outcome": "failed"})
    assert live.lake.ids("shop.cleared") == [0, 1]

    live.client.clear("cleared", "a", "land.write")
    until("the cleared task", lambda: live.states("cleared", "a")["outcome"] is None)
    state, tasks = live.ended("cleared", "a")
    assert (state, tasks["write[0]"], tasks["commit"], tasks["outcome"]) == ("failed", "skipped", "skipped", "failed")
    assert live.printed("cleared", "a", "clear the plan task of this run too")
    assert live.lake.ids("shop.cleared") == [0, 1]

    produce(topic, orders(6))
    live.client.clear("cleared", "a")
    until("the cleared run", lambda: live.states("cleared", "a")["outcome"] is None)
    assert live.ended("cleared", "a") == ("success", GREEN)
    assert live.printed("cleared", "a", "this run continues as a further cycle", "plan")
    assert live.lake.ids("shop.cleared") == list(range(7))

    produce(topic, orders(7))
    live.client.clear("cleared", "a")
    until("the cleared run", lambda: live.states("cleared", "a")["outcome"] is None)
    state, tasks = live.ended("cleared", "a")
    assert (state, tasks["commit"], tasks["outcome"]) == ("success", "skipped", "skipped")
    assert live.printed("cleared", "a", "all of it is landed")
    assert live.lake.ids("shop.cleared") == list(range(7))


@pytest.mark.heavy
def test_a_run_that_is_cleared_in_mid_flight_goes_on_with_its_cycle(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("again", topic, slice_records=2)
    produce(topic, orders(*range(6)))
    start(live, "again", "a", until_at="write.2", faults=faults)
    live.client.clear("again", "a")
    until("the second plan", lambda: live.printed("again", "a", "continues the cycle", "plan"))
    faults.let_go("write.2")
    assert live.ended("again", "a") == ("success", GREEN)
    assert live.lake.ids("shop.again") == list(range(6))


@pytest.mark.heavy
def test_a_write_task_that_is_marked_success_hides_nothing(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    faults = live.armed("marked", topic, slice_records=2)
    produce(topic, orders(*range(6)))
    start(live, "marked", "a", until_at="write.2", faults=faults)
    live.client.mark_task("marked", "a", "land.write/0", "success")
    assert live.ended("marked", "a") == ("failed", {**GREEN, "outcome": "failed"})
    assert live.printed("marked", "a", "the next run reads them")
    until_its_job_has_ended("marked")
    faults.let_go("write.2")
    assert live.lake.ids("shop.marked") == [0, 1]
    assert live.run("marked", "b") == ("success", GREEN)
    assert live.lake.ids("shop.marked") == list(range(6))


@pytest.mark.heavy
@pytest.mark.parametrize("marked", ["failed", "success"])
def test_what_a_marked_or_deleted_run_claims_is_free_at_once_and_its_id_can_be_used_again(
    live: Live, make_topic: Make, produce: Produce, marked: str
) -> None:
    topic, name = make_topic(1), f"run_{marked}"
    faults = live.armed(name, topic, slice_records=2)
    produce(topic, orders(*range(6)))
    start(live, name, "a", until_at="write.2", faults=faults)
    live.client.mark_run(name, "a", marked)
    until("its end", lambda: live.client.run_state(name, "a") == marked)
    until("the end of its writer", lambda: live.printed(name, "a", "offsets will be read again: ", "write"))
    until_its_job_has_ended(name)
    faults.let_go("write.2")
    assert live.run(name, "b") == ("success", GREEN)
    assert live.printed(name, "b", "are free, its run", "plan")
    assert live.lake.ids(f"shop.{name}") == list(range(6))

    live.client.delete_run(name, "a")
    produce(topic, orders(6))
    assert live.run(name, "a") == ("success", GREEN)
    live.client.delete_run(name, "b")
    assert live.run(name, "b") == ("success", IDLE)
    assert live.lake.ids(f"shop.{name}") == list(range(7))


@pytest.mark.heavy
def test_a_run_that_is_deleted_in_mid_flight_and_made_again_goes_on_where_it_was(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("remade", topic, slice_records=2)
    produce(topic, orders(*range(6)))
    start(live, "remade", "a", until_at="write.2", faults=faults)
    live.client.mark_run("remade", "a", "failed")
    until("the end of its writer", lambda: live.printed("remade", "a", "offsets will be read again: ", "write"))
    until_its_job_has_ended("remade")
    live.client.delete_run("remade", "a")
    faults.let_go("write.2")
    assert live.run("remade", "a") == ("success", GREEN)
    assert live.printed("remade", "a", "continues the cycle", "plan")
    assert live.lake.ids("shop.remade") == list(range(6))


@pytest.mark.heavy
def test_retries_outlive_a_death_of_every_task_before_and_after_its_work(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    options = {"default_args": {"retries": 2, "retry_delay": datetime.timedelta(seconds=0)}}
    faults = live.armed("stubborn", topic, options=options, slice_records=2)
    for place in ("plan.before", "plan.after", "write.0", "write.2", "commit.before", "commit.after"):
        faults.kill(place)
    produce(topic, orders(*range(6)))
    assert live.run("stubborn", "a") == ("success", GREEN)
    assert live.lake.ids("shop.stubborn") == list(range(6))
    head = live.lake.head("shop.stubborn")
    assert live.run("stubborn", "b") == ("success", IDLE)
    assert live.lake.head("shop.stubborn") == head


@pytest.mark.heavy
def test_three_runs_at_once_have_disjoint_windows_and_a_later_one_that_is_faster_waits_staged(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("pipeline", topic, dag_options={"max_active_runs": 3})
    produce(topic, orders(0, 1))
    start(live, "pipeline", "a", until_at="write.0", faults=faults)
    produce(topic, orders(2, 3))
    state, tasks = live.run("pipeline", "b")
    assert (state, tasks) == ("success", {**GREEN, "commit": "skipped", "outcome": "skipped"})
    assert live.printed("pipeline", "b", "are kept and published later; waiting")
    assert live.run("pipeline", "c") == ("success", IDLE)
    assert live.lake.ids("shop.pipeline") == []
    faults.let_go("write.0")
    assert live.ended("pipeline", "a") == ("success", GREEN)
    assert live.lake.ids("shop.pipeline") == [0, 1, 2, 3]
