# SPDX-License-Identifier: Apache-2.0
"""What a user does to a landing who knows nothing of it, on real parts: two landings in one table, a control topic
that is moved, a dead-letter table that is put in place of another, words given while something is reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import tag_name
from airflow_provider_lakecommit.operations.decisions.prune import prunable_sections, prune
from tests.fixtures.kafka import delete_topic
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults
Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


@pytest.fixture
def forget(admin: AdminClient) -> Callable[[str, int], None]:
    """As retention does: everything below an offset of partition 0."""

    def cut(topic: str, below: int) -> None:
        partition = TopicPartition(topic, 0, below)
        admin.delete_records([partition])[partition].result(60)

    return cut


def topic_of(world: World) -> str:
    (name,) = world.landing.topic_names
    return name


def reported(world: World, name: str = "late") -> None:
    """A cycle that dies before its commit."""
    world.write(world.open(name))


def ids(world: World, table: str | None = None) -> Counter[int]:
    return Counter(row["id"] for row in world.rows(table))


class TestTwoLandingsInOneTable:
    @pytest.fixture
    def tenants(self, make_world: Make, produce: Produce, forget: Callable[[str, int], None]) -> tuple[World, World]:
        """The second one has reported 20 records that its topic has no more."""
        one, other = (make_world(1, name=name, dead_letter_table=None) for name in ("orders", "returns"))
        produce(topic_of(one), records(0, 10))
        produce(topic_of(other), records(100, 10))
        one.run()
        other.run()
        produce(topic_of(other), records(110, 20))
        reported(other)
        forget(topic_of(other), 30)
        produce(topic_of(one), records(10, 5))
        return one, other

    def expected(self) -> Counter[int]:
        return Counter([*range(15), *range(100, 130)])

    @pytest.mark.heavy
    def test_the_tag_is_dropped(self, tenants: tuple[World, World]) -> None:
        one, other = tenants
        with one.session() as session:
            session.tables.load("shop.rows").manage_snapshots().remove_tag(tag_name("main")).commit()
        one.settle()
        other.settle()
        one.check(self.expected())
        check_verified(one)
        check_verified(other)

    @pytest.mark.heavy
    def test_the_table_is_rolled_back(self, tenants: tuple[World, World]) -> None:
        one, other = tenants
        with one.session() as session:
            table = session.tables.load("shop.rows")
            head, first = table.current_snapshot(), table.current_snapshot().parent_snapshot_id
            assert head is not None
            table.manage_snapshots().set_current_snapshot(first).commit()
        with pytest.raises(
            LedgerError, match=rf"of landing returns .*put the branch back on snapshot {head.snapshot_id}.*LC6001"
        ):
            one.run()
        with one.session() as session:
            session.tables.load("shop.rows").manage_snapshots().set_current_snapshot(head.snapshot_id).commit()
        one.settle()
        other.settle()
        one.check(self.expected())


def test_the_control_topic_is_moved(
    make_world: Make, make_topic: Callable[..., str], produce: Produce, forget: Callable[[str, int], None]
) -> None:
    world = make_world(1, dead_letter_table=None)
    produce(topic_of(world), records(0, 10))
    world.run()
    produce(topic_of(world), records(10, 10))
    reported(world)
    forget(topic_of(world), 20)
    moved = replace(world, landing=changed_landing(world.landing, control_topic=make_topic(6)))
    with pytest.raises(LedgerError, match=rf"control topic {world.landing.connections.control_topic}, .*LC6002"):
        moved.run()
    world.settle()
    produce(topic_of(world), records(20, 5))
    moved.settle()
    moved.check(Counter(range(25)))
    check_verified(moved)


@pytest.mark.heavy
def test_another_dead_letter_table_takes_what_the_former_one_did_not(make_world: Make, produce: Produce) -> None:
    world = make_world(1)
    produce(topic_of(world), [*records(0, 10), "no JSON", "nor this"])
    world.run()
    produce(topic_of(world), [*records(10, 10), "a third"])
    opened = world.open("late")
    world.write(opened)
    with world.session() as session:
        session.tables.catalog.rename_table("shop.dead", "shop.broken")
    with pytest.raises(LakecommitError):
        world.close("late", opened)
    world.check(Counter(range(20)))
    after = replace(world, landing=replace(world.landing, dead_letter_table="shop.dead_too"))
    after.settle()
    found = [row["offset"] for name in ("shop.broken", "shop.dead_too") for row in after.rows(name)]
    assert sorted(found) == [10, 11, 22]
    produce(topic_of(world), ["a fourth"])
    after.settle()
    assert sorted(row["offset"] for row in after.rows("shop.dead_too")) == [22, 23]
    check_verified(after)


@pytest.mark.heavy
def test_a_ledger_is_pruned_while_something_is_reported(
    make_world: Make,
    make_topic: Callable[..., str],
    admin: AdminClient,
    produce: Produce,
    forget: Callable[[str, int], None],
) -> None:
    kept, deleted = make_topic(1), make_topic(1)
    world = make_world(1, topics=[kept, deleted], dead_letter_table=None)
    produce(kept, records(0, 10))
    produce(deleted, records(100, 10))
    world.run()
    delete_topic(admin, deleted)
    world = replace(world, landing=replace(world.landing, topics=kept))
    produce(kept, records(10, 10))
    reported(world)
    forget(kept, 20)
    lost = pytest.raises(LedgerError, match=r"\[10, ?20\) \(10 records\).*`lakecommit land`.*LC7022")
    with world.session() as session, lost:
        prune(session, prunable_sections(session)[0])
    world.settle()
    with world.session() as session:
        prune(session, prunable_sections(session)[0])
    world.settle()
    world.check(Counter([*range(20), *range(100, 110)]))
    check_verified(world)
