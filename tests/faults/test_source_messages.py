# SPDX-License-Identifier: Apache-2.0
"""What a run says of a topic that is not what the landing expects: empty, expired, compacted, in another unit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core import Budget
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from tests.support.declared import changed_landing
from tests.support.world import World, records

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
NOW = 1_760_000_000
TIMES: dict[str, Any] = {
    "partitions": 1,
    "create": {"schema": [{"name": "id", "type": "long"}, {"name": "at", "type": "timestamptz"}]},
    "timestamps": {"at": "epoch_millis"},
}


def at(*seconds: int | None) -> list[tuple[str, str]]:
    return [(str(i), json.dumps({"id": i, "at": n})) for i, n in enumerate(seconds)]


def forget(admin: AdminClient, topic: str, below: int) -> None:
    partition = TopicPartition(topic, 0, below)
    admin.delete_records([partition])[partition].result(30)


def test_seconds_that_are_read_as_milliseconds_stop_the_window_until_the_rule_is_right(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(**TIMES)
    produce(world.landing.topics, at(*range(NOW, NOW + 30), None))
    closed = world.run()
    (blocked,) = closed.blocked
    assert "column at is read by epoch_millis, and its times are in January or February 1970" in blocked
    assert "state `timestamps: {at: epoch_seconds}`" in blocked
    assert "30 of 30 times" in blocked
    assert closed.rows == 0
    world.landing = changed_landing(world.landing, timestamps={"at": "epoch_seconds"})
    world.settle()
    world.check(Counter(range(31)))


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param([NOW] * 9, id="too few to be sure"),
        pytest.param([*[NOW] * 15, *[NOW * 1000] * 5], id="some are of today"),
        pytest.param([*range(50, 70)], id="less than a second after 1970 began"),
        pytest.param([NOW - 10**12] * 20, id="before 1970"),
        pytest.param([60 * 86_400_000] * 20, id="in March 1970"),
    ],
)
def test_times_that_may_be_real_land(make_world: Make, produce: Produce, seconds: list[int]) -> None:
    world = make_world(**TIMES)
    produce(world.landing.topics, at(*seconds))
    assert (world.run().blocked, len(world.rows())) == ((), len(seconds))


def test_times_that_an_operator_reports_are_real_land(make_world: Make, produce: Produce) -> None:
    world = make_world(**TIMES)
    produce(world.landing.topics, at(*[NOW] * 20))
    assert world.run().blocked
    with world.session() as session:
        unblock(session, raise_to=Budget(max_records=0, max_ratio=1.0))
    world.settle()
    assert len(world.rows()) == 20


CASED: dict[str, Any] = {
    "partitions": 1,
    "create": {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "orderid", "type": "long"}]},
}


def cased(*fields: dict[str, int | None]) -> list[tuple[str, str]]:
    return [(str(i), json.dumps({"id": i, **each})) for i, each in enumerate(fields)]


def test_a_field_whose_column_has_another_case_stops_the_window_until_they_agree(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(**CASED)
    produce(world.landing.topics, cased(*[{"OrderId": 7}] * 30))
    closed = world.run()
    (blocked,) = closed.blocked
    assert "column orderid is null, but the records have a field OrderId, which differs only in case" in blocked
    assert "30 of 30 records" in blocked
    assert closed.rows == 0
    with world.session() as session:
        session.tables.load(world.landing.table).update_schema().rename_column("orderid", "OrderId").commit()
    world.settle()
    assert [row["OrderId"] for row in world.rows()] == [7] * 30


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param([{"OrderId": 7}] * 9, id="too few to be sure"),
        pytest.param([*[{"OrderId": 7}] * 15, *[{"orderid": 7}] * 5], id="some have the column's name"),
        pytest.param([{"OrderId": 7, "orderid": 8}] * 20, id="they are two fields"),
        pytest.param([{"OrderId": None}] * 20, id="the field is null too"),
        pytest.param([{"OrderNo": 7}] * 20, id="another name"),
    ],
)
def test_nulls_that_may_be_meant_land(make_world: Make, produce: Produce, fields: list[dict[str, int | None]]) -> None:
    world = make_world(**CASED)
    produce(world.landing.topics, cased(*fields))
    assert (world.run().blocked, len(world.rows())) == ((), len(fields))


def test_an_empty_topic_is_named(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=2)
    assert f"topic {world.landing.topics} is empty" in str(world.run().reason)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    assert "is empty" not in str(world.run().reason)


def test_the_offsets_that_were_removed_before_the_first_run_are_counted(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, records(0, 50))
    forget(admin, topic, 50)
    assert f"topic {topic} has no records: its retention removed all 50 offsets" in str(world.run().reason)


def test_a_topic_that_lost_its_beginning_warns_in_the_first_plan_only(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, records(0, 50))
    forget(admin, topic, 20)
    opened = world.open("a")
    assert [line for line in opened.explain if "its retention removed 20 of 50 offsets" in line]
    world.write(opened)
    world.close("a", opened)
    produce(topic, records(50, 5))
    assert not [line for line in world.open("b").explain if "retention removed" in line]


def test_a_compacted_topic_is_named(make_world: Make, make_topic: Callable[..., str], produce: Produce) -> None:
    world = make_world(topics=make_topic(1, cleanup_policy="compact"))
    produce(world.landing.topics, records(0, 5))
    assert [line for line in world.open("a").explain if "is compacted: Kafka keeps the newest record" in line]


def test_a_window_of_tombstones_has_a_warning_of_its_own(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, [("a", None), ("b", None)])
    assert [w for w in world.run().warnings if "tombstones" in w and "records 2" in w]
    produce(world.landing.topics, [("c", None), *records(0, 1)])
    assert not [w for w in world.run().warnings if "tombstones" in w]


def test_a_window_that_holds_not_even_one_record_is_refused(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, max_bytes=20)
    produce(world.landing.topics, [("k", json.dumps({"id": i, "name": "n" * 500})) for i in range(5)])
    world.run()
    with pytest.raises(SpecError, match=r"window\.max_bytes.*20,.*LC1336") as raised:
        world.run()
    assert raised.value.code == "LC1336"
    world.landing = changed_landing(world.landing, max_bytes=100_000)
    world.settle()
    assert len(world.rows()) == 5
