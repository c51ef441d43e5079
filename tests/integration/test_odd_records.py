# SPDX-License-Identifier: Apache-2.0
"""Records that are good but for a time or a header name that no table can hold: each lands, or is a dead letter."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from airflow_provider_lakecommit.control.backlog_reader import BacklogWatch
from airflow_provider_lakecommit.kafka.record import UNREADABLE_NAME
from airflow_provider_lakecommit.status.status import read_status, to_dict
from tests.support.declared import changed_landing
from tests.support.raw_records import Raw, send_raw
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.integration

MICROSECONDS = 1_700_000_000_000_000
"""A time in microseconds in the place of milliseconds."""
ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1, "message_timestamp_before_max_ms": 2**63 - 1}
MakeWorld = Callable[..., World]
MakeTopic = Callable[..., str]
Produce = Callable[..., list[tuple[int, int]]]


def good(i: int) -> bytes:
    return b'{"id": %d, "name": "n"}' % i


@pytest.fixture
def world(make_world: MakeWorld, make_topic: MakeTopic) -> World:
    return make_world(topics=make_topic(2, **ANY_TIME), metadata_columns=True)


@pytest.mark.heavy(but=("9223372036854775807-None", "-1-None"))
@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (MICROSECONDS, None),
        (2**63 - 1, None),
        (253_402_300_800_000, None),
        (253_402_300_799_999, datetime(9999, 12, 31, 23, 59, 59, 999000, tzinfo=UTC)),
        (-1, None),
        (-2, datetime(1969, 12, 31, 23, 59, 59, 998000, tzinfo=UTC)),
        (-(2**62), None),
    ],
)
def test_a_good_record_of_any_time_lands_and_is_planned_next_to_others(
    world: World, produce: Produce, milliseconds: int, expected: datetime | None
) -> None:
    topic = str(world.landing.topics)
    produce(topic, records(0, 3), partition=0)
    send_raw(
        world.kafka["bootstrap.servers"], topic, [Raw(value=good(3)), Raw(value=b"bad")], milliseconds=milliseconds
    )
    produce(topic, records(4, 3), partition=1)

    world.settle()

    world.check(Counter(range(7)))
    found = {row["id"]: row["kafka_timestamp"] for row in world.rows()}
    assert found[3] == expected
    (dead,) = world.rows("shop.dead")
    assert dead["timestamp"] == expected
    lost = expected is None and milliseconds != -1
    assert (f"its timestamp {milliseconds} is beyond the years 1 to 9999" in dead["reason"]) == lost
    with world.session() as session:
        assert to_dict(read_status(session))["lag"] == 0
    check_verified(world)


def test_unread_records_of_the_far_future_spoil_neither_plan_nor_status(world: World) -> None:
    topic = str(world.landing.topics)
    world.run()
    for p in (0, 1):
        send_raw(world.kafka["bootstrap.servers"], topic, [Raw(value=good(p))], partition=p, milliseconds=MICROSECONDS)
    with world.session() as session:
        found = to_dict(read_status(session))
    assert found["lag"] == 2
    opened = world.open("a")
    assert len(opened.slices) > 0
    assert not any("could not determine" in line for line in world.lines)


def test_records_whose_time_no_table_holds_are_counted_by_name(world: World) -> None:
    topic = str(world.landing.topics)
    sent = [Raw(value=good(i)) for i in range(5)]
    send_raw(world.kafka["bootstrap.servers"], topic, sent, milliseconds=MICROSECONDS)
    assert world.run().ignored_fields == {"kafka_timestamp (beyond the years 1 to 9999)": 5}


def test_a_header_whose_name_is_not_utf8_costs_neither_a_good_record_nor_a_bad_one(world: World) -> None:
    topic = str(world.landing.topics)
    headers = [(b"trace", b"1"), (b"\xff\xfe", b"odd"), (b"\xc3", None), (b"last", None)]
    sent = [Raw(value=good(0), headers=headers), Raw(value=b"bad", headers=headers), Raw(value=good(1))]
    send_raw(world.kafka["bootstrap.servers"], topic, sent, milliseconds=int(time.time() * 1000))

    world.settle()

    world.check(Counter(range(2)))
    (dead,) = world.rows("shop.dead")
    assert [(h["key"], h["value"]) for h in dead["headers"]] == [
        ("trace", b"1"),
        (UNREADABLE_NAME, b"odd"),
        (UNREADABLE_NAME, None),
        ("last", None),
    ]
    assert dead["reason"].endswith("the name of a header is not UTF-8")


def test_foreign_records_of_any_time_and_header_on_the_control_topic_stop_no_landing(
    world: World, make_topic: MakeTopic, produce: Produce
) -> None:
    control = make_topic(1, **ANY_TIME)
    world = replace(world, landing=changed_landing(world.landing, control_topic=control))
    produce(str(world.landing.topics), records(0, 3), partition=0)
    for milliseconds in (MICROSECONDS, 2**63 - 1, -(2**62)):
        odd = [Raw(value=b"x", headers=[(b"\xff", b"y"), (b"lakecommit\xff", b"z")])]
        send_raw(world.kafka["bootstrap.servers"], control, odd, milliseconds=milliseconds)
    world.settle()
    world.check(Counter(range(3)))


def test_the_age_of_a_backlog_is_of_times_that_there_are(world: World) -> None:
    topic = str(world.landing.topics)
    for p, milliseconds in enumerate((-1, MICROSECONDS)):
        send_raw(world.kafka["bootstrap.servers"], topic, [Raw(value=good(p))], partition=p, milliseconds=milliseconds)
    watch = BacklogWatch("rows", (topic,), str(world.landing.connections.control_topic), world.kafka)
    try:
        backlog = watch.read()
    finally:
        watch.close()
    assert backlog.rows == 2
    assert backlog.age is not None
    assert backlog.age < 60
