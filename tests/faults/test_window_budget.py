# SPDX-License-Identifier: Apache-2.0
"""The ratio of rejected records is that of a window: however it is sliced, retried, or overtaken by another run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.world import World, records

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
BAD: list[Any] = [("x", "no json")]
RATIO: dict[str, Any] = {"partitions": 1, "slice_records": 100, "dead_letter_max_ratio": 0.2}


@pytest.mark.parametrize("slice_records", [100, 400])
def test_a_window_within_the_ratio_lands_however_it_is_sliced(
    make_world: Make, produce: Produce, slice_records: int
) -> None:
    world = make_world(**{**RATIO, "slice_records": slice_records})
    produce(world.landing.topics, [*BAD * 60, *records(0, 340)])
    closed = world.run()
    assert (closed.blocked, closed.rows) == ((), 340)
    assert closed.counts.records == 400
    assert any("15.0% of the window" in w and "dead_letters.max_ratio" in w for w in closed.warnings)
    world.check(Counter(range(340)))
    check_verified(world)


def test_less_than_one_percent_is_no_share_of_a_warning(make_world: Make, produce: Produce) -> None:
    world = make_world(**RATIO)
    produce(world.landing.topics, [*BAD, *records(0, 199)])
    assert not any("of the window" in w for w in world.run().warnings)


def test_a_window_over_the_ratio_blocks_its_worst_slice_and_publishes_what_is_before(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(**RATIO)
    topic = world.landing.topics
    produce(topic, [*records(0, 100), *BAD * 50, *records(100, 50), *BAD * 45, *records(150, 155)])
    closed = world.run()
    (blocked,) = closed.blocked
    assert "[100, 200)" in blocked
    assert "95 rejected records of 400 in its window are over dead_letters.max_ratio=0.2, 50 of 100" in blocked
    assert closed.causes
    assert (closed.rows, closed.missing) == (100, ())
    assert [w for w in closed.waiting if w.startswith("shop.rows: ") and ("[200, 300)" in w or "[300, 400)" in w)]
    assert world.run().blocked == (blocked,), "nothing changed, so nothing is read again"
    with world.session() as session:
        assert unblock(session, skip=True, only_bad=True)["read_again"] == {f"{topic}[0]": [[100, 200]]}
    world.settle()
    world.check(Counter(range(305)))
    assert len(world.rows("shop.dead")) == 95
    check_verified(world)


def test_a_commit_of_another_run_waits_for_the_rest_of_a_window(make_world: Make, produce: Produce) -> None:
    world = make_world(**RATIO)
    topic = world.landing.topics
    produce(topic, [*BAD * 60, *records(0, 340)])
    first = world.open("a", release=False)
    world.write(first, only=lambda index: index == 0)
    produce(topic, records(340, 10))
    second = world.open("b", release=False)
    world.write(second)
    assert world.close("b", second).published == ()
    world.write(first, only=lambda place: place > 0)
    closed = world.close("a", first)
    assert closed.blocked == ()
    world.settle()
    world.check(Counter(range(350)))


@pytest.mark.parametrize(("good", "blocked"), [(340, 0), (100, 1)])
def test_the_window_of_a_run_that_died_is_evaluated_with_its_rest(
    make_world: Make, produce: Produce, good: int, blocked: int
) -> None:
    world = make_world(**RATIO)
    topic = world.landing.topics
    produce(topic, [*BAD * 60, *records(0, good)])
    world.write(world.open("dies"), only=lambda index: index == 0)
    assert len(world.run().blocked) == blocked
    world.check(Counter() if blocked else Counter(range(good)))


def test_a_run_that_is_repeated_after_its_decision_decides_nothing_new(make_world: Make, produce: Produce) -> None:
    world = make_world(**RATIO)
    produce(world.landing.topics, [*BAD * 50, *records(0, 50), *BAD * 45, *records(50, 255)])
    first = world.run("a")
    again = world.run("a", retry=True)
    assert again.finished
    assert len(first.blocked) == 1
    assert world.run().blocked == first.blocked


def test_a_range_that_is_tried_again_is_evaluated_with_its_window(make_world: Make, produce: Produce) -> None:
    world = make_world(**RATIO)
    topic = world.landing.topics
    produce(topic, [*BAD * 50, *records(0, 50), *BAD * 45, *records(50, 255)])
    assert world.run().blocked
    again = changed_landing(world.landing, dead_letter_max_ratio=0.6)
    for landing, blocked in ((world.landing, 1), (again, 0)):
        world.landing = landing
        with world.session() as session:
            unblock(session, raise_to=landing.budget)
        produce(topic, records(305 if blocked else 310, 5))
        assert len(world.run().blocked) == blocked
    world.settle()
    world.check(Counter(range(315)))
