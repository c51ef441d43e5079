# SPDX-License-Identifier: Apache-2.0
"""How much of the control topic a landing reads that has nothing to do, next to others in its partition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from confluent_kafka import Message, Producer

from airflow_provider_lakecommit.control.records import Sender
from airflow_provider_lakecommit.core.log import Directives
from airflow_provider_lakecommit.cycle.commit.refresh import MOVE_AFTER
from airflow_provider_lakecommit.kafka.partition_tail import PartitionTail
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.integration

OTHERS = 400


@contextmanager
def counted() -> Iterator[list[int]]:
    """The bytes of each record that a control partition was read of."""
    sizes: list[int] = []
    read = PartitionTail.read

    def reading(self: PartitionTail, start: int, end: int) -> Iterator[Message]:
        for message in read(self, start, end):
            sizes.append(len(message.value() or b"") + sum(len(v or b"") for _, v in message.headers() or ()))
            yield message

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionTail, "read", reading)
        yield sizes


def others_send(world: World, rounds: int) -> None:
    """What four hundred idle landings say in so many runs each, in this landing's partition."""
    producer, at = Producer({**world.kafka}), datetime.now(UTC)
    with world.session() as session:
        partition = session.control.partition_for(world.landing.group_id)
    for n in range(OTHERS * rounds):
        sender = Sender(landing=f"other-{n % OTHERS}", lane="live", role="commit", commit_id=uuid4())
        message = sender.closed(uuid4(), at, at, Directives())
        producer.produce(
            world.landing.control_topic_name, message.value, message.key, partition, headers=list(message.headers)
        )
        producer.poll(0)
    assert producer.flush(60) == 0


@pytest.mark.heavy
def test_an_idle_landing_reads_what_came_since_and_not_what_was_reported_since_it_last_had_rows(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 40))
    world.run()
    others_send(world, 1 + MOVE_AFTER // OTHERS)
    with counted() as before:
        world.run()
    assert len(before) > MOVE_AFTER, "it has to read once what was said meanwhile"
    world.run()
    with counted() as after:
        world.run()
    assert sum(after) < sum(before) / 50, f"{sum(before)} bytes before, {sum(after)} after"
    produce(world.landing.topics, records(40, 40))
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == list(range(80))
    check_verified(world)


def test_the_tasks_of_a_window_read_from_its_start_and_not_from_where_the_ledger_reports(
    make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(partitions=2, groups=2)
    produce(world.landing.topics, records(0, 40))
    world.run()
    others_send(world, 5)
    produce(world.landing.topics, records(40, 40))
    opened = world.open("next")
    with counted() as read:
        world.write(opened)
    assert len(read) < OTHERS
    world.close("next", opened)
    check_verified(world)
