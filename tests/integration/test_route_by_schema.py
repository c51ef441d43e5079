# SPDX-License-Identifier: Apache-2.0
"""Events of several kinds in one topic, each told by the schema that it is written with, go to tables of their own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of
from airflow_provider_lakecommit.landing.registry import with_registry
from tests.fakes.registry import FakeRegistry
from tests.support.avro_shapes import encoded
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, own_columns

pytestmark = pytest.mark.integration

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
IDS: dict[str, Any] = {"schema": [{"name": "id", "type": "long", "required": True}]}
REFUNDS = "shop.refunds"


def record(called: str, /, **types: Any) -> dict[str, Any]:
    fields = [{"name": n, "type": t} for n, t in types.items()]
    return {"type": "record", "namespace": "shop.v1", "name": called, "fields": fields}


ORDER, WIDER = record("Order", id="long", channel="string"), record("Order", id="long", note=["null", "string"])
REFUND, GIFT = record("Refund", id="long", why="string"), record("Gift", id="long")


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def make(make_world: Make, fake: FakeRegistry) -> Make:
    def made(format: str, order: str, refund: str, **more: Any) -> World:
        tables = {order: "shop.rows", refund: REFUNDS}
        route = {"by": "schema", "tables": tables, "create": {REFUNDS: IDS}, **more.pop("route", {})}
        fields = {"create": IDS, "evolve": "add", "dead_letter_max_ratio": 1.0, **more}
        world = make_world(partitions=1, format=format, route=route, **fields)
        world.kafka = with_registry(world.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5})
        return world

    return made


def columns(world: World, table: str) -> list[str]:
    return [f.name for f in own_columns(table_of(world, table).schema())]


@pytest.mark.heavy
def test_records_of_avro_by_their_full_names(make: Make, produce: Produce, fake: FakeRegistry) -> None:
    """Of whichever version; what names no table is a dead letter that says what it is."""
    world = make("avro", "shop.v1.Order", "shop.v1.Refund")
    some = []
    for n, (schema, rest) in enumerate(
        [(ORDER, {"channel": "web"}), (REFUND, {"why": "late"}), (WIDER, {"note": (1, "x")}), (GIFT, {})] * 5
    ):
        number = fake.register(f"events-{schema['name']}", schema)
        some.append(b"\x00" + number.to_bytes(4) + encoded(schema, {"id": n, **rest}))
    produce(world.landing.topics, [*some, b"{}", None], 0)
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == [n for n in range(20) if n % 2 == 0]
    assert sorted(row["id"] for row in world.rows(REFUNDS)) == [n for n in range(20) if n % 4 == 1]
    assert columns(world, "shop.rows") == ["id", "channel", "note"]
    assert columns(world, REFUNDS) == ["id", "why"]
    dead = {row["reason"]: row for row in world.rows("shop.dead") if row["kind"] == "not_routed"}
    assert list(dead) == ["the schema of the record is 'shop.v1.Gift', for which `route` names no table"]
    assert {row["column"] for row in dead.values()} == {None}
    assert sorted(row["kind"] for row in world.rows("shop.dead")) == ["not_framed", *["not_routed"] * 5]
    check_verified(world)


@pytest.mark.heavy
def test_messages_of_protobuf_within_one_schema(make: Make, produce: Produce, fake: FakeRegistry) -> None:
    text = """syntax = "proto3"; package shop.v1;
message Order { int64 id = 1; string channel = 2; }
message Refund { int64 id = 1; string why = 2; }
message Gift { int64 id = 1; }"""
    world = make("protobuf", "shop.v1.Order", "shop.v1.Refund")
    file, number = file_of(text), fake.register("events-value", text, kind="PROTOBUF")
    paths = {"Order": b"\x00", "Refund": b"\x02\x02", "Gift": b"\x02\x04"}
    some = []
    for n, (name, rest) in enumerate([("Order", {"channel": "web"}), ("Refund", {"why": "late"}), ("Gift", {})] * 4):
        message = GetMessageClass(file.message_types_by_name[name])(id=n, **rest)
        some.append(b"\x00" + number.to_bytes(4) + paths[name] + message.SerializeToString())
    produce(world.landing.topics, some, 0)
    world.settle()
    assert sorted((row["id"], row["channel"]) for row in world.rows()) == [(n, "web") for n in range(0, 12, 3)]
    assert sorted((row["id"], row["why"]) for row in world.rows(REFUNDS)) == [(n, "late") for n in range(1, 12, 3)]
    assert [row["kind"] for row in world.rows("shop.dead")] == ["not_routed"] * 4
    check_verified(world)


def test_json_by_the_titles_of_its_schemas_and_the_rest_to_a_table(
    make: Make, produce: Produce, fake: FakeRegistry
) -> None:
    rest = {"other": "shop.other", "create": {REFUNDS: IDS, "shop.other": IDS}}
    world = make("json_schema", "Order", "Refund", route=rest)
    some = []
    for n, title in enumerate(["Order", "Refund", "Gift", None] * 3):
        number = fake.register(
            f"events-{title}", {"type": "object", **({"title": title} if title else {})}, kind="JSON"
        )
        some.append(b"\x00" + number.to_bytes(4) + json.dumps({"id": n}).encode())
    produce(world.landing.topics, some, 0)
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == [0, 4, 8]
    assert sorted(row["id"] for row in world.rows(REFUNDS)) == [1, 5, 9]
    assert sorted(row["id"] for row in world.rows("shop.other")) == [2, 3, 6, 7, 10, 11]
    check_verified(world)


@pytest.mark.heavy
def test_a_registry_that_is_away_is_no_fault_of_the_records(make: Make, produce: Produce, fake: FakeRegistry) -> None:
    world = make("avro", "shop.v1.Order", "shop.v1.Refund", evolve="none")
    number = fake.register("events-Order", ORDER)
    produce(world.landing.topics, [b"\x00" + number.to_bytes(4) + encoded(ORDER, {"id": 1, "channel": "web"})], 0)
    away = with_registry(world.kafka, {"url": "http://127.0.0.1:1", "max.retries": 0, "timeout": 1})
    here, world.kafka = world.kafka, away
    closed = world.run()
    assert not closed.published
    assert RegistryError.__name__ in " ".join(world.lines) or "registry" in " ".join(world.lines)
    world.kafka = here
    world.settle()
    assert [row["id"] for row in world.rows()] == [1]
    assert world.rows("shop.dead") == []
    check_verified(world)
