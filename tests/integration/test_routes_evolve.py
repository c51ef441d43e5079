# SPDX-License-Identifier: Apache-2.0
"""Several tables of one topic follow their records where these name schemas in a registry, are of one stated schema, or
are change envelopes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

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
ROUTE: dict[str, Any] = {"field": "kind", "tables": {"order": "shop.rows", "refund": REFUNDS}, "create": {REFUNDS: IDS}}
FIELDS: dict[str, Any] = {"create": IDS, "route": ROUTE, "evolve": "add", "dead_letter_max_ratio": 1.0}


def record(called: str, /, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": called, "fields": [{"name": n, "type": t} for n, t in types.items()]}


ORDER = record("Order", id="long", kind="string", channel="string")
REFUND = record("Refund", kind="string", id="long", why=["null", record("Why", code="int")])
EVENT = record("Event", id="long", kind="string", note=["null", "string"])


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry().running() as running:
        yield running


def names(world: World, table: str) -> list[str]:
    return [f.name for f in own_columns(table_of(world, table).schema())]


def test_records_that_name_their_schemas(make_world: Make, produce: Produce, fake: FakeRegistry) -> None:
    """Each table gets what the schemas of its own records have, and nothing of the others'."""
    world = make_world(partitions=1, format="avro", **FIELDS)
    world.kafka = with_registry(world.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5})
    some = []
    for subject, schema, value in (
        ("orders-value", ORDER, {"id": 1, "kind": "order", "channel": "web"}),
        ("refunds-value", REFUND, {"id": 2, "kind": "refund", "why": (1, {"code": 7})}),
        ("gifts-value", EVENT, {"id": 3, "kind": "gift", "note": (0, None)}),
    ):
        some.append(b"\x00" + fake.register(subject, schema).to_bytes(4) + encoded(schema, value))
    produce(world.landing.topics, [*some, b"no schema at all", None], 0)
    world.settle()
    assert (names(world, "shop.rows"), names(world, REFUNDS)) == (["id", "kind", "channel"], ["id", "kind", "why"])
    assert [row["channel"] for row in world.rows()] == ["web"]
    assert [row["why"] for row in world.rows(REFUNDS)] == [{"code": 7}]
    assert sorted(row["kind"] for row in world.rows("shop.dead")) == ["not_framed", "not_routed"]
    check_verified(world)


@pytest.mark.heavy
def test_records_of_one_stated_schema(make_world: Make, produce: Produce) -> None:
    """A table of which no record was seen is left as it is: nothing says that the schema's fields are for it."""
    world = make_world(partitions=1, format="avro", schema=json.dumps(EVENT), **FIELDS)
    produce(world.landing.topics, [encoded(EVENT, {"id": 1, "kind": "order", "note": (1, "x")})], 0)
    world.settle()
    assert (names(world, "shop.rows"), names(world, REFUNDS)) == (["id", "kind", "note"], ["id"])
    produce(world.landing.topics, [encoded(EVENT, {"id": 2, "kind": "refund", "note": (0, None)})], 0)
    world.settle()
    assert names(world, REFUNDS) == ["id", "kind", "note"]
    assert [row["id"] for row in world.rows(REFUNDS)] == [2]
    check_verified(world)


@pytest.mark.heavy
def test_json_behind_the_id_of_its_schema(make_world: Make, produce: Produce, fake: FakeRegistry) -> None:
    world = make_world(partitions=1, format="json_schema", **FIELDS)
    world.kafka = with_registry(world.kafka, {"url": fake.url, "max.retries": 0, "timeout": 5})
    number = fake.register("events-value", {"type": "object"}, kind="JSON")
    some = [{"id": 1, "kind": "order", "channel": "web"}, {"id": 2, "kind": "refund", "why": {"code": 7}}]
    produce(world.landing.topics, [b"\x00" + number.to_bytes(4) + json.dumps(v).encode() for v in some], 0)
    world.settle()
    assert (names(world, "shop.rows"), names(world, REFUNDS)) == (["id", "kind", "channel"], ["id", "kind", "why"])
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize("field", ["source.table", "kind"])
def test_rows_of_change_envelopes(make_world: Make, produce: Produce, field: str) -> None:
    """Routed by the envelope, or by the row in it; what the envelope says is no column of the row."""
    op = [{"name": "_op", "type": "string"}]
    tables = {"schema": [*IDS["schema"], *op]}
    route = {**ROUTE, "field": field, "create": {REFUNDS: tables}}
    world = make_world(partitions=1, **{**FIELDS, "route": route, "create": tables, "unwrap": "debezium"})

    def change(op: str, before: Any, after: Any) -> str:
        row = after or before
        return json.dumps({"op": op, "before": before, "after": after, "source": {"table": row["kind"], "ts_ms": 1}})

    order, refund = {"id": 1, "kind": "order", "channel": "web"}, {"id": 2, "kind": "refund", "why": "late"}
    changes = [change("c", None, order), change("c", None, refund), change("d", refund, None)]
    produce(world.landing.topics, changes, 0)
    world.settle()
    assert names(world, "shop.rows") == ["id", "_op", "kind", "channel"]
    assert names(world, REFUNDS) == ["id", "_op", "kind", "why"]
    assert sorted((row["_op"], row["why"]) for row in world.rows(REFUNDS)) == [("c", "late"), ("d", "late")]
    check_verified(world)
