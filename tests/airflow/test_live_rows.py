# SPDX-License-Identifier: Apache-2.0
"""Change envelopes, a route and SQL in a live Airflow, by spark-submit; and runs that go on without a table of it that
a user dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.airflow.live import Live
from tests.integration.test_cli_rows import SPEC, changes

pytestmark = [pytest.mark.airflow, pytest.mark.integration, pytest.mark.heavy]

SQL = "select id as order_id, unnest(items).sku as sku from record where not _is_deleted"


def test_runs_of_a_route_go_on_without_a_table_that_was_dropped(
    live: Live, make_topic: Callable[..., str], produce: Callable[..., object]
) -> None:
    topic = make_topic(1)
    fields = {**SPEC, "functions": {}, "transform": {"shop.items": SQL}, "dead_letter_table": "shop.dead"}
    live.declare("rows", topic, **fields)
    catalog = live.lake.open()

    def send(first: int, count: int) -> None:
        produce(topic, changes(first + count)[first * 8 :])

    def landed() -> tuple[int, int]:
        return live.lake.count("shop.customers"), live.lake.count("shop.items")

    send(0, 10)
    assert live.run("rows", "whole")[0] == "success"
    # The price that is no number is not requested here.
    assert (landed(), live.lake.count("shop.dead")) == ((20, 30), 10)

    items = catalog.load_table("shop.items").metadata_location
    catalog.drop_table("shop.items")
    send(10, 10)
    state, tasks = live.run("rows", "without")
    assert (state, tasks["commit"], tasks["write[0]"]) == ("failed", "failed", "success")
    assert live.printed("rows", "without", "shop.items is left out of this plan", "plan")
    assert (live.lake.count("shop.customers"), live.lake.count("shop.dead")) == (40, 20)

    catalog.register_table("shop.items", items)
    assert live.run("rows", "again")[0] == "success"
    assert (landed(), live.lake.count("shop.dead")) == ((40, 60), 20)
