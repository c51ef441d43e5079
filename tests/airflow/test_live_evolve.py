# SPDX-License-Identifier: Apache-2.0
"""Two DAGs of a live Airflow let one table follow their topics at once, one of them by a plan that is killed."""

from __future__ import annotations

import datetime
from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.iceberg.ledger.summary import record_of
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import EVOLVED
from tests.airflow.live import Live
from tests.support.world import own_columns

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

AGAIN = {"default_args": {"retries": 2, "retry_delay": datetime.timedelta(seconds=0)}}


def test_columns_of_two_landings_come_once_each_though_a_plan_dies(
    live: Live, make_topic: Callable[..., str], produce: Callable[..., object]
) -> None:
    """The plan dies when the table has its column and Airflow does not know of the plan. The other DAG has a real
    spark-submit.
    """
    one, two = make_topic(1), make_topic(1)
    faults = live.armed("growing", one, options=AGAIN, evolve="add")
    live.declare("beside", two, table="shop.growing", evolve="add")
    produce(one, [{"id": 1, "note": "a"}], 0)
    produce(two, [{"id": 101, "note": "b"}], 0)
    assert [live.run(name, "first")[0] for name in ("growing", "beside")] == ["success"] * 2

    produce(one, [{"id": 2, "extra": {"x": 1}}], 0)
    produce(two, [{"id": 102, "extra": {"y": "z"}, "other": 2.5}], 0)
    faults.kill("plan.after")
    for name in ("growing", "beside"):
        live.client.trigger(name, "second")
    assert [live.ended(name, "second")[0] for name in ("growing", "beside")] == ["success"] * 2
    assert faults.reached("plan.after")

    table = live.lake.open().load_table("shop.growing")
    rows = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    assert sorted(rows) == [1, 2, 101, 102]
    assert (rows[2]["extra"]["x"], rows[102]["extra"]["y"], rows[102]["other"]) == (1, "z", 2.5)
    changes = [r.extra[EVOLVED] for s in table.snapshots() if (r := record_of(s)) is not None and EVOLVED in r.extra]
    assert len(changes) == 2, "one of each landing"
    assert sorted(f.name for f in own_columns(table.schema())) == ["extra", "id", "note", "other"]
