# SPDX-License-Identifier: Apache-2.0
"""The fault matrix: every mess of :mod:`tests.support.messes` between any two steps of a cycle.

Afterwards every id is in the table exactly once (the other writer's own changes aside), `verify` finds nothing wrong,
and whatever the landing did not get over by itself was reported with its remedy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import test_engine
from tests.support.messes import CREATE, MESSES, TABLE, Mess
from tests.support.steps import Step, check_verified, interrupted_cycle
from tests.support.world import World, records

PAGE = Path(__file__).parents[2] / "docs" / "project" / "fault_matrix.rst"

Make = Callable[..., World]
Produce = Callable[..., object]


MARKS = {Step.CHECKED: [], Step.REPORTED: [pytest.mark.heavy], Step.APPENDED: [pytest.mark.heavy]}
"""Where a mess meets other code than elsewhere. `make test` tries every fifth mess at the step that decides, `make
test-all` all of them at all steps.
"""

CASES = [
    pytest.param(
        mess,
        step,
        marks=MARKS.get(step, [pytest.mark.campaign]) or ([pytest.mark.heavy] if n % 5 else []),
        id=f"{mess.name}, {step.name.lower()}".replace(" ", "-"),
    )
    for n, mess in enumerate(MESSES)
    for step in Step
]


@pytest.mark.faults
@pytest.mark.parametrize(("mess", "step"), CASES)
def test_a_mess_between_two_steps(make_world: Make, produce: Produce, mess: Mess, step: Step) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    topic = world.landing.topics
    mess.before(world)
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))
    interrupted_cycle(world, step, lambda: mess.act(world))
    produce(topic, records(100, 20))
    if mess.cure is not None:
        with pytest.raises(mess.cure.error, match=mess.cure.message):
            world.settle()
        mess.cure.remedy(world)
    world.settle()
    world.check(Counter(range(120)) - Counter(mess.removes) + Counter(mess.adds))
    check_verified(world)


def test_the_page_of_the_fault_matrix_lists_what_is_tested() -> None:
    page = PAGE.read_text()
    for mess in (*MESSES, *test_engine.MESSES):
        assert f"   * - {mess.name}\n     - {mess.cure.remedy_text if mess.cure else 'the next runs'}\n" in page
