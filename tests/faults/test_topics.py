# SPDX-License-Identifier: Apache-2.0
"""What happens to the topics, source and control, between any two steps of a cycle.

What the source has lost is never skipped in silence: the runs end with the named error until a user says how to go
on, and then what was landed stays and what is in the topic comes. What the control topic has lost is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.model import Counts
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics
from tests.fixtures.kafka import Sender, add_partitions, create_topic, delete_topic
from tests.support import messes
from tests.support.messes import CREATE, TABLE
from tests.support.steps import Step, check_verified, interrupted_cycle
from tests.support.waiting import PATIENCE, until
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


class Topics(NamedTuple):
    """Both topics of a world in a user's hands."""

    world: World
    admin: AdminClient

    def delete(self, topic: str) -> None:
        delete_topic(self.admin, topic)

    def make(self, topic: str, partitions: int) -> None:
        create_topic(self.admin, topic, partitions)

    def cut(self, topic: str, share: float = 1.0) -> None:
        """Remove the oldest records of every partition, as retention does."""
        with SourceTopics(self.world.kafka, (topic,)) as source:
            marks = source.watermarks().partitions
        places = [
            TopicPartition(topic, p.partition, int(m.start + (m.high - m.start) * share)) for p, m in marks.items()
        ]
        for answer in self.admin.delete_records(places).values():
            answer.result(PATIENCE)

    def widen(self, topic: str, partitions: int) -> None:
        add_partitions(self.admin, topic, partitions)


class ControlMess(NamedTuple):
    name: str
    act: Callable[[Topics, str], None]


def made_anew(topics: Topics, control: str) -> None:
    topics.delete(control)
    topics.make(control, 3)


CONTROL = (
    ControlMess("deleted", lambda topics, control: topics.delete(control)),
    ControlMess("made anew", made_anew),
    ControlMess("cut", lambda topics, control: topics.cut(control)),
    ControlMess("cut in half", lambda topics, control: topics.cut(control, 0.5)),
    ControlMess("partitions added", lambda topics, control: topics.widen(control, 7)),
)


CONTROL_CASES = [
    pytest.param(
        mess,
        step,
        # A client requests a deleted topic until its patience ends.
        marks=[pytest.mark.campaign] if mess.name == "deleted" and step is not Step.REPORTED else [],
        id=f"{mess.name}, {step.name.lower()}".replace(" ", "-"),
    )
    for mess in CONTROL
    for step in (Step.OPENED, Step.REPORTED, Step.APPENDED, Step.CLOSED)
]


@pytest.mark.heavy(but=("cut,-closed",))
@pytest.mark.parametrize(("mess", "step"), CONTROL_CASES)
def test_what_a_control_topic_loses_is_read_again(
    make_world: Make, produce: Produce, admin: AdminClient, mess: ControlMess, step: Step
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    topic, control = world.landing.topics, world.landing.control_topic_name
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))
    interrupted_cycle(world, step, lambda: mess.act(Topics(world, admin), control))
    produce(topic, records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    check_verified(world)


@pytest.mark.heavy
def test_a_table_made_anew_is_no_first_run_though_partitions_were_added_to_the_control_topic(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    for partitions in (4, 5, 7):
        world = make_world(name=f"of-{partitions}", create=CREATE, table=TABLE, dead_letter_table=None)
        produce(world.landing.topics, records(0, 40))
        world.run()
        Topics(world, admin).widen(world.landing.control_topic_name, partitions)
        messes.drop_and_make_anew(world)
        with pytest.raises(messes.ANEW.error, match=messes.ANEW.message):
            world.settle()
        messes.from_earliest(world)
        world.settle()
        world.check(Counter(range(40)))
        messes.drop(world)


@pytest.mark.heavy
def test_a_dead_letter_table_that_was_dropped_is_filled_again_and_not_taken_for_a_new_one(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table="shop.dead")
    produce(world.landing.topics, [*records(0, 40), ("bad", "no json")])
    world.run()
    with world.session() as session:
        session.tables.catalog.drop_table("shop.dead")
    produce(world.landing.topics, [*records(40, 10), ("bad", "no json either")])
    with pytest.raises(messes.ANEW.error, match=messes.ANEW.message):
        world.settle()
    messes.from_earliest(world)
    world.settle()
    world.check(Counter(range(50)))
    assert len(world.rows("shop.dead")) == 2
    check_verified(world)


@pytest.mark.heavy(but=("reported-more",))
@pytest.mark.parametrize("partitions", [2, 1, 4], ids=["same", "fewer", "more"])
@pytest.mark.parametrize("step", [Step.OPENED, Step.REPORTED, Step.CLOSED], ids=lambda step: step.name.lower())
def test_a_source_topic_recreated_is_an_error_until_a_user_decides(
    make_world: Make, produce: Produce, admin: AdminClient, step: Step, partitions: int
) -> None:
    world = make_world(create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    topic, topics = world.landing.topics, Topics(world, admin)
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))

    def anew() -> None:
        topics.delete(topic)
        topics.make(topic, partitions)

    interrupted_cycle(world, step, anew)
    newcomer = Sender(world.kafka["bootstrap.servers"])  # one that has not seen the topic before
    for p in range(partitions):
        newcomer.produce(topic, records(200 + 30 * p, 30), partition=p)
    with pytest.raises(SourceError, match=r"recreated.*reset offsets SPEC --from earliest.*LC1304"):
        world.settle()
    landed = Counter(row["id"] for row in world.rows())
    assert landed in (Counter(range(40)), Counter(range(100))), "whole windows, or nothing of them"
    assert (step is Step.OPENED) == (len(landed) == 40)
    messes.from_earliest(world)
    world.settle()
    world.check(landed + Counter(range(200, 200 + 30 * partitions)))
    check_verified(world)


def test_offsets_that_retention_removes_between_plan_and_read_are_an_error_until_a_user_decides(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1, create=CREATE, table=TABLE, dead_letter_table=None, slice_records=20)
    topic = world.landing.topics
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))
    partition = TopicPartition(topic, 0, 70)
    interrupted_cycle(world, Step.OPENED, lambda: admin.delete_records([partition])[partition].result(PATIENCE))
    produce(topic, records(100, 20))
    with pytest.raises(SourceError, match=r"\[40, 70\).*LC1303"):
        world.settle()
    messes.from_earliest(world)
    world.settle()
    world.check(Counter([*range(40), *range(70, 120)]))
    check_verified(world)


def test_what_compaction_removes_between_plan_and_read_is_counted_as_gaps(
    make_world: Make, produce: Produce, make_topic: Callable[..., str]
) -> None:
    settings = {
        "cleanup_policy": "compact",
        "min_cleanable_dirty_ratio": "0.01",
        "max_compaction_lag_ms": "100",
        "segment_ms": "100",
        "delete_retention_ms": "100",
    }
    topic = make_topic(1, **settings)
    world = make_world(topics=topic, create=CREATE, table=TABLE, dead_letter_table=None, slice_records=100)
    produce(topic, records(0, 20))
    world.run()
    produce(topic, [*records(20, 20), *records(20, 20), *records(20, 20)])

    def compact() -> None:
        """New records roll the segment; then wait until what they replace is missing."""

        def compacted() -> bool:
            produce(topic, records(500, 1))
            return _records_below(world, topic) < 80

        until(compacted, what="a compaction", pause=0.3)

    opened = world.open("compacted")
    compact()
    world.write(opened)
    closed = world.close("compacted", opened)
    counts = sum((p.counts for p in closed.published), Counts())
    assert counts.landed + counts.gaps == 60
    assert counts.gaps > 0
    world.settle()
    found = Counter(row["id"] for row in world.rows())
    assert set(found) == {*range(40), 500}, "of each key the last record at least"
    check_verified(world)


def _records_below(world: World, topic: str) -> int:
    """Records below offset 80 that a reader still gets."""
    from confluent_kafka import Consumer

    consumer = Consumer({**world.kafka, "group.id": "looks", "enable.auto.commit": False, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    below = 0
    try:
        while (message := consumer.poll(PATIENCE)) is not None and message.error() is None:
            below += (message.offset() or 0) < 80
    finally:
        consumer.close()
    return below
