# SPDX-License-Identifier: Apache-2.0
"""The rarer things that happen to runs in a live Airflow: catch-up, backfills, pauses, limits, marks of tasks."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from dev.airflow_client import AirflowAnswerError
from tests.airflow.live import Live, orders, until
from tests.airflow.test_users_hands import GREEN, IDLE, start

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.integration,
    pytest.mark.airflow_long,
    pytest.mark.timeout(900),
]

Produce = Callable[..., list[tuple[int, int]]]
Make = Callable[..., str]

DAY = datetime.timedelta(days=1)
SECOND = datetime.timedelta(seconds=1)


def daily(days: int, **more: Any) -> dict[str, Any]:
    """A DAG that has as many intervals behind it."""
    today = datetime.datetime.combine(datetime.date.today(), datetime.time(), datetime.UTC)
    return {"schedule": DAY, "start_date": today - days * DAY, **more}


def all_ended(live: Live, dag: str, count: int) -> bool:
    states = live.runs(dag)
    return len(states) == count and set(states) <= {"success", "failed"}


def outcomes(live: Live, dag: str) -> list[str]:
    return sorted(str(live.states(dag, run)["outcome"]) for run in live.client.runs(dag))


def test_catch_up_lands_all_in_one_run_and_a_manual_run_beside_it_finds_it_claimed(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    produce(topic, orders(*range(4)))
    live.faults("caught_up").hold("write.0")
    faults = live.armed("caught_up", topic, dag_options=daily(4, catchup=True, max_active_runs=2))
    until("the first window", lambda: faults.reached("write.0"))
    live.client.trigger("caught_up", "by-hand")
    faults.let_go("write.0")
    until("all runs", lambda: all_ended(live, "caught_up", 5))
    assert set(live.runs("caught_up")) == {"success"}
    assert outcomes(live, "caught_up") == ["skipped"] * 4 + ["success"]
    assert live.lake.ids("shop.caught_up") == list(range(4))


def test_a_backfill_lands_what_is_new_once_and_runs_that_it_repeats_do_no_work(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    produce(topic, orders(*range(4)))
    live.armed("filled", topic, dag_options=daily(4, catchup=False, is_paused_upon_creation=True))
    first, last = ((datetime.datetime.now(datetime.UTC) - n * DAY).strftime("%Y-%m-%dT00:00:00Z") for n in (3, 2))
    until("the scheduled run", lambda: all_ended(live, "filled", 1))
    assert live.lake.ids("shop.filled") == list(range(4))
    produce(topic, orders(4, 5))
    live.client.backfill("filled", first, last)
    until("the backfill", lambda: all_ended(live, "filled", 3))
    assert outcomes(live, "filled") == ["skipped", "success", "success"]
    assert live.lake.ids("shop.filled") == list(range(6))

    produce(topic, orders(6))
    live.client.backfill("filled", first, last, again="completed")
    until("the begin", lambda: not all_ended(live, "filled", 3))
    until("the second backfill", lambda: all_ended(live, "filled", 3))
    assert outcomes(live, "filled") == ["skipped", "skipped", "success"]
    assert live.lake.ids("shop.filled") == list(range(6))


def test_a_paused_dag_whose_window_another_dag_has_landed_meanwhile_ends_without_work(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    landing: dict[str, Any] = {"completion_timeout": SECOND}
    faults = live.armed("paused", topic, **landing)
    live.armed("paused", topic, dag="renamed", **landing)
    produce(topic, orders(0, 1))
    start(live, "paused", "a", until_at="plan.after", faults=faults)
    live.client.pause("paused", paused=True)
    faults.let_go("plan.after")
    live.await_state("paused", "a", "plan", "success")
    assert live.run("renamed", "b") == ("success", GREEN)
    live.client.pause("paused", paused=False)
    state, tasks = live.ended("paused", "a")
    assert (state, tasks) == ("success", {**GREEN, "write[0]": "skipped", "commit": "skipped", "outcome": "skipped"})
    assert live.said("paused", "a", "in the tables already, by other runs")
    assert live.lake.ids("shop.paused") == [0, 1]


def test_a_paused_dag_goes_on_where_it_was_when_nobody_else_did_its_work(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("asleep", topic, completion_timeout=SECOND)
    produce(topic, orders(0, 1))
    start(live, "asleep", "a", until_at="plan.after", faults=faults)
    live.client.pause("asleep", paused=True)
    faults.let_go("plan.after")
    live.await_state("asleep", "a", "plan", "success")
    live.client.pause("asleep", paused=False)
    assert live.ended("asleep", "a") == ("success", GREEN)
    assert live.lake.ids("shop.asleep") == [0, 1]


def test_two_dags_with_one_landing_share_what_is_missing(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    faults = live.armed("shared", topic)
    live.armed("shared", topic, dag="shared_too")
    produce(topic, orders(0, 1))
    start(live, "shared", "a", until_at="write.0", faults=faults)
    produce(topic, orders(2, 3))
    state, tasks = live.run("shared_too", "b")
    assert (state, tasks["write[0]"], tasks["commit"], tasks["outcome"]) == ("success", "success", "skipped", "skipped")
    faults.let_go("write.0")
    assert live.ended("shared", "a") == ("success", GREEN)
    assert live.lake.ids("shop.shared") == [0, 1, 2, 3]


def test_two_landings_of_one_topic_into_one_table_are_refused(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    live.armed("one", topic)
    live.armed("two", topic, table="shop.one")
    produce(topic, orders(0, 1))
    assert live.run("one", "a") == ("success", GREEN)
    state, tasks = live.run("two", "a")
    assert (state, tasks["plan"], tasks["outcome"]) == ("failed", "failed", "failed")
    assert live.said("two", "a", "landing one lands", "plan")
    assert live.lake.ids("shop.one") == [0, 1]


@pytest.mark.parametrize("task", ["plan", "commit"])
@pytest.mark.parametrize("marked", ["failed", "success"])
def test_a_plan_or_commit_that_is_marked_in_mid_flight_hangs_nothing_and_loses_nothing(
    live: Live, make_topic: Make, produce: Produce, task: str, marked: str
) -> None:
    topic, name = make_topic(1), f"{task}_{marked}"
    faults = live.armed(name, topic)
    produce(topic, orders(0, 1))
    start(live, name, "a", until_at=f"{task}.after", faults=faults)
    live.client.mark_task(name, "a", f"land.{task}", marked)
    state, tasks = live.ended(name, "a")
    faults.let_go(f"{task}.after")
    expected = {
        ("plan", "failed"): ("failed", "failed"),
        ("plan", "success"): ("failed", "failed"),
        ("commit", "failed"): ("failed", "failed"),
        ("commit", "success"): ("success", "success"),
    }
    assert (state, tasks["outcome"]) == expected[task, marked]
    state, _ = live.run(name, "b")
    assert state == "success"
    assert live.lake.ids(f"shop.{name}") == [0, 1]


def test_timeouts_of_a_task_and_of_a_run_save_what_is_finished(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    timeout = {"default_args": {"execution_timeout": 20 * SECOND}}
    faults = live.armed("slow_task", topic, options=timeout, slice_records=2)
    produce(topic, orders(*range(4)))
    start(live, "slow_task", "a", until_at="write.2", faults=faults)
    assert live.ended("slow_task", "a") == ("failed", {**GREEN, "write[0]": "failed", "outcome": "failed"})
    assert live.lake.ids("shop.slow_task") == [0, 1]
    faults.let_go("write.2")
    assert live.run("slow_task", "b") == ("success", GREEN)
    assert live.lake.ids("shop.slow_task") == list(range(4))

    topic = make_topic(1)
    options = {"dagrun_timeout": 25 * SECOND}
    faults = live.armed("slow_run", topic, dag_options=options, slice_records=2)
    produce(topic, orders(*range(4)))
    start(live, "slow_run", "a", until_at="write.2", faults=faults)
    state, tasks = live.ended("slow_run", "a")
    assert (state, tasks["commit"], tasks["outcome"]) == ("failed", "skipped", "skipped")
    faults.let_go("write.2")
    live.armed("slow_run", topic, slice_records=2)
    until("a run without that limit", lambda: live.run("slow_run", f"b{len(live.runs('slow_run'))}")[0] == "success")
    assert live.lake.ids("shop.slow_run") == list(range(4))


def test_groups_and_pools_limit_what_runs_at_once(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(2)
    faults = live.armed("limited", topic, options={"max_active_groups": 1}, groups=2)
    produce(topic, orders(0, 1), 0)
    produce(topic, orders(2, 3), 1)
    start(live, "limited", "a", until_at="write.0", faults=faults)
    running = [state for task, state in live.states("limited", "a").items() if task.startswith("write")]
    assert running.count("running") == 1
    faults.let_go("write.0")
    state, tasks = live.ended("limited", "a")
    assert (state, tasks["write[0]"], tasks["write[1]"]) == ("success", "success", "success")
    assert live.lake.ids("shop.limited") == [0, 1, 2, 3]


def test_airflow_does_not_delete_a_run_that_is_running(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    faults = live.armed("kept", topic)
    produce(topic, orders(0))
    start(live, "kept", "a", until_at="write.0", faults=faults)
    with pytest.raises(AirflowAnswerError, match="409"):
        live.client.delete_run("kept", "a")
    faults.let_go("write.0")
    assert live.ended("kept", "a") == ("success", GREEN)
    assert live.run("kept", "b") == ("success", IDLE)
