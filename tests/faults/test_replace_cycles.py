# SPDX-License-Identifier: Apache-2.0
"""Ranges taken out between the runs of a landing, on a real broker: the next run reads them again, and each record is
there once. What was reported of them before stays in the control log and is not taken for them.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.operations.backfill.range_replacement import ReplacePreview, replace, replace_preview
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import Killed, When, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
COMMIT = uuid4()


def coverage_of(world: World, *ranges: tuple[int, int, int]) -> Coverage:
    with world.session() as session:
        state = session.tables.load(world.landing.table)
        known = {p.partition: p for p in read_ledger(state.metadata).covered().parts}
    return Coverage.of((known[p], OffsetRange(a, b)) for p, a, b in ranges)


def preview(world: World, coverage: Coverage) -> tuple[ReplacePreview, ...]:
    with world.session() as session:
        return replace_preview(session, coverage)


def take_out(
    world: World, coverage: Coverage, previewed: tuple[ReplacePreview, ...] | None = None, commit: UUID = COMMIT
) -> int:
    """Rows that went, of all tables."""
    with world.session() as session:
        done = replace(session, coverage, commit_id=commit, previews=previewed)
    return sum(one.made.replaced.rows for one in done.values() if one.made is not None)


def dead(world: World) -> Counter[int]:
    return Counter(row["offset"] for row in world.rows("shop.dead"))


@pytest.mark.heavy
def test_a_reset_back_reads_again_what_it_took_out_dead_letters_too(make_world: Make, produce: Produce) -> None:
    world = make_world(metadata_columns=True)
    topic = world.landing.topics
    produce(topic, records(0, 30), partition=0)
    produce(topic, [("bad", "no json"), *records(100, 20), ("bad", "no json")], partition=1)
    world.settle()
    produce(topic, records(30, 20), partition=0)
    world.settle()
    everything = Counter([*range(50), *range(100, 120)])
    world.check(everything)
    assert dead(world) == Counter([0, 21])
    coverage = coverage_of(world, (0, 25, 50), (1, 10, 22))
    assert [(p.table, p.replaced.rows) for p in preview(world, coverage)] == [("shop.rows", 36), ("shop.dead", 1)]
    assert take_out(world, coverage) == 37
    world.check(Counter([*range(25), *range(100, 109)]))
    assert dead(world) == Counter([0])
    check_verified(world)
    world.settle()
    world.check(everything)
    assert dead(world) == Counter([0, 21])
    check_verified(world)


@pytest.mark.heavy
def test_a_hole_in_the_middle_is_read_again_next_to_what_is_new(make_world: Make, produce: Produce) -> None:
    world = make_world(metadata_columns=True, partitions=1)
    produce(world.landing.topics, records(0, 100))
    world.settle()
    take_out(world, coverage_of(world, (0, 30, 60)))
    world.check(Counter([*range(30), *range(60, 100)]))
    produce(world.landing.topics, records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    check_verified(world)


@pytest.mark.heavy(but=("reported",))
@pytest.mark.parametrize("reported", [False, True], ids=["opened", "reported"])
def test_a_window_under_way_is_void_and_read_again(make_world: Make, produce: Produce, reported: bool) -> None:
    world = make_world(metadata_columns=True)
    produce(world.landing.topics, records(0, 60))
    world.settle()
    produce(world.landing.topics, records(60, 40))
    opened = world.open("under way")
    if reported:
        world.write(opened)
    taken = take_out(world, coverage_of(world, (0, 5, 20), (1, 5, 20)))
    assert taken
    if not reported:
        world.write(opened)
    closed = world.close("under way", opened)
    assert not closed.published
    world.settle()
    world.check(Counter(range(100)))
    check_verified(world)


@pytest.mark.heavy(but=("2-after",))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
def test_whenever_it_dies_the_same_call_does_what_is_left(
    make_world: Make, produce: Produce, at: int, when: When
) -> None:
    """Its two durable steps are the commits of both tables."""
    world = make_world(metadata_columns=True)
    produce(world.landing.topics, [*records(0, 40), *(("bad", "no json") for _ in range(4))], partition=0)
    world.settle()
    coverage = coverage_of(world, (0, 20, 44))
    previewed = preview(world, coverage)
    with deaths(at, when), pytest.raises(Killed):
        take_out(world, coverage, previewed)
    take_out(world, coverage, previewed)
    world.check(Counter(range(20)))
    assert dead(world) == Counter()
    check_verified(world)
    world.settle()
    assert take_out(world, coverage, previewed) == 0, "a late repetition takes nothing out"
    world.check(Counter(range(40)))
    assert dead(world) == Counter(range(40, 44))
    check_verified(world)


@pytest.mark.heavy
def test_ranges_go_while_runs_land_and_all_is_there_once_in_the_end(make_world: Make, produce: Produce) -> None:
    """A user takes ranges out again and again, next to runs that land what is new and what is missing."""
    world, choose = make_world(metadata_columns=True), random.Random(5)
    topic, sent, taken, errors = world.landing.topics, 0, 0, list[BaseException]()
    done = threading.Event()

    def runs() -> None:
        while not done.is_set():
            try:
                world.run()
            except LakecommitError as e:
                world.lines.append(f"run: {e}")
            except BaseException as e:
                errors.append(e)
                return

    produce(topic, records(0, 200))
    world.settle()
    running = threading.Thread(target=runs)
    running.start()
    try:
        for n in range(12):
            sent += 60
            produce(topic, records(200 + 60 * n, 60))
            start = choose.randint(0, 80)
            try:
                taken += take_out(
                    world, coverage_of(world, (n % 2, start, start + choose.randint(1, 40))), commit=uuid4()
                )
            except LedgerError as e:
                # A run was faster than the person: what he saw is not what there is.
                world.lines.append(f"replace: {e}")
    finally:
        done.set()
        running.join(PATIENCE)
    assert errors == []
    world.settle(20)
    world.check(Counter(range(200 + sent)))
    check_verified(world)
    assert taken > 0


@pytest.mark.heavy
def test_an_old_preview_is_refused(make_world: Make, produce: Produce) -> None:
    world = make_world(metadata_columns=True, dead_letter_table=None)
    produce(world.landing.topics, records(0, 40), partition=0)
    world.settle()
    coverage = coverage_of(world, (0, 20, 40))
    previewed = preview(world, coverage)
    with world.session() as session:
        replace(session, coverage, commit_id=uuid4())
    world.settle()
    with pytest.raises(LakecommitError, match="LC3027"):
        take_out(world, coverage, previewed)
    world.check(Counter(range(40)))
