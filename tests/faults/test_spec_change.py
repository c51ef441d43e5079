# SPDX-License-Identifier: Apache-2.0
"""The landing itself changes while slices are pending: another spec version, on both settings of `on_spec_change`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from airflow_provider_lakecommit.control.records import read_entry
from airflow_provider_lakecommit.core.log import SliceReported
from airflow_provider_lakecommit.core.model import LIVE
from airflow_provider_lakecommit.exceptions import LakecommitError
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from tests.support.declared import changed_landing
from tests.support.messes import CREATE, TABLE, evolve_spec
from tests.support.steps import Step, check_verified, interrupted_cycle
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]


@pytest.mark.heavy(but=("finish--reported",))
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
        world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
        if evolved:
            evolve_spec(world)

    interrupted_cycle(world, step, change)
    assert world.landing.spec_version != before
    produce(topic, records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    check_verified(world)


def reported(world: World) -> list[tuple[int, int, str]]:
    """First offset, rejected records and spec version of each report, in order of the log."""
    with world.session() as session:
        entries = [read_entry(r, world.landing.name, LIVE) for r in session.control.read_all()]
    reports = [e.report for e in entries if isinstance(e, SliceReported)]
    return [(span.span.range.start, span.counts.rejected, r.spec_version) for r in reports for span in r.spans]


def half_strange(make_world: Make, produce: Produce, on_spec_change: str) -> World:
    """Two slices of twenty records; every other record has a field that the table lacks."""
    budget = {"dead_letter_max_records": 40, "dead_letter_max_ratio": 1.0}
    world = make_world(
        partitions=1, create=CREATE, table=TABLE, slice_records=20, on_spec_change=on_spec_change, **budget
    )
    values = [{"id": i, "stranger": 1} if i % 2 else {"id": i} for i in range(40)]
    produce(world.landing.topics, [(str(v["id"]), v) for v in values])
    return world


def dead_ids(world: World) -> Counter[int]:
    return Counter(row["offset"] for row in world.rows("shop.dead"))


@pytest.mark.parametrize("on_spec_change", ["finish", "void"])
def test_rejected_records_of_pending_slices_are_not_lost_with_their_table(
    make_world: Make, produce: Produce, on_spec_change: str
) -> None:
    """The table for dead letters is gone from the spec: nothing would publish them."""
    world = half_strange(make_world, produce, on_spec_change)
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    opened = world.open("changed")
    world.write(opened)
    world.landing = changed_landing(world.landing, dead_letter_table=None)
    assert world.close("changed", opened).published == ()
    assert len(world.run().blocked) >= 1
    assert world.rows() == []
    world.landing = changed_landing(world.landing, dead_letter_table="shop.dead")
    with world.session() as session:
        unblock(session)
    world.settle()
    assert dead_ids(world) == Counter(range(1, 40, 2))
    world.check(Counter(range(0, 40, 2)))
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize("on_spec_change", ["finish", "void"])
def test_a_spec_that_changes_in_mid_run_is_named_by_what_was_decoded_with_it(
    make_world: Make, produce: Produce, on_spec_change: str
) -> None:
    """As when a DAG file changes between the tasks of a run: planned with the old landing, written with the new."""
    world = half_strange(make_world, produce, on_spec_change)
    opened, before = world.open("changed"), world.landing.spec_version
    world.write(opened, only=lambda index: index == 0)
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    world.write(opened)
    assert opened.plan.spec_version == before != world.landing.spec_version
    assert reported(world) == [(0, 0, before), (20, 10, world.landing.spec_version)]
    assert world.close("changed", opened).voided == ()
    world.settle()
    assert dead_ids(world) == Counter(range(21, 40, 2))
    world.check(Counter(range(40)) - dead_ids(world))
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize(("on_spec_change", "voided"), [("finish", 0), ("void", 20)])
def test_what_such_a_run_leaves_is_for_the_next_plan_to_finish_or_to_void(
    make_world: Make, produce: Produce, on_spec_change: str, voided: int
) -> None:
    world = make_world(
        partitions=1,
        create=CREATE,
        table=TABLE,
        slice_records=20,
        on_spec_change=on_spec_change,
        dead_letter_table=None,
    )
    produce(world.landing.topics, records(0, 60))
    opened = world.open("changed")
    world.write(opened, only=lambda index: index != 1)
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    closed = world.close("changed", opened)
    assert (closed.rows, len(closed.waiting)) == (20, 1), "the first slice; the third waits for the second"
    assert sum(map(len, world.open("next").slices)) == 20 + voided
    world.settle()
    world.check(Counter(range(60)))
    check_verified(world)


@pytest.mark.parametrize(("on_spec_change", "read_again"), [("finish", 0), ("void", 60)])
def test_pending_slices_are_finished_or_voided_as_the_landing_reports(
    make_world: Make, produce: Produce, on_spec_change: str, read_again: int
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table="shop.dead", on_spec_change=on_spec_change)
    produce(world.landing.topics, records(0, 60))
    world.write(world.open("before"))
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    opened = world.open("after")
    assert sum(len(s) for s in opened.slices) == read_again
    world.write(opened)
    assert world.close("after", opened).rows == 60
    world.settle()
    world.check(Counter(range(60)))


VOIDING = {
    "partitions": 1,
    "create": CREATE,
    "table": TABLE,
    "dead_letter_table": "shop.dead",
    "slice_records": 20,
    "on_spec_change": "void",
    "dead_letter_max_ratio": 1.0,
}


def test_a_voiding_spec_change_evaluates_nothing_anew_that_is_landed(make_world: Make, produce: Produce) -> None:
    """A dead-letter table that got no rows must not lag behind: what it has passed is passed for good."""
    world = make_world(**VOIDING)
    strangers = [(str(i), {"id": i, "stranger": 1}) for i in range(40)]
    produce(world.landing.topics, strangers)
    world.run()
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    assert world.open("next").slices == ()
    produce(world.landing.topics, [("a", {"id": 40}), ("b", {"id": 41, "stranger": 1})])
    world.settle()
    assert dead_ids(world) == Counter([41])
    world.check(Counter(range(41)))
    check_verified(world)


def rename(world: World, table: str, to: str) -> None:
    with world.session() as session:
        session.tables.catalog.rename_table(table, to)


@pytest.mark.heavy
def test_a_voiding_spec_change_waits_for_dead_letters_of_what_is_landed(make_world: Make, produce: Produce) -> None:
    world = make_world(**VOIDING)
    produce(world.landing.topics, records(0, 1))
    world.run()
    produce(world.landing.topics, [(str(i), {"id": i} if i % 2 else {"id": "none"}) for i in range(1, 21)])
    opened = world.open("halfway")
    world.write(opened)
    rename(world, "shop.dead", "shop.elsewhere")
    with pytest.raises(LakecommitError, match=r"shop\.dead.*LC6015"):
        world.close("halfway", opened)
    rename(world, "shop.elsewhere", "shop.dead")
    world.landing = changed_landing(world.landing, unknown_fields="dead_letter")
    opened = world.open("next")
    assert "shop.dead has not yet received" in str(opened.plan.reason)
    assert world.close("next", opened).waiting == ()
    assert world.open("after").slices == ()
    world.settle()
    assert len(dead_ids(world)) == 10
    world.check(Counter([0, *range(1, 21, 2)]))
    check_verified(world)
