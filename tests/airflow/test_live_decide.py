# SPDX-License-Identifier: Apache-2.0
"""Operations with an approval in a live Airflow: dead letters are replayed after a correction, and rows go back.

The request waits under *Required Actions*, as a user meets it, and is answered by Airflow's API.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.airflow.live import RUN_SECONDS, Live, until
from tests.support.airflow_dags import UNSCHEDULED

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

Produce = Callable[..., list[tuple[int, int]]]
Make = Callable[..., str]

DAG_FILE = """
import datetime

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator

with DAG({dag!r}, **{options!r}):
    about = dict(landing=Landing.from_flat({landing!r}), operation={operation!r}, arguments={arguments!r})
    look = LandingOperationOperator(task_id="look", **about)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Do it",
        body="{{{{ ti.xcom_pull(task_ids='look')['text'] }}}}",
        params={{"reason": Param("", type="string")}},
        response_timeout=datetime.timedelta(hours=1),
    )
    change = LandingOperationOperator(task_id="change", agreed=look.output, decided_by=approve.output, **about)
    look >> approve >> change
"""
NEEDED = {
    "schema": [{"name": "id", "type": "long", "required": True}, {"name": "note", "type": "string", "required": True}]
}


class Decisions:
    """A landing and the DAGs of operations on it."""

    def __init__(self, live: Live, name: str, topic: str) -> None:
        self.live, self.name, self.table = live, name, f"shop.{name}"
        options = {
            "create": NEEDED,
            "dead_letter_table": f"{self.table}_dead",
            "dead_letter_max_ratio": 1.0,
            "metadata_columns": True,
        }
        self._landing = {"name": name, "topics": topic, "table": self.table, **options}
        live.declare(name, topic, **options)

    def dag(self, operation: str, **arguments: Any) -> str:
        """A DAG that previews an operation, asks, and does it; known to Airflow when this returns."""
        dag = f"{self.name}_{operation.replace(' ', '_').replace('-', '_')}"
        text = DAG_FILE.format(
            dag=dag, options=UNSCHEDULED, landing=self._landing, operation=operation, arguments=arguments
        )
        made = self.live.folder / f"{dag}.new"
        made.write_text(text)
        made.replace(made.with_suffix(".py"))
        self.live.client.await_dag(dag, RUN_SECONDS)
        return dag

    def run(self, dag: str, run: str, answer: str) -> tuple[str, dict[str, str | None]]:
        """A run whose request is answered; its state and those of its tasks."""
        self.await_question(dag, run)
        assert self.live.states(dag, run) == {"look": "success", "approve": "awaiting_input", "change": None}
        return self.answered(dag, run, answer)

    def await_question(self, dag: str, run: str) -> None:
        """Trigger a run, and wait until its request can be answered."""
        self.live.client.trigger(dag, run)
        self.live.await_state(dag, run, "approve", "awaiting_input")
        # Airflow fails a task that is answered before the scheduler has noticed the end of its process.
        log, noticed = (
            self.live.folder.parent / "log" / "scheduler.log",
            f"dag_id={dag}, task_id=approve, run_id={run},",
        )
        until("the scheduler's notice", lambda: f"TaskInstance Finished: {noticed}" in log.read_text(errors="replace"))

    def answered(self, dag: str, run: str, answer: str) -> tuple[str, dict[str, str | None]]:
        """Answer the request of a run; its state and those of its tasks at its end."""
        self.live.client.answer(dag, run, "approve", answer, {"reason": "the producer is corrected"})
        return self.live.ended(dag, run)


DONE = {"look": "success", "approve": "success", "change": "success"}


def test_dead_letters_are_replayed_after_the_table_is_corrected(live: Live, make_topic: Make, produce: Produce) -> None:
    topic = make_topic(1)
    one = Decisions(live, "letters", topic)
    produce(topic, [{"id": n} if n < 3 else {"id": n, "note": "n"} for n in range(10)], 0)
    assert live.run("letters", "a")[0] == "success"
    assert live.lake.ids(one.table) == list(range(3, 10))
    replay = one.dag("dead-letters", kinds="missing_required:note")
    # Without the correction the same records would be rejected again: no request is made.
    assert live.run(replay, "early") == ("success", dict.fromkeys(DONE, "skipped"))
    with live.lake.open().load_table(one.table).update_schema() as update:
        update.make_column_optional("note")
    assert one.run(replay, "refused", "Reject") == ("success", {**DONE, "change": "skipped"})
    assert live.lake.ids(one.table) == list(range(3, 10))
    assert one.run(replay, "agreed", "Approve") == ("success", DONE)
    assert live.lake.ids(one.table) == list(range(10))
    assert live.run(replay, "again") == ("success", dict.fromkeys(DONE, "skipped"))
    assert live.lake.ids(one.table) == list(range(10))


def test_rows_go_back_by_an_approval_and_the_next_run_reads_them_again(
    live: Live, make_topic: Make, produce: Produce
) -> None:
    topic = make_topic(1)
    one = Decisions(live, "back", topic)
    produce(topic, [{"id": n, "note": "n"} for n in range(10)], 0)
    assert live.run("back", "a")[0] == "success"
    reset = one.dag("reset offsets", start=f"{topic}:0=4", delete=True)
    assert one.run(reset, "refused", "Reject") == ("success", {**DONE, "change": "skipped"})
    assert live.lake.ids(one.table) == list(range(10))
    # Landed between preview and approval: it goes back too, since the next run reads it again.
    one.await_question(reset, "agreed")
    produce(topic, [{"id": 10, "note": "n"}], 0)
    assert live.run("back", "b")[0] == "success"
    assert one.answered(reset, "agreed", "Approve") == ("success", DONE)
    assert live.lake.ids(one.table) == list(range(4))
    assert live.run("back", "c")[0] == "success"
    assert live.lake.ids(one.table) == list(range(11))
