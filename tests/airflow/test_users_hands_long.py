# SPDX-License-Identifier: Apache-2.0
"""The rarer things that happen to runs in a live Airflow: catch-up, backfills, pauses, limits, marks of tasks."""

from __future__ import annotations

import datetime
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from dev.airflow_client import AirflowAnswerError
from tests.airflow.live import RUN_SECONDS, Live, orders, until, until_its_job_has_ended
from tests.airflow.test_users_hands import GREEN, IDLE, start

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.airflow_long]

Produce = Callable[..., list[tuple[int, int]]]
Make = Callable[..., str]

DAY = datetime.timedelta(days=1)
SECOND = datetime.timedelta(seconds=1)


def daily(days: int, **more: Any) -> dict[str, Any]:
    """A DAG that has as many intervals behind it, and gets no more when midnight comes."""
    return {"schedule": DAY, "start_date": midnight(days), "end_date": midnight(1), **more}


def midnight(days: int) -> datetime.datetime:
    """The begin of the day, so many days ago."""
    now = datetime.datetime.now(datetime.UTC)
    return now.replace(hour=0, minute=0, second=0, microsecond=0) - days * DAY


def all_ended(live: Live, dag: str, count: int) -> bool:
    states = live.runs(dag)
    return len(states) == count and set(states) <= {"success", "failed"}


def outcomes(live: Live, dag: str) -> list[str]:
    return sorted(str(live.states(dag, run)["outcome"]) for run in live.client.runs(dag))


def test_catch_up_lands_all_in_one_run_and_a_manual_run_next_to_it_finds_it_claimed(
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
    first, last = (midnight(n).strftime("%Y-%m-%dT00:00:00Z") for n in (3, 2))
    live.armed("filled", topic, dag_options=daily(4, catchup=False, is_paused_upon_creation=True, end_date=None))
    until("the scheduled run", lambda: all_ended(live, "filled", 1))
    assert live.lake.ids("shop.filled") == list(range(4))
    produce(topic, orders(4, 5))
    backfill = live.client.backfill("filled", first, last)
    until("the backfill", lambda: all_ended(live, "filled", 3))
    until("its end", lambda: live.client.backfill_ended(backfill))
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
    assert live.printed("paused", "a", "other runs have already published its window")
    assert live.lake.ids("shop.paused") == [0, 1]


def test_a_paused_dag_continues_if_its_work_was_not_done(live: Live, make_topic: Make, produce: Produce) -> None:
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
    assert live.printed("two", "a", "landing one lands", "plan")
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
    timeout = {"default_args": {"execution_timeout": 40 * SECOND}}
    faults = live.armed("slow_task", topic, options=timeout, slice_records=2)
    produce(topic, orders(*range(4)))
    start(live, "slow_task", "a", until_at="write.2", faults=faults)
    assert live.ended("slow_task", "a") == ("failed", {**GREEN, "write[0]": "failed", "outcome": "failed"})
    assert live.lake.ids("shop.slow_task") == [0, 1]
    until_its_job_has_ended("slow_task")
    faults.let_go("write.2")
    assert live.run("slow_task", "b") == ("success", GREEN)
    assert live.lake.ids("shop.slow_task") == list(range(4))

    topic = make_topic(1)
    options = {"dagrun_timeout": 60 * SECOND}
    faults = live.armed("slow_run", topic, dag_options=options, slice_records=2)
    produce(topic, orders(*range(4)))
    start(live, "slow_run", "a", until_at="write.2", faults=faults)
    state, tasks = live.ended("slow_run", "a")
    assert (state, tasks["commit"], tasks["outcome"]) == ("failed", "skipped", "skipped")
    until_its_job_has_ended("slow_run")
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


def test_a_pool_holds_up_a_run_and_loses_nothing(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(2)
    live.client.make_pool("narrow", 1)
    faults = live.armed("pooled", topic, options={"default_args": {"pool": "narrow"}}, groups=2)
    produce(topic, orders(0, 1), 0)
    produce(topic, orders(2, 3), 1)
    start(live, "pooled", "a", until_at="write.0", faults=faults)
    writes = ("write[0]", "write[1]")
    until("the other's turn", lambda: "scheduled" in (live.states("pooled", "a")[w] for w in writes))
    time.sleep(3.0)  # The scheduler looks about once a second.
    assert sorted(str(live.states("pooled", "a")[w]) for w in writes) == ["running", "scheduled"]
    live.client.trigger("pooled", "b")
    faults.let_go("write.0")
    assert live.ended("pooled", "a") == ("success", {**GREEN, "write[1]": "success"})
    assert live.ended("pooled", "b")[0] == "success"
    assert live.lake.ids("shop.pooled") == [0, 1, 2, 3]


def test_with_depends_on_past_a_failed_run_holds_up_the_next_one_until_it_is_cleared(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    produce(topic, orders(0, 1))
    faults = live.faults("past")
    faults.hold("write.0")
    faults.kill("write.0")
    options = {"default_args": {"depends_on_past": True}}
    live.armed("past", topic, options=options, dag_options=daily(2, catchup=True, max_active_runs=2))
    until("the first window", lambda: faults.reached("write.0"))
    until("both runs", lambda: len(live.runs("past")) == 2)
    first, second = live.client.runs("past")
    produce(topic, orders(2, 3))
    faults.let_go("write.0")
    state, tasks = live.ended("past", first)
    assert (state, tasks["write[0]"], tasks["commit"], tasks["outcome"]) == ("failed", "failed", "skipped", "failed")
    time.sleep(3.0)  # The scheduler looks about once a second.
    assert live.client.run_state("past", second) == "running"
    assert live.lake.ids("shop.past") == []
    live.client.clear("past", first)
    until("the cleared run", lambda: live.states("past", first)["outcome"] is None)
    assert live.ended("past", first)[0] == "success"
    assert live.ended("past", second)[0] == "success"
    assert live.run("past", "by-hand")[0] == "success"
    assert live.lake.ids("shop.past") == [0, 1, 2, 3]


def test_a_commit_or_an_outcome_that_is_cleared_alone_evaluates_by_what_the_tables_have(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("cleared_alone", topic)
    produce(topic, orders(0, 1))
    faults.kill("commit.before")
    failed = {**GREEN, "commit": "failed", "outcome": "failed"}
    assert live.run("cleared_alone", "a") == ("failed", failed)
    assert live.lake.ids("shop.cleared_alone") == []

    def clear(run: str, task: str) -> tuple[str, dict[str, str | None]]:
        live.client.clear("cleared_alone", run, f"land.{task}")
        until("the cleared task", lambda: live.states("cleared_alone", run)["outcome"] is None)
        return live.ended("cleared_alone", run)

    assert clear("a", "outcome") == ("failed", failed)
    assert clear("a", "commit") == ("success", GREEN)
    assert live.lake.ids("shop.cleared_alone") == [0, 1]
    head = live.lake.head("shop.cleared_alone")
    assert clear("a", "outcome") == ("success", GREEN)

    # A later run publishes what a failed commit left.
    produce(topic, orders(2, 3))
    faults.kill("commit.before")
    assert live.run("cleared_alone", "b") == ("failed", failed)
    assert live.run("cleared_alone", "c")[0] == "success"
    assert live.lake.ids("shop.cleared_alone") == [0, 1, 2, 3]
    state, tasks = clear("b", "commit")
    assert (state, tasks["commit"], tasks["outcome"]) == ("success", "skipped", "skipped")
    log = live.log("cleared_alone", "b", "commit")
    assert "other runs have already published its window" in log, log[-3000:]
    assert live.lake.head("shop.cleared_alone") != head

    # The colour of a run that has ended is nobody's work.
    live.client.mark_run("cleared_alone", "c", "failed")
    assert live.client.run_state("cleared_alone", "c") == "failed"
    assert live.lake.ids("shop.cleared_alone") == [0, 1, 2, 3]


def test_a_database_that_is_cleaned_makes_no_landing_forget(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    live.armed("cleaned", topic)
    produce(topic, orders(0, 1))
    assert live.run("cleaned", "a") == ("success", GREEN)
    # The jobs of a scheduler that runs are no history: without their rows it stops, whatever its DAGs do.
    history = "dag_run,task_instance,task_instance_history,xcom,log,asset_event"
    clean = ["db", "clean", "--clean-before-timestamp", "2100-01-01", "--skip-archive", "--yes", "--tables", history]
    subprocess.run([sys.executable, "-m", "airflow", *clean], env=live.airflow.environment, check=True, timeout=600)
    live.client.await_dag("cleaned", RUN_SECONDS)
    produce(topic, orders(2))
    assert live.run("cleaned", "b") == ("success", GREEN)
    assert live.lake.ids("shop.cleaned") == [0, 1, 2]
    assert live.run("cleaned", "c") == ("success", IDLE)


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


def test_a_landing_that_is_renamed_in_mid_run_makes_the_run_red_and_loses_nothing(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    faults = live.armed("former", topic, slice_records=2)
    produce(topic, orders(*range(6)))
    start(live, "former", "a", until_at="write.2", faults=faults)
    path = live.folder / "former.py"
    before = path.read_text()
    path.write_text(before.replace("'name': 'former'", "'name': 'newer'"))
    until("the new name", lambda: "**newer**" in live.client.told("/dags/former/tasks/land.commit")["doc_md"])
    faults.let_go("write.2")
    state, tasks = live.ended("former", "a")
    assert (state, tasks["write[0]"], tasks["commit"], tasks["outcome"]) == ("failed", "success", "failed", "failed")
    assert live.printed("former", "a", "is of landing 'former'")
    state, tasks = live.run("former", "b")
    assert (state, tasks["plan"]) == ("failed", "failed")
    assert live.printed("former", "b", "LC3003")

    path.write_text(before)
    until("the old name", lambda: "**former**" in live.client.told("/dags/former/tasks/land.commit")["doc_md"])
    live.client.clear("former", "a", "land.commit")
    until("the cleared task", lambda: live.states("former", "a")["outcome"] is None)
    state, tasks = live.ended("former", "a")
    assert (state, tasks["commit"], tasks["outcome"]) == ("success", "success", "success")
    assert live.lake.ids("shop.former") == list(range(6))
