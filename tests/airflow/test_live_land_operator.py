# SPDX-License-Identifier: Apache-2.0
"""The operator that lands alone in a live Airflow: states, asset events, an idle run, a cleared one.

Its engine is the stand-in for spark-submit, which knows nothing of its slices: what was done is asked of the
control log.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.airflow.live import RUN_SECONDS, STAND_IN, Live, orders, until
from tests.support.airflow_dags import CREATE

pytestmark = [pytest.mark.airflow, pytest.mark.integration]

Produce = Callable[..., list[tuple[int, int]]]

DAG_FILE = """
from datetime import datetime

from airflow.sdk import DAG, task

from airflow_provider_lakecommit.landing import Landing
from airflow_provider_lakecommit.operators.land import KafkaToIcebergOperator

landing = Landing.from_flat({landing!r})

with DAG({dag!r}, schedule=None, start_date=datetime(2026, 1, 1), catchup=False):
    KafkaToIcebergOperator(task_id="land", landing=landing, spark_conn_id={engine!r})

with DAG({dag!r} + "_downstream", schedule=[landing.asset], start_date=datetime(2026, 1, 1), catchup=False):

    @task
    def follow(*, triggering_asset_events=None):
        [event] = triggering_asset_events[landing.asset]
        assert event.extra["rows"] == 15, event.extra
        assert len(event.extra["snapshots"]) == 2, event.extra

    follow()
"""


@pytest.mark.heavy
def test_one_task_lands_sends_one_event_for_all_its_cycles_and_does_nothing_when_it_is_cleared(
    live: Live, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic(2)
    landing = {"name": "alone", "topics": topic, "table": "shop.alone", "create": CREATE, "max_records": 10}
    made = live.folder / "alone.new"
    made.write_text(DAG_FILE.format(dag="alone", landing=landing, engine=STAND_IN))
    made.replace(live.folder / "alone.py")
    live.client.await_dag("alone", RUN_SECONDS)
    live.client.await_dag("alone_downstream", RUN_SECONDS)
    produce(topic, orders(*range(10)), 0)
    produce(topic, orders(*range(10, 15)), 1)

    assert live.run("alone", "first") == ("success", {"land": "success"})
    assert live.lake.ids("shop.alone") == list(range(15))
    until("the run that follows the asset", lambda: live.runs("alone_downstream") == ["success"])

    head = live.lake.head("shop.alone")
    assert live.run("alone", "idle") == ("success", {"land": "skipped"})

    produce(topic, orders(15), 0)
    live.client.clear("alone", "first")
    until("the cleared run's end", lambda: live.states("alone", "first") == {"land": "skipped"})
    assert live.lake.head("shop.alone") == head
    assert live.runs("alone_downstream") == ["success"]
