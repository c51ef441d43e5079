# SPDX-License-Identifier: Apache-2.0
"""A landing per test, on the session's broker and a catalog of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.landing import Landing
from tests.faults.messes import CREATE, TABLE
from tests.faults.world import SCHEMA, World, catalog_in


@pytest.fixture
def make_world(
    tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], control_topic: str
) -> Callable[..., World]:
    """A landing of a topic of its own into a table of its own."""

    def make(partitions: int = 2, **fields: object) -> World:
        stated = {"name": "rows", "table": "shop.rows", "dead_letter_table": "shop.dead", "slice_records": 40, **fields}
        landing = Landing(
            **{"topics": make_topic(partitions), "create": SCHEMA, "control_topic": control_topic, **stated}
        )
        return World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))

    return make


@pytest.fixture
def make_engine_world(make_world: Callable[..., World]) -> Callable[..., World]:
    """A landing whose catalog has a name of its own, by which another engine knows it."""

    def make(**fields: object) -> World:
        stated = {"create": CREATE, "table": TABLE, "dead_letter_table": None, "slice_records": 100, **fields}
        world = make_world(**stated)
        return replace(world, catalog={**world.catalog, "name": f"lake_{uuid4().hex[:8]}"})

    return make
