# SPDX-License-Identifier: Apache-2.0
"""The landing itself changes while slices are pending: another spec version, on both settings of `on_spec_change`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.messes import CREATE, TABLE, evolve_spec
from tests.faults.steps import Step, check_verified, interrupted_cycle
from tests.faults.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]


@pytest.mark.parametrize("step", [Step.OPENED, Step.REPORTED, Step.APPENDED], ids=lambda step: step.name.lower())
@pytest.mark.parametrize("evolved", [False, True], ids=["", "with the partition spec"])
@pytest.mark.parametrize("on_spec_change", ["finish", "void"])
def test_a_spec_change_with_slices_pending(
    make_world: Make, produce: Produce, on_spec_change: str, evolved: bool, step: Step
) -> None:
    world = make_world(
        create=CREATE, table=TABLE, dead_letter_table="shop.dead", slice_records=100, on_spec_change=on_spec_change
    )
    topic, before = world.landing.topics, world.landing.spec_version
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))

    def change() -> None:
        world.landing = replace(world.landing, unknown_fields="dead_letter")
        if evolved:
            evolve_spec(world)

    interrupted_cycle(world, step, change)
    assert world.landing.spec_version != before
    produce(topic, records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    check_verified(world)


@pytest.mark.parametrize(("on_spec_change", "read_again"), [("finish", 0), ("void", 60)])
def test_pending_slices_are_finished_or_voided_as_the_landing_says(
    make_world: Make, produce: Produce, on_spec_change: str, read_again: int
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table="shop.dead", on_spec_change=on_spec_change)
    produce(world.landing.topics, records(0, 60))
    world.write(world.open("before"))
    world.landing = replace(world.landing, unknown_fields="dead_letter")
    opened = world.open("after")
    assert sum(len(s) for s in opened.slices) == read_again
    world.write(opened)
    assert world.close("after", opened).rows == 60
    world.settle()
    world.check(Counter(range(60)))
