# SPDX-License-Identifier: Apache-2.0
"""A table follows the Avro schemas that its records name: several in a window, a registry away, what cannot be."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from typing import Any

import fastavro
import pytest

from airflow_provider_lakecommit.exceptions import RegistryError, SpecError
from airflow_provider_lakecommit.formats.evolution import sampled_columns
from airflow_provider_lakecommit.formats.evolution.paths import paths_in
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from airflow_provider_lakecommit.landing.registry import with_registry
from tests.fakes.registry import FakeRegistry
from tests.support.avro_shapes import encoded
from tests.support.declared import changed_landing
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, own_columns

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
    made.kafka = with_registry(made.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0})
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
    kinds = {name: str(schema.find_type(name)) for name in schema.column_names if name not in MARK_COLUMNS}
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


@pytest.mark.heavy
@pytest.mark.parametrize("first", [0, 1])
def test_a_new_column_does_not_depend_on_which_schema_comes_first(
    world: World, produce: Produce, fake: FakeRegistry, first: int
) -> None:
    some = [
        (record("Order", id="int", size="int", word="string"), {"id": 1, "size": 7, "word": "x"}),
        (record("Order", id="int", size="double", word="long"), {"id": 2, "size": 0.5, "word": 5}),
    ]
    for schema, value in (some[first], some[1 - first]):
        send(world, produce, fake, schema, value)
    world.settle()
    assert "word" not in table_of(world).schema().column_names
    assert any("word is not added: its schemas disagree" in line for line in world.lines)
    assert sorted((row["id"], row["size"]) for row in world.rows()) == [(1, 7.0), (2, 0.5)]
    assert not world.rows("shop.dead")
    check_verified(world)


@pytest.mark.heavy
def test_a_schema_that_was_met_before_wants_its_columns_and_stops_nothing_any_more(
    world: World, produce: Produce, fake: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came in the middle of a window and went again, beyond the sample."""
    monkeypatch.setattr(sampled_columns, "RECORDS", 3)
    world.landing = changed_landing(world.landing, on_incompatible="stop")
    send(world, produce, fake, OLD, *({"id": i, "country": "DE"} for i in range(5)))
    seldom = record("Order", id="long", country="int", extra="string")
    send(world, produce, fake, seldom, {"id": 1 << 40, "country": 3, "extra": "x"})
    send(world, produce, fake, OLD, *({"id": i, "country": "DE"} for i in range(5, 20)))
    world.run()
    assert len(world.rows()) == 20
    send(world, produce, fake, OLD, {"id": 20, "country": "DE"})
    world.settle()
    schema = table_of(world).schema()
    assert (str(schema.find_type("id")), str(schema.find_type("extra"))) == ("long", "string")
    assert len(world.rows()) == 21
    check_verified(world)


@pytest.mark.heavy
def test_each_type_of_a_union_wants_its_columns(world: World, produce: Produce, fake: FakeRegistry) -> None:
    """A second record next to the one that the column is made of: its fields are not lost in silence."""
    one, two = record("Card", number="int"), record("Cash", number="long", coins=["null", "int"])
    send(world, produce, fake, record("Order", id="int", paid=["null", one]), {"id": 1, "paid": (1, {"number": 5})})
    world.run()
    both = record("Order", id=["int", "long"], paid=["null", one, two])
    card = {"id": (1, 1 << 40), "paid": (1, {"number": 6})}
    cash = {"id": (0, 3), "paid": (2, {"number": 1 << 40, "coins": (1, 7)})}
    send(world, produce, fake, both, card, cash)
    world.settle()
    rows = {row["id"]: row["paid"] for row in world.rows()}
    assert rows == {
        1: {"number": 5, "coins": None},
        1 << 40: {"number": 6, "coins": None},
        3: {"number": 1 << 40, "coins": 7},
    }
    assert not world.rows("shop.dead")
    check_verified(world)


@pytest.mark.heavy
def test_a_wide_schema_is_added_as_one(world: World, produce: Produce, fake: FakeRegistry) -> None:
    """Names of a schema are no data, unlike those of objects, of which a hundred at once are none of a table."""
    wide = record("Order", id="int", **{f"c{n}": "int" for n in range(300)})
    send(world, produce, fake, wide, {"id": 1, **{f"c{n}": n for n in range(300)}})
    world.settle()
    (row,) = world.rows()
    assert [row[f"c{n}"] for n in range(300)] == list(range(300))


@pytest.mark.heavy
def test_a_decimal_is_widened_before_the_point_whatever_is_behind_it(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}
    send(
        world,
        produce,
        fake,
        record("Order", id="int", price=price),
        *({"id": i, "price": 123456_780 + i} for i in (0, 1)),
    )
    world.settle()
    assert str(table_of(world).schema().find_type("price")) == "decimal(8, 2)"
    assert [(row["id"], str(row["price"])) for row in world.rows()] == [(0, "123456.78")]
    assert [row["column"] for row in world.rows("shop.dead")] == ["price"]


@pytest.mark.heavy
def test_complete_numbers_widen_columns_of_numbers_that_cannot_hold_them_all(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    old = record("Order", id="int", ratio="float")
    send(world, produce, fake, old, {"id": 1, "ratio": 0.5})
    world.settle()
    whole = {"ratio": 2**31 - 1, "price": -(2**31)}
    send(world, produce, fake, record("Order", id="int", ratio="int", price="int"), {"id": 2, **whole})
    world.settle()
    schema = table_of(world).schema()
    assert [str(schema.find_type(name)) for name in ("ratio", "price")] == ["double", "decimal(12, 2)"]
    rows = {row["id"]: row for row in world.rows()}
    assert (rows[1]["ratio"], rows[2]["ratio"], rows[2]["price"]) == (0.5, whole["ratio"], whole["price"])
    assert not world.rows("shop.dead")


@pytest.mark.heavy
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
    world.landing = changed_landing(world.landing, on_incompatible="stop")
    assert "incompatible records" in str(world.open("stop").plan.reason)


@pytest.mark.heavy
def test_an_alias_finds_its_column_and_makes_none(world: World, produce: Produce, fake: FakeRegistry) -> None:
    renamed = record("Order", id="int")
    renamed["fields"].append({"name": "land", "type": "string", "aliases": ["country"]})
    send(world, produce, fake, renamed, {"id": 1, "land": "DE"})
    world.settle()
    assert "land" not in table_of(world).schema().column_names
    assert [row["country"] for row in world.rows()] == ["DE"]


@pytest.mark.heavy
def test_of_two_fields_with_one_alias_the_second_is_a_column_of_its_own(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    renamed = record("Order", id="int")
    renamed["fields"] += [{"name": name, "type": "string", "aliases": ["country"]} for name in ("land", "pays")]
    send(world, produce, fake, renamed, {"id": 1, "land": "DE", "pays": "FR"})
    world.settle()
    assert [(row["country"], row["pays"]) for row in world.rows()] == [("DE", "FR")]


@pytest.mark.heavy
def test_a_required_column_that_a_schema_lacks_stops_the_landing_where_configured(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    send(world, produce, fake, record("Order", country="string"), {"country": "DE"})
    world.landing = changed_landing(world.landing, on_incompatible="stop")
    reason = str(world.open("stop").plan.reason)
    assert "column id is required int in the table and missing in the records" in reason


@pytest.mark.heavy(but=("schema2-*",))
@pytest.mark.parametrize(
    ("schema", "kind", "why"),
    [
        ('"string"', "AVRO", "it is string, not a record"),
        ('syntax = "proto3"; message Order { int32 id = 1; }', "PROTOBUF", "it is of type PROTOBUF"),
        (json.dumps(record("Order", id="int", next=["null", "Order"])), "AVRO", "Order"),
    ],
)
def test_a_schema_that_gives_no_rows_is_named_and_stops_the_landing_where_configured(
    world: World, produce: Produce, fake: FakeRegistry, schema: str, kind: str, why: str
) -> None:
    number = fake.register("orders-value", schema, kind=kind)
    produce(world.landing.topics, [b"\x00" + number.to_bytes(4) + b"\x02"], 0)
    (change,) = [line for line in world.open("run").explain if "columns, by" in line]
    assert f"schema id {number}: " in change
    assert why in change
    world.landing = changed_landing(world.landing, on_incompatible="stop")
    assert f"incompatible records: shop.rows: schema id {number}: " in str(world.open("stop").plan.reason)


@pytest.mark.heavy
def test_a_required_column_that_the_readers_schema_fills_fits(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    request = record("Order", country="string")
    request["fields"].append({"name": "id", "type": "int", "default": 7})
    world.landing = changed_landing(world.landing, on_incompatible="stop", reader_schema=json.dumps(request))
    send(world, produce, fake, record("Order", country="string"), {"country": "DE"})
    world.settle()
    assert [(row["id"], row["country"]) for row in world.rows()] == [(7, "DE")]


@pytest.mark.heavy
def test_a_registry_without_a_name_is_requested_in_the_landings_name(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
    world.kafka = {"bootstrap.servers": world.kafka["bootstrap.servers"]}
    with pytest.raises(SpecError, match="LC4023"):
        world.open("run")


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    """As Debezium's converter registers it: both images are of one named type."""
    return record("Envelope", before=["null", row], after=["null", row["name"]], op="string")


@pytest.mark.heavy
def test_columns_follow_the_rows_of_envelopes(
    make_world: Callable[..., World], produce: Produce, fake: FakeRegistry
) -> None:
    create = {"schema": [{"name": "id", "type": "int"}, {"name": "_op", "type": "string"}]}
    stated = {"partitions": 1, "format": "avro", "unwrap": "debezium", "evolve": "widen", "create": create}
    world = make_world(**stated)
    world.kafka = with_registry(
        world.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}
    )
    old, new = record("Value", id="int"), record("Value", id="long", note=["null", "string"], _op="int", _pos="int")

    def change(schema: dict[str, Any], **value: Any) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(envelope(schema)), value)
        return b"\x00" + fake.register("orders-value", envelope(schema)).to_bytes(4) + out.getvalue()

    produce(world.landing.topics, [change(old, before=None, after={"id": 1}, op="c")], 0)
    world.run()
    row = {"id": 1 << 40, "note": "x", "_op": 1, "_pos": 1}
    produce(world.landing.topics, [change(new, before=None, after=row, op="u"), change(new, before=row, op="d")], 0)
    world.settle()
    kinds = {f.name: str(f.field_type) for f in own_columns(table_of(world).schema())}
    assert kinds == {"id": "long", "_op": "string", "note": "string"}
    assert sorted((row["id"], row["_op"], row["note"]) for row in world.rows()) == [
        (1, "c", None),
        (1 << 40, "d", "x"),
        (1 << 40, "u", "x"),
    ]
    assert any("_pos is not added: Iceberg reserves that name" in line for line in world.lines)
    check_verified(world)


class TestATableByTheRegistry:
    """Made by a subject's newest version, which the topic's records may not have yet."""

    @pytest.fixture
    def world(self, make_world: Callable[..., World], fake: FakeRegistry) -> World:
        made = make_world(partitions=1, format="avro", create={"schema": "registry", "subject": "orders-value"})
        made.kafka = with_registry(
            made.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0}
        )
        return made

    def test_has_columns_that_older_records_lack_and_takes_these(
        self, world: World, produce: Produce, fake: FakeRegistry
    ) -> None:
        send(world, produce, fake, OLD, {"id": 1, "country": "DE"})
        person = record("Who", name="string")
        newest = record("Order", id="long", country="string", who=person, tags={"type": "array", "items": "string"})
        fake.register("orders-value", newest)
        world.settle()
        schema = table_of(world).schema()
        assert [f.name for f in own_columns(schema)] == ["id", "country", "who", "tags"]
        assert not [path for path, field in paths_in(schema.fields) if field.required]
        assert [(row["id"], row["who"], row["tags"]) for row in world.rows()] == [(1, None, None)]

    @pytest.mark.parametrize(("more", "why"), [({"_file": "string"}, "_file.*LC1345"), ({"ID": "int"}, "ID.*LC")])
    def test_is_not_made_with_names_that_no_table_should_have(
        self, world: World, produce: Produce, fake: FakeRegistry, more: dict[str, Any], why: str
    ) -> None:
        fake.register("orders-value", record("Order", id="long", **more))
        with pytest.raises(SpecError, match=why):
            world.open("run")

    @pytest.mark.heavy
    def test_is_made_without_what_no_column_holds_and_reports_it(
        self, world: World, produce: Produce, fake: FakeRegistry
    ) -> None:
        fake.register("orders-value", record("Order", id="long", nothing="null"))
        world.run()
        assert [f.name for f in own_columns(table_of(world).schema())] == ["id"]
        assert any("no column for field nothing of subject orders-value" in line for line in world.lines)


@pytest.mark.heavy
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
    assert any("by the landing's schema" in line for line in world.lines)
