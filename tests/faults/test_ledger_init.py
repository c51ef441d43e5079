# SPDX-License-Identifier: Apache-2.0
"""`reset offsets` where a landing is in the middle of things: what is landed stays landed, and nothing that nobody
named is read again, given up or forgotten.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.status.status import read_status
from tests.fixtures.kafka import Sender, add_partitions
from tests.support import messes
from tests.support.messes import CREATE, TABLE
from tests.support.steps import Step, check_verified, hung
from tests.support.waiting import PATIENCE
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
DEAD = "shop.dead"


def init(world: World, **offsets: int) -> None:
    """``p0=40``: partition 0 goes on at offset 40."""
    with world.session() as session:
        ledger_init(session, {(world.landing.topics, int(p[1:])): offset for p, offset in offsets.items()})


def planned(world: World) -> str:
    """What a cycle would read now."""
    with world.session() as session:
        return str(preview(session).plan.coverage).replace(world.landing.topics, "")


def landed(world: World) -> list[int | None]:
    with world.session() as session:
        return [p.landed for p in read_status(session).partitions]


@pytest.mark.campaign
def test_only_the_partition_that_is_named_moves_though_the_dead_letter_table_never_had_a_commit(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=3)
    for p in range(3):
        produce(world.landing.topics, records(100 * p, 30), partition=p)
    world.settle()
    produce(world.landing.topics, records(30, 10), partition=0)
    init(world, p0=35)
    assert landed(world) == [35, 30, 30]
    assert planned(world) == "[0] [35, 40)"
    world.settle()
    world.check(Counter([*range(30), *range(35, 40), *range(100, 130), *range(200, 230)]))
    assert world.rows(DEAD) == []
    check_verified(world)


@pytest.mark.heavy
def test_rejected_records_are_there_once_whatever_partition_goes_on_elsewhere(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=3)
    topic = world.landing.topics
    for p in range(3):
        produce(topic, [("bad", f"no json {p}"), *records(100 * p, 9)], partition=p)
    world.settle()
    for p in range(3):
        produce(topic, records(100 * p + 9, 10), partition=p)
    world.settle()
    produce(topic, [("bad", "later"), *records(19, 9)], partition=0)
    produce(topic, [("bad", "given up"), *records(119, 5), ("bad", "last")], partition=1)
    init(world, p1=22)
    assert landed(world) == [20, 22, 20]
    assert planned(world) == "[0] [20, 30), [1] [22, 27)"
    world.settle()
    world.check(Counter([*range(28), *range(100, 119), *range(120, 124), *range(200, 219)]))
    rejected = sorted(row["value"] for row in world.rows(DEAD))
    assert rejected == [b"last", b"later", b"no json 0", b"no json 1", b"no json 2"]
    check_verified(world)


@pytest.mark.campaign
def test_a_partition_that_was_added_and_landed_is_not_read_again(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, records(0, 20))
    world.settle()
    add_partitions(admin, topic, 3)
    newcomer = Sender(world.kafka["bootstrap.servers"])
    newcomer.produce(topic, records(100, 20), partition=1)
    newcomer.produce(topic, records(200, 20), partition=2)
    world.settle()
    newcomer.produce(topic, records(300, 20), partition=2)
    for start in ("earliest", {(topic, 0): 20}, "earliest"):
        with world.session() as session:
            ledger_init(session, start)
        assert planned(world) == "[2] [20, 40)"
    world.settle()
    world.check(Counter([*range(20), *range(100, 120), *range(200, 220), *range(300, 320)]))
    check_verified(world)


@pytest.mark.campaign
def test_what_is_pending_is_read_again_and_lands_once(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=2)
    topic = world.landing.topics
    produce(topic, [*records(0, 30), ("bad", "no json")], partition=0)
    produce(topic, records(100, 30), partition=1)
    opened = world.open("pending")
    world.write(opened)
    init(world, p1=10)
    closed = world.close("pending", opened)
    assert closed.published == ()
    assert len(closed.missing) == len(opened.slices)
    world.settle()
    world.check(Counter([*range(30), *range(110, 130)]))
    assert len(world.rows(DEAD)) == 1
    check_verified(world)


@pytest.mark.heavy
def test_a_commit_that_comes_between_check_and_decision_is_not_forgotten(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=2)
    topic = world.landing.topics
    produce(topic, records(0, 20), partition=0)
    world.run()
    produce(topic, [*records(20, 20), ("bad", "no json")], partition=0)
    produce(topic, records(100, 20), partition=1)
    with hung(Step.CHECKED, lambda: world.settle()):
        init(world, p1=5)
    world.settle()
    world.check(Counter([*range(40), *range(100, 120)]))
    assert len(world.rows(DEAD)) == 1
    check_verified(world)


@pytest.mark.campaign
def test_a_loss_in_another_partition_is_still_reported(make_world: Make, produce: Produce, admin: AdminClient) -> None:
    world = make_world(partitions=2)
    topic = world.landing.topics
    for p in range(2):
        produce(topic, records(100 * p, 20), partition=p)
    world.run()
    for p in range(2):
        produce(topic, records(100 * p + 20, 20), partition=p)
    partition = TopicPartition(topic, 1, 30)
    admin.delete_records([partition])[partition].result(PATIENCE)
    with pytest.raises(SourceError, match=r"\[1\] begins at 30, not at 25.*LC7013"):
        init(world, p0=30, p1=25)
    init(world, p0=30)
    with pytest.raises(SourceError, match=r"\[1\] \[20, 30\).*LC1303"):
        world.settle()
    world.lines.clear()
    with world.session() as session:
        ledger_init(session, "earliest")
    assert any(f"{TABLE}: gives up {topic}[1] [20, 30)" in line for line in world.lines)
    world.settle()
    world.check(Counter([*range(20), *range(30, 40), *range(100, 120), *range(130, 140)]))
    check_verified(world)


@pytest.mark.campaign
@pytest.mark.parametrize("mess", [messes.drop_and_make_anew, messes.expire_under_others], ids=["made anew", "cut"])
def test_where_no_ledger_has_a_partition_it_has_to_be_named(
    make_world: Make, produce: Produce, mess: Callable[[World], None]
) -> None:
    """A cut ledger is remembered: the other partition continues where it was."""
    world = make_world(partitions=2, create=CREATE, table=TABLE)
    topic = world.landing.topics
    for p in range(2):
        produce(topic, records(100 * p, 20), partition=p)
    world.run()
    mess(world)
    if mess is messes.drop_and_make_anew:
        with pytest.raises(LedgerError, match=rf"{TABLE} .*{topic}\[1\]: name it too.*LC7012"):
            init(world, p0=20)
        return
    init(world, p0=20)
    world.settle()
    found = Counter(row["id"] for row in world.rows())
    assert {found[n] for n in (*range(20), *range(100, 120))} == {1}


@pytest.mark.campaign
def test_a_first_decision_leaves_the_others_where_the_landing_begins(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=2, start="latest")
    topic = world.landing.topics
    for p in range(2):
        produce(topic, records(100 * p, 20), partition=p)
    init(world, p0=15)
    world.settle()
    world.check(Counter(range(15, 20)))
    check_verified(world)


@pytest.mark.campaign
def test_a_dead_letter_table_that_is_missing_continues_with_the_data_table_where_nothing_is_reported(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=2)
    topic = world.landing.topics
    for p in range(2):
        produce(topic, [("bad", f"no json {p}"), *records(100 * p, 20)], partition=p)
    world.settle()
    with world.session() as session:
        session.tables.catalog.drop_table(DEAD)
    init(world, p0=0)
    assert planned(world) == "[0] [0, 21)"
    world.settle()
    world.check(Counter([*range(20), *range(100, 120)]))
    assert [row["value"] for row in world.rows(DEAD)] == [b"no json 0"]
    check_verified(world)


@pytest.mark.campaign
def test_a_topic_that_the_landing_left_is_not_landed_again_when_it_comes_back(
    make_world: Make, produce: Produce, make_topic: Callable[..., str]
) -> None:
    both = [make_topic(1), make_topic(1)]
    world = make_world(topics=both)
    for n, topic in enumerate(both):
        produce(topic, records(100 * n, 20))
    world.settle()
    without = replace(world, landing=replace(world.landing, topics=both[0]), runs=100)
    init(without, p0=20)
    without.settle()
    world.settle()
    world.check(Counter([*range(20), *range(100, 120)]))
    check_verified(world)


def test_what_a_table_had_before_and_is_not_read_again_is_printed_before_a_decision_begins_it(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, [("bad", "landed"), *records(0, 20)])
    world.settle()
    produce(topic, [("bad", "reported"), *records(20, 9)])
    opened = world.open("pending")
    world.write(opened)
    with world.session() as session:
        session.tables.catalog.drop_table(DEAD)
    partition = TopicPartition(topic, 0, 25)
    admin.delete_records([partition])[partition].result(PATIENCE)
    with world.session() as session:
        dead = next(t for t in init_preview(session, "earliest").tables if t.table == DEAD)
        assert str(dead.not_again) == f"{topic}[0] [0, 21)"
        assert dead.lost == f"{topic}[0] [21, 25)"
        with pytest.raises(LedgerError, match=rf"{DEAD}: {topic}\[0\] \[21, 25\).*LC7019"):
            ledger_init(session, "earliest")
        assert session.tables.find(DEAD) is None
        ledger_init(session, "earliest", give_up_reported=True)
    world.settle()
    assert world.rows(DEAD) == []
    check_verified(world)


def test_a_table_that_begins_anew_where_the_source_begins_gives_nothing_up(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, [("bad", "no json"), *records(0, 20)])
    world.settle()
    with world.session() as session:
        session.tables.catalog.drop_table(DEAD)
        assert all(t.what == "gives up nothing" for t in init_preview(session, "earliest").tables)
        later = init_preview(session, "latest").tables
    assert [str(t.not_again) for t in later] == ["nothing", f"{world.landing.topics}[0] [0, 21)"]
