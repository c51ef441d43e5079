# SPDX-License-Identifier: Apache-2.0
"""The same cycle, its deaths and its races, over a catalog in PostgreSQL."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.exceptions import LakecommitError
from dev.postgres import Postgres
from tests.faults.world import Killed, World, deaths, records

pytestmark = pytest.mark.postgres

Make = Callable[..., World]
Produce = Callable[..., object]


@pytest.fixture
def make_world(make_world: Make, postgres: Postgres) -> Make:
    """A landing whose catalog is a name of its own in the database."""

    def make(**fields: object) -> World:
        world = make_world(**fields)
        stated = {"uri": postgres.uri(), "name": f"test-{uuid4().hex[:8]}"}
        return replace(world, catalog={**world.catalog, **stated})

    return make


def test_a_landing_lands_and_the_next_run_lands_nothing(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 100))
    assert world.run().rows == 100
    assert world.run().published == ()
    world.check(Counter(range(100)))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(1, 11))
def test_a_death_at_a_durable_step(make_world: Make, produce: Produce, when: str, step: int) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 60))
    with deaths(step, when), contextlib.suppress(Killed):
        world.run("killed")
    world.settle()
    world.check(Counter(range(60)))


def test_runs_that_race_double_nothing(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 200))
    errors: list[Exception] = []

    def run(name: str) -> None:
        try:
            opened = world.open(name, release=False)
            world.write(opened)
            world.close(name, opened)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(f"race-{n}",)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    world.settle()
    assert [e for e in errors if not isinstance(e, LakecommitError)] == []
    world.check(Counter(range(200)))
