# SPDX-License-Identifier: Apache-2.0
"""`rescue --commit` killed around the catalog's commit, and given again: each file is in the table once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog

from airflow_provider_lakecommit.operations.kafka_connect import rescue as connector_rescue
from tests.integration.sink import Sink
from tests.support.dying import COMMIT_POINTS, dying, killed_in

pytestmark = pytest.mark.faults

PORTION = 2


def rescued(kafka: dict[str, str], catalog: dict[str, str], topic: str, connector: str, point: str, nth: int) -> None:
    """In a process of its own: what `rescue --commit` does, in portions of a few files."""
    with pytest.MonkeyPatch.context() as patch, dying(COMMIT_POINTS[point], nth):
        patch.setattr(connector_rescue, "MOST_FILES", PORTION)
        connector_rescue.rescue(
            kafka, catalog, control_topic=topic, connector=connector, group=None, branch="main", names=None, commit=True
        )


@pytest.mark.heavy(but=("2-nobody was told",))
@pytest.mark.parametrize("point", list(COMMIT_POINTS))
@pytest.mark.parametrize("nth", [1, 2])
def test_whenever_a_rescue_is_killed_each_file_is_committed_once(
    catalog: Catalog,
    catalog_properties: dict[str, str],
    produce: Callable[..., Any],
    make_topic: Callable[..., str],
    bootstrap: str,
    point: str,
    nth: int,
) -> None:
    sink = Sink(catalog, produce, make_topic(1), f"sink-{uuid4().hex[:6]}")
    sink.create()
    sink.cycle_of([100])
    sink.begin()
    for n in range(5):
        sink.announce([2 * n, 2 * n + 1])
    kafka = {"bootstrap.servers": bootstrap}
    arguments = (kafka, catalog_properties, sink.topic, sink.connector, point, nth)
    killed_in(rescued, *arguments)
    done = nth if point in ("nobody was told", "all is done") else nth - 1
    assert sink.ids() == [*range(4 * done), 100], "that many portions were committed when it died"

    for _ in range(2):
        (report,) = connector_rescue.rescue(
            kafka,
            catalog_properties,
            control_topic=sink.topic,
            connector=sink.connector,
            group=None,
            branch="main",
            names=None,
            commit=True,
        )
        assert sink.ids() == [*range(10), 100]
    assert report.committed == ()
    assert sink.floor() == sink.position - 1
