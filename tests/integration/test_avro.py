# SPDX-License-Identifier: Apache-2.0
"""Framed Avro from a real topic to a real table: schemas that change, a registry that is away, wrong or forgetful."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.formats.registry.framing import VALUE_HEADER
from airflow_provider_lakecommit.landing.registry import with_registry
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay
from airflow_provider_lakecommit.spark.job import SliceStatus
from tests.fakes.registry import HTML, FakeRegistry
from tests.support.avro_shapes import encoded
from tests.support.groups import group_job
from tests.support.world import World

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "country", "type": ["null", "string"]}],
}
NEWER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "note", "type": "string"},
        {"name": "land", "type": "string", "aliases": ["country"]},
        {"name": "id", "type": "int"},
    ],
}
CREATE = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "country", "type": "string"}]}

DECISION = Decision(
    command="dead-letters --replay", actor="ann", host="here", at="2026-01-01T00:00:00+00:00", reason="it knows them"
)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def world(make_world: Callable[..., World], fake: FakeRegistry) -> World:
    made = make_world(partitions=1, format="avro", create=CREATE)
    settings = {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}
    made.kafka = with_registry(made.kafka, settings)
    return made


def topic_of(world: World) -> str:
    return world.landing.topic_names[0]


def framed(number: int, schema: Any, value: Any) -> bytes:
    return b"\x00" + number.to_bytes(4) + encoded(schema, value)


def orders(number: int, *ids: int) -> list[bytes]:
    return [framed(number, ORDER, {"id": i, "country": (1, "DE")}) for i in ids]


def newer(number: int, *ids: int) -> list[bytes]:
    return [framed(number, NEWER, {"note": "n", "land": "FR", "id": i}) for i in ids]


def dead(world: World) -> list[tuple[int, str, str]]:
    rows = world.rows(world.landing.dead_letter_table)
    return sorted((row["offset"], row["kind"], row["reason"]) for row in rows)


def test_schemas_change_within_a_slice(world: World, fake: FakeRegistry, produce: Produce) -> None:
    first, second = fake.register("orders-value", ORDER), fake.register("orders-value", NEWER)
    values = [*orders(first, 0, 1), *newer(second, 2, 3), *orders(first, 4), *newer(second, 5)]
    produce(topic_of(world), values, 0)
    closed = world.run()
    assert {row["id"]: row["country"] for row in world.rows()} == {0: "DE", 1: "DE", 2: "FR", 3: "FR", 4: "DE", 5: "FR"}
    assert closed.published
    assert dead(world) == []
    assert sorted(fake.requests) == [f"/schemas/ids/{first}", f"/schemas/ids/{second}"]


@pytest.mark.heavy
def test_older_records_are_read_by_the_readers_schema(
    make_world: Callable[..., World], fake: FakeRegistry, produce: Produce
) -> None:
    old = {"name": "nation", "type": ["null", "string"]}
    older = {**ORDER, "fields": [ORDER["fields"][0], old]}
    oldest = {**ORDER, "fields": ORDER["fields"][:1]}
    arguments = {**ORDER, "fields": [{**old, "name": "country", "aliases": ["nation"], "default": "NL"}]}
    # As every field that a table lacks, the older name would be a column of its own.
    world = make_world(partitions=1, format="avro", create=CREATE, reader_schema=arguments, evolve="add")
    world.kafka = with_registry(
        world.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}
    )
    numbers = [fake.register("orders-value", schema) for schema in (oldest, older, ORDER)]
    values = [
        framed(numbers[0], oldest, {"id": 0}),
        framed(numbers[1], older, {"id": 1, "nation": (1, "BE")}),
        framed(numbers[2], ORDER, {"id": 2, "country": (0, None)}),
    ]
    produce(topic_of(world), values, 0)
    world.run()
    assert {row["id"]: row["country"] for row in world.rows()} == {0: "NL", 1: "BE", 2: None}
    assert "nation" not in world.rows()[0]


def test_what_confluents_serializer_writes_lands(world: World, fake: FakeRegistry, produce: Produce) -> None:
    topic = topic_of(world)
    fake.register(f"{topic}-value", ORDER)
    with SchemaRegistryClient({"url": fake.url}) as client:
        arguments = {"auto.register.schemas": False, "use.latest.version": True}
        serializer = AvroSerializer(client, json.dumps(ORDER), conf=arguments)
        context = SerializationContext(topic, MessageField.VALUE)
        values = [serializer({"id": i, "country": None if i else "DE"}, context) for i in range(3)]
    produce(topic, values, 0)
    world.run()
    assert {row["id"]: row["country"] for row in world.rows()} == {0: "DE", 1: None, 2: None}


@pytest.mark.heavy
def test_a_schema_that_a_header_names(world: World, fake: FakeRegistry, produce: Produce) -> None:
    number = fake.register("orders-value", ORDER)
    head = SchemaId("AVRO", guid=fake.ids[number].guid).guid_to_bytes()
    bare = encoded(ORDER, {"id": 7, "country": (0, None)})
    produce(topic_of(world), [("k", bare)], 0, headers=[(VALUE_HEADER, head)])
    produce(topic_of(world), orders(number, 8), 0)
    world.run()
    assert sorted(row["id"] for row in world.rows()) == [7, 8]
    assert dead(world) == []


def test_each_bad_record_is_named_with_its_schema(world: World, fake: FakeRegistry, produce: Produce) -> None:
    number = fake.register("orders-value", ORDER)
    proto = fake.register("other-value", 'syntax = "proto3";', kind="PROTOBUF")
    alien = {"type": "record", "name": "Click", "fields": [{"name": "url", "type": "string"}]}
    click = fake.register("clicks-value", alien)
    good = orders(number, 1)[0]
    values = [
        good,
        good[:-1],
        good + b"\x00",
        b'{"id": 3}',
        good[:1] + (99).to_bytes(4) + good[5:],
        good[:1] + proto.to_bytes(4) + b"\x00\x08\x01",
        framed(click, alien, {"url": "http://x"}),
        orders(number, 2)[0],
    ]
    produce(topic_of(world), values, 0)
    world.run()
    assert sorted(row["id"] for row in world.rows()) == [1, 2]
    found = dead(world)
    kinds = ["not_avro", "not_avro", "not_framed", "unknown_schema", "wrong_schema", "wrong_schema"]
    assert [(offset, kind) for offset, kind, _ in found] == list(enumerate(kinds, start=1))
    reasons = [reason for _, _, reason in found]
    assert f"(schema id {number})" in reasons[0]
    assert "1 bytes are left after the record" in reasons[1]
    assert "has no schema id 99" in reasons[3]
    assert reasons[4] == f"schema id {proto} is of type PROTOBUF; the landing reads Avro"
    assert "schema id 3: the schema of record Click has no field of the table (it has url)" in reasons[5]


@pytest.mark.heavy(but=("answer0",))
@pytest.mark.parametrize(
    "answer", [(500, "application/json", b'{"error_code": 50001}'), HTML, (404, "text/html", b"gone")]
)
def test_a_registry_that_is_wrong_in_mid_window_costs_time_and_no_record(
    world: World, fake: FakeRegistry, produce: Produce, answer: tuple[int, str, bytes]
) -> None:
    first, second = fake.register("orders-value", ORDER), fake.register("orders-value", NEWER)
    # The first slice can be read, the registry goes before the second one needs what is new.
    produce(topic_of(world), [*orders(first, *range(40)), *orders(first, 40), *newer(second, 41)], 0)
    fake.before = lambda path: answer if path.endswith(f"/{second}") else None
    opened = world.open("a")
    results = world.write(opened)
    assert [r.status for r in results] == [SliceStatus.DONE, SliceStatus.AGAIN]
    assert "RegistryError" in results[1].detail
    assert f"schema id {second}" in results[1].detail
    world.close("a", opened)
    assert len(world.rows()) == 40
    fake.before = lambda _path: None
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == list(range(42))
    assert dead(world) == []


@pytest.mark.heavy
def test_an_id_that_is_forgotten_in_mid_window_is_named(world: World, fake: FakeRegistry, produce: Produce) -> None:
    number = fake.register("orders-value", {**ORDER, "name": "Forgotten"})
    produce(topic_of(world), orders(number, 1, 2), 0)
    fake.forget(number)
    world.run()
    assert world.rows() == []
    assert [(kind, f"no schema id {number}" in reason) for _, kind, reason in dead(world)] == [
        ("unknown_schema", True)
    ] * 2


def test_without_a_registry_the_spec_is_wrong_not_the_records(
    make_world: Callable[..., World], produce: Produce
) -> None:
    world = make_world(partitions=1, format="avro", create=CREATE)
    produce(topic_of(world), orders(1, 1), 0)
    with pytest.raises(SpecError, match="LC4023"):
        world.open("a")
    world.kafka = with_registry(world.kafka, {"url": "http://127.0.0.1:9", "urll": "x"})
    with pytest.raises(SpecError, match=r"urll.*LC4028"):
        world.open("a")


def test_files_that_spark_lacks_block_no_range(make_world: Callable[..., World], produce: Produce) -> None:
    world = make_world(partitions=1, format="avro", create=CREATE)
    world.kafka = with_registry(world.kafka, {"url": "https://127.0.0.1:9", "ssl.ca.location": "/nowhere/ca.pem"})
    produce(topic_of(world), orders(1, 1), 0)
    results = world.write(world.open("a"))
    assert [r.status for r in results] == [SliceStatus.AGAIN]
    assert "ssl.ca.location is /nowhere/ca.pem: No such file or directory" in results[0].detail


@pytest.mark.heavy
def test_records_that_name_no_schema_are_of_the_stated_one(make_world: Callable[..., World], produce: Produce) -> None:
    world = make_world(partitions=1, format="avro", create=CREATE, schema=ORDER)
    values = [encoded(ORDER, {"id": i, "country": (1, "DE")}) for i in range(3)]
    produce(topic_of(world), [*values, values[0][:-1]], 0)
    world.run()
    assert sorted(row["id"] for row in world.rows()) == [0, 1, 2]
    assert [(offset, kind) for offset, kind, _ in dead(world)] == [(3, "not_avro")]


@pytest.mark.heavy
def test_what_a_registry_had_forgotten_is_landed_once_it_knows_again(
    world: World, fake: FakeRegistry, produce: Produce
) -> None:
    number = fake.register("orders-value", {**ORDER, "name": "Lagging"})
    kept = fake.ids.pop(number)
    produce(topic_of(world), orders(number, 1, 2), 0)
    world.run()
    assert (world.rows(), len(dead(world))) == ([], 2)
    fake.ids[number] = kept
    with world.session() as session:
        done = replay(session, Selection(), decision=DECISION)
    assert (done.dead_letters, sorted(row["id"] for row in world.rows())) == (2, [1, 2])


@pytest.mark.heavy
def test_the_registrys_login_is_in_nothing_that_is_reported(
    world: World,
    fake: FakeRegistry,
    produce: Produce,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    world.kafka = with_registry(world.kafka, {"basic.auth.user.info": "reader:hidden-canary"})
    number = fake.register("orders-value", {**ORDER, "name": "Guarded"})
    produce(topic_of(world), orders(number, 1), 0)
    fake.before = lambda _path: (403, "application/json", b'{"error_code": 40301, "message": "not hidden-canary"}')
    with caplog.at_level("DEBUG"):
        opened = world.open("a")
        results = world.write(opened)
        world.close("a", opened)
        with world.session() as session:
            (ticket,) = opened.groups
            job = group_job(world.landing, session.control, ticket, "test")
            log = session.control.read(opened.ticket.partition, 0).records
    assert [r.status for r in results] == [SliceStatus.AGAIN]
    assert "check the credentials" in results[0].detail
    assert fake.logins
    assert all(login is not None for login in fake.logins)
    output = [*results, *world.lines, *log, caplog.text, *capfd.readouterr(), "" if job is None else job.to_json()]
    assert not [each for each in map(str, output) if "canary" in each]
