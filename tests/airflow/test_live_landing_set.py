# SPDX-License-Identifier: Apache-2.0
"""A landing set in a live Airflow: tasks that are killed or marked, what is safe then, and what the next run does."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import pytest

from tests.airflow.faults import Faults
from tests.airflow.gated import GATED
from tests.airflow.live import RUN_SECONDS, Live, orders, until, until_its_job_has_ended
from tests.support.airflow_dags import CREATE, UNSCHEDULED
from tests.support.declared import nested_set

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.long, pytest.mark.heavy]

DAG_FILE = """
import datetime

from airflow.sdk import DAG

from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.task_groups import KafkaToIcebergTaskGroup
from tests.airflow.faults import arm

declared = LandingSet(**{declared!r})

with DAG({name!r}, **{dag_options!r}) as dag:
    KafkaToIcebergTaskGroup("land", landing=declared, **{options!r})

arm(dag, declared.name)
"""
AGAIN = {"retries": 1, "retry_delay": datetime.timedelta(seconds=0)}
GREEN = {"plan": "success", "write[0]": "success", "commit": "success", "outcome": "success"}
Produce = Callable[..., list[tuple[int, int]]]


class _Set:
    """A set of three topics, each into a table of its own, whose DAG is known to Airflow."""

    def __init__(self, live: Live, name: str, topics: Sequence[str], **options: Any) -> None:
        self.live, self.name, self.topics = live, name, topics
        declared = {
            "name": name,
            "topics": list(topics),
            "rules": [{"topics": topic, "table": f"{name}.t{n}"} for n, topic in enumerate(topics)],
            "missing_table": "create",
            "defaults": {"create": CREATE, "slice_records": 2},
        }
        values = {"tasks": 1, "spark_conf": GATED, **options}
        made = (live.folder / f"{name}.py").with_suffix(".new")
        made.write_text(
            DAG_FILE.format(name=name, declared=nested_set(**declared), options=values, dag_options=UNSCHEDULED)
        )
        made.replace(live.folder / f"{name}.py")
        live.client.await_dag(name, RUN_SECONDS)

    def ids(self) -> list[list[int]]:
        return [self.live.lake.ids(f"{self.name}.t{n}") for n in range(len(self.topics))]

    def landing(self, number: int) -> str:
        return f"{self.name}.{self.name}.t{number}"


@pytest.fixture
def make_set(live: Live, make_topic: Callable[..., str], produce: Produce) -> Callable[..., _Set]:
    def make(name: str, **options: Any) -> _Set:
        made = _Set(live, name, [make_topic(1) for _ in range(3)], **options)
        for topic in made.topics:
            produce(topic, orders(*range(6)))
        return made

    return make


def test_a_write_that_is_instructed_to_stop_keeps_what_it_reported_and_the_next_run_lands_the_rest_once(
    live: Live, make_set: Callable[..., _Set]
) -> None:
    three = make_set("set_stopped")
    held = live.faults(three.landing(1))
    held.hold("write.2")
    live.client.trigger(three.name, "broken")
    done = [f"{topic}[0][{begin}, {begin + 2}): done in" for topic in three.topics for begin in (0, 2, 4)]
    for text in (each for each in done if each != done[4]):
        until(text, lambda text=text: text in live.log(three.name, "broken", "write"))
    live.client.mark_task(three.name, "broken", "land.write/0", "failed")
    assert live.client.await_run(three.name, "broken", RUN_SECONDS) == "failed"
    assert live.states(three.name, "broken") == {**GREEN, "write[0]": "failed", "outcome": "failed"}
    # What is behind the held slice waits for it.
    assert three.ids() == [list(range(6)), [0, 1], list(range(6))]
    assert live.printed(three.name, "broken", "stopped; requested the end of its Spark jobs", "write")
    assert live.printed(three.name, "broken", f"1 failed: {three.landing(1)}: ")
    until_its_job_has_ended(three.landing(0))
    held.let_go("write.2")

    assert live.run(three.name, "mended") == ("success", GREEN)
    assert three.ids() == [list(range(6))] * 3
    for number in range(3):
        name = three.landing(number)
        until(f"the page tells of {name}", lambda name=name: page_dags(live, name) == [three.name])


def page_dags(live: Live, landing: str) -> list[str] | None:
    """By which DAGs the page says that a landing is landed; ``None`` while it does not know it."""
    login = {"Authorization": f"Bearer {live.client.token}"}
    found = httpx.get(f"{live.airflow.url}/lakecommit/api/v1/landings", headers=login, timeout=60)
    rows = found.raise_for_status().json()["landings"]
    return next((list(row["dags"]) for row in rows if row["name"] == landing), None)


def test_tasks_that_are_killed_are_done_again_and_everything_is_landed_once(
    live: Live, make_set: Callable[..., _Set]
) -> None:
    three = make_set("set_killed", default_args=AGAIN)
    faults: Faults = live.faults(three.name)
    for place in ("plan.before", "plan.after", "commit.before", "commit.after"):
        faults.kill(place)
    assert live.run(three.name, "first")[0] == "failed"
    for place in ("plan.after", "commit.after"):
        faults.kill(place)
    assert live.run(three.name, "second")[0] in ("success", "skipped")
    assert three.ids() == [list(range(6))] * 3
