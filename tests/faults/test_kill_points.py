# SPDX-License-Identifier: Apache-2.0
"""Death between every two durable steps of a cycle, and the reruns that must make it good."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.support.world import Killed, World, deaths, records

Make = Callable[..., World]


def test_a_cycle_lands_what_is_new_and_the_next_one_nothing(make_world: Make, produce: Callable[..., object]) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 200))
    first = world.run()
    assert (first.rows, first.left, first.missing) == (200, 0, ())
    world.check(Counter(range(200)))
    second = world.run()
    assert (second.published, second.reason) == ((), "nothing new")
    assert second.valid_through is not None


BAD = ("bad", '{"id": "not a number"}')


def _first_run(world: World) -> None:
    opened = world.open("killed")
    world.write(opened)
    world.close("killed", opened)


@pytest.mark.heavy(but=("every third, after",))
@pytest.mark.parametrize(
    ("when", "stride"), [("before", 1), ("after", 1), ("after", 3)], ids=["before", "after", "every third, after"]
)
def test_a_death_at_any_durable_step_loses_and_doubles_nothing(
    make_world: Make, produce: Callable[..., object], when: str, stride: int
) -> None:
    survived, step = False, 0
    while not survived:
        step += stride
        world = make_world(name=f"kill-{when}-{step}", table=f"shop.rows{step}", dead_letter_table=f"shop.dead{step}")
        produce(world.landing.topics, [*records(0, 70), BAD])
        with deaths(step, when) as observed:
            try:
                _first_run(world)
                survived = len(observed.steps) < step
            except Killed:
                pass
        produce(world.landing.topics, records(70, 30))
        world.settle()
        world.check(Counter(range(100)))
        assert len(world.rows(world.landing.dead_letter_table)) == 1, f"step {step}: {observed.steps}"
    # two origins, a plan, two slices, two tables with two steps each, COMPLETE
    assert step > 10, f"only {step} steps were tried"


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before", "after"])
def test_the_killed_run_itself_goes_on_when_it_is_retried(
    make_world: Make, produce: Callable[..., object], when: str
) -> None:
    survived, step = False, 0
    while not survived:
        step += 1
        world = make_world(name=f"retry-{when}-{step}", table=f"shop.rows{step}", dead_letter_table=None)
        produce(world.landing.topics, records(0, 60))
        with deaths(step, when) as observed:
            try:
                _first_run(world)
                survived = len(observed.steps) < step
            except Killed:
                pass
        closed = world.run("killed", retry=True)
        values = {p.snapshot_id for p in closed.published}
        assert values or closed.finished, f"step {step}: the retried run tells of no snapshot: {observed.steps}"
        world.check(Counter(range(60)))
    assert step > 7, f"only {step} steps were tried"


def test_a_run_reports_through_when_the_tables_are_complete(make_world: Make, produce: Callable[..., object]) -> None:
    world = make_world(slice_records=10)
    produce(world.landing.topics, [*records(0, 60), BAD])
    closed = world.run()
    assert (closed.waiting, closed.missing) == ((), ())
    assert closed.valid_through is not None
    assert closed.rows == 60
    again = world.run()
    assert again.valid_through is not None
    assert again.valid_through > closed.valid_through
