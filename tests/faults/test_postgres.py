# SPDX-License-Identifier: Apache-2.0
"""The same cycle, its deaths and its races, over a catalog in PostgreSQL."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from uuid import uuid4

import pytest

from dev.servers.postgres import Postgres
from tests.support.world import Killed, World, deaths, race, records

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
    race(world)
    world.settle()
    world.check(Counter(range(200)))
