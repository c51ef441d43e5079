# SPDX-License-Identifier: Apache-2.0
"""A table follows the Protobuf messages that its records are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from airflow_provider_lakecommit.formats.protobuf.descriptors import file_of, message_named
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from airflow_provider_lakecommit.landing.registry import with_registry
from tests.fakes.registry import FakeRegistry
from tests.support.declared import changed_landing
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, own_columns

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]
CREATE = {
    "schema": [
        {"name": "id", "type": "int"},
        {"name": "ratio", "type": "float"},
        {"name": "who", "type": "struct<name: string>"},
    ]
}
HEAD = 'syntax = "proto3"; package shop;\n'
OLD = f"{HEAD}message Order {{ int32 id = 1; float ratio = 2; }}"
NEW = (
    f"{HEAD}message Order {{ int64 id = 1; double ratio = 2; Who who = 3; repeated Who friends = 4; "
    "map<string, double> by = 5; }\nmessage Who { string name = 1; int32 age = 2; }"
)
STRANGE = f"{HEAD}message Order {{ int32 id = 1; string who = 3; }}"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


@pytest.fixture
def world(make_world: Callable[..., World], fake: FakeRegistry) -> World:
    made = make_world(partitions=1, format="protobuf", create=CREATE, evolve="widen", dead_letter_max_ratio=1.0)
    made.kafka = with_registry(made.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5, "unknown.wait.seconds": 0})
    return made


def send(world: World, produce: Produce, fake: FakeRegistry, text: str, *values: dict[str, Any]) -> None:
    number = fake.register("orders-value", text, kind="PROTOBUF")
    kind = GetMessageClass(message_named(file_of(text), "shop.Order"))
    some = [ParseDict(value, kind()).SerializeToString() for value in values]
    produce(world.landing.topics, [b"\x00" + number.to_bytes(4) + b"\x00" + each for each in some], 0)


def test_messages_of_a_window_make_the_columns_that_hold_them_all(
    world: World, produce: Produce, fake: FakeRegistry
) -> None:
    send(world, produce, fake, OLD, {"id": 1, "ratio": 0.5})
    world.run()
    assert [f.name for f in own_columns(table_of(world).schema())] == ["id", "ratio", "who"]
    send(world, produce, fake, OLD, {"id": 2})
    new = {"id": 1 << 40, "ratio": 1e300, "who": {"name": "a", "age": 7}, "friends": [{"name": "b"}], "by": {"x": 2.5}}
    send(world, produce, fake, NEW, new)
    world.settle()
    schema = table_of(world).schema()
    kinds = {name: str(schema.find_type(name)) for name in schema.column_names if name not in MARK_COLUMNS}
    assert (kinds["id"], kinds["ratio"], kinds["who.age"], kinds["friends.element.name"]) == (
        "long",
        "double",
        "int",
        "string",
    )
    rows = {row["id"]: row for row in world.rows()}
    assert sorted(rows) == [1, 2, 1 << 40]
    row = rows[1 << 40]
    assert (row["ratio"], row["who"], dict(row["by"])) == (1e300, {"name": "a", "age": 7}, {"x": 2.5})
    assert not world.rows("shop.dead")
    check_verified(world)


@pytest.mark.heavy(but=("uint64",))
@pytest.mark.parametrize("kind", ["uint32", "int64", "uint64", "fixed64"])
def test_an_int_is_widened_for_whatever_outgrows_it(
    world: World, produce: Produce, fake: FakeRegistry, kind: str
) -> None:
    send(world, produce, fake, OLD, {"id": 1})
    world.settle()
    send(world, produce, fake, f"{HEAD}message Order {{ {kind} id = 1; }}", {"id": 4_000_000_000})
    world.settle()
    assert str(table_of(world).schema().find_type("id")) == "long"
    assert sorted(row["id"] for row in world.rows()) == [1, 4_000_000_000]
    assert not world.rows("shop.dead")


def test_what_does_not_fit_is_named_as_the_decoder_names_it(world: World, produce: Produce, fake: FakeRegistry) -> None:
    send(world, produce, fake, STRANGE, {"id": 1, "who": "x"})
    world.landing = changed_landing(world.landing, on_incompatible="stop")
    reason = str(world.open("stop").plan.reason)
    assert "incompatible records" in reason
    assert "column who is struct<name: optional string> in the table and another field in the records" in reason
