# SPDX-License-Identifier: Apache-2.0
"""A table follows the Avro schemas that its records name: several in a window, a registry away, what cannot be."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_lakecommit.exceptions import RegistryError
from airflow_provider_lakecommit.registry.settings import with_registry
from tests.fakes.registry import FakeRegistry
from tests.support.avro_shapes import encoded
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]
CREATE = {
    "schema": [
        {"name": "id", "type": "int", "required": True},
        {"name": "country", "type": "string"},
        {"name": "who", "type": "struct<name: string>"},
        {"name": "lines", "type": "list<struct<sku: string>>"},
        {"name": "price", "type": "decimal(6, 2)"},
    ]
}


def record(called: str, /, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": called, "fields": [{"name": n, "type": t} for n, t in types.items()]}


OLD = record("Order", id="int", country="string")
NEW = record(
    "Order",
    id="long",
    who=record("Who", name="string", age=["null", "int"]),
    lines={"type": "array", "items": record("Line", sku="string", amount="double")},
    price={"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
    at={"type": "long", "logicalType": "timestamp-micros"},
    either=["null", "string", "long"],
)


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def world(make_world: Callable[..., World], fake: FakeRegistry) -> World:
    made = make_world(partitions=1, format="avro", create=CREATE, evolve="widen", dead_letter_max_ratio=1.0)
    made.kafka = with_registry(made.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5})
    return made


def send(world: World, produce: Produce, fake: FakeRegistry, schema: dict[str, Any], *values: dict[str, Any]) -> None:
    number = fake.register("orders-value", schema)
    produce(world.landing.topics, [b"\x00" + number.to_bytes(4) + encoded(schema, v) for v in values], 0)


def new(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "who": {"name": "ann", "age": (1, 7)},
        "lines": [{"sku": "x", "amount": 2.5}],
        "price": 123456789,
        "at": 1_700_000_000_000_000,
        "either": (2, 5),
    }


def test_several_schemas_of_a_window_make_the_columns_that_hold_them_all(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
    world.run()
    send(world, produce, fake, OLD, {"id": 2, "country": "FR"})
    send(world, produce, fake, NEW, new(1 << 40))
    send(world, produce, fake, record("Order", id="int", more="int"), {"id": 4, "more": 1})
    send(world, produce, fake, record("Order", id="int", more="long"), {"id": 5, "more": 1 << 40})
    world.settle()
    schema = table_of(world).schema()
    kinds = {name: str(schema.find_type(name)) for name in schema.column_names}
    expected = {"id": "long", "who.age": "int", "lines.element.amount": "double", "price": "decimal(9, 2)"}
    expected |= {"at": "timestamptz", "either.string": "string", "either.long": "long", "more": "long"}
    assert {name: kinds[name] for name in expected} == expected
    assert not [f.name for f in schema.fields if f.required and f.name != "id"]
    rows = {row["id"]: row for row in world.rows()}
    assert sorted(rows) == [1, 2, 4, 5, 1 << 40]
    row = rows[1 << 40]
    assert (row["who"], str(row["price"]), row["either"]["long"]) == ({"name": "ann", "age": 7}, "1234567.89", 5)
    assert (rows[4]["more"], rows[5]["more"], rows[2]["country"]) == (1, 1 << 40, "FR")
    assert any("schema id" in line and "widen id from int to long" in line for line in world.lines)
    check_verified(world)


def test_a_schema_that_no_record_names_changes_nothing(world: World, produce: Produce, fake: FakeRegistry) -> None:
    send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
    fake.register("orders-value", NEW)
    world.settle()
    assert "at" not in table_of(world).schema().column_names


def test_what_does_not_fit_is_named_with_the_schemas_type(world: World, produce: Produce, fake: FakeRegistry) -> None:
    strange = record("Order", id="int", country="int", who="string")
    send(world, produce, fake, strange, {"id": 1, "country": 3, "who": "x"})
    opened = world.open("run")
    text = " ".join(opened.explain)
    assert "column country is string in the table and int in the records" in text
    assert "column who is struct<name: optional string> in the table and string in the records" in text
    world.landing = replace(world.landing, on_incompatible="stop")
    assert "incompatible records" in str(world.open("stop").plan.reason)


@pytest.mark.heavy
def test_an_alias_finds_its_column_and_makes_none(world: World, produce: Produce, fake: FakeRegistry) -> None:
    renamed = record("Order", id="int")
    renamed["fields"].append({"name": "land", "type": "string", "aliases": ["country"]})
    send(world, produce, fake, renamed, {"id": 1, "land": "DE"})
    world.settle()
    assert "land" not in table_of(world).schema().column_names
    assert [row["country"] for row in world.rows()] == ["DE"]


def test_schemas_that_are_none_are_for_the_tasks_to_reject(world: World, produce: Produce, fake: FakeRegistry) -> None:
    send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
    produce(world.landing.topics, [b"\x00" + (999).to_bytes(4) + b"\x02", b"plain", b""], 0)
    world.settle()
    assert [row["id"] for row in world.rows()] == [1]
    assert len(world.rows("shop.dead")) == 3


def test_a_registry_that_is_away_fails_the_plan_and_the_next_one_goes_on(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
    world.run()
    send(world, produce, fake, NEW, new(2))
    world.kafka, known = with_registry(world.kafka, {"url": "http://127.0.0.1:1"}), world.kafka
    with pytest.raises(RegistryError):
        world.open("away")
    assert "at" not in table_of(world).schema().column_names
    world.kafka = known
    world.settle()
    assert sorted(row["id"] for row in world.rows()) == [1, 2]
    check_verified(world)


@pytest.mark.heavy
def test_records_of_a_stated_schema(make_world: Callable[..., World], produce: Produce) -> None:

    world = make_world(partitions=1, format="avro", schema=json.dumps(NEW), create=CREATE, evolve="widen")
    produce(world.landing.topics, [encoded(NEW, new(1))], 0)
    world.settle()
    assert [row["at"].year for row in world.rows()] == [2023]
    assert any("by the schema that the landing states" in line for line in world.lines)
