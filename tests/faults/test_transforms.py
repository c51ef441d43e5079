# SPDX-License-Identifier: Apache-2.0
"""SQL between record and row in a landing: every record is accounted for by its rows, as filtered, or as a dead letter,
whatever dies; after a fix dead letters go through the SQL of then.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_dead_letters
from tests.faults.test_replay import replay
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
DECISION = Decision(command="dead-letters --replay", actor="somebody", host="here", at="2026-01-01T00:00:00+00:00")
LINES = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "sku", "type": "string", "required": True},
        {"name": "each", "type": "int"},
    ]
}
RECORD = [
    {"name": "id", "type": "long", "required": True},
    {"name": "status", "type": "string"},
    {"name": "items", "type": "list<struct<sku: string, cents: int, n: int>>"},
]
SQL = """
    select id, unnest(items).sku as sku, unnest(items).cents // unnest(items).n as each
    from record where status = 'paid'
"""
FIELDS: dict[str, Any] = {
    "create": LINES,
    "record_schema": RECORD,
    "transform": SQL,
    "dead_letter_max_ratio": 1.0,
    "metadata_columns": True,
}


def orders(first: int, count: int) -> list[tuple[str, str]]:
    """Every third is not paid; paid ones have none to three items; every tenth has one of which there are none."""
    out = []
    for i in range(first, first + count):
        items = [
            {"sku": f"s{i}-{k}", "cents": 100 * i, "n": 0 if i % 10 == 1 and k == 0 else k + 1} for k in range(i % 4)
        ]
        out.append((str(i), json.dumps({"id": i, "status": "paid" if i % 3 else "open", "items": items})))
    return out


def expected(first: int, count: int, *, fixed: bool = False) -> tuple[Counter[str], set[int]]:
    """Rows by their text, and the records that are rejected."""
    rows, rejected = Counter[str](), set[int]()
    for _, text in orders(first, count):
        order = json.loads(text)
        if order["status"] == "paid" and not fixed and any(item["n"] == 0 for item in order["items"]):
            rejected.add(order["id"])
        elif order["status"] == "paid":
            rows.update(item["sku"] for item in order["items"])
    return rows, rejected


def check(world: World, first: int, count: int, *, fixed: bool = False) -> None:
    rows, rejected = expected(first, count, fixed=fixed)
    assert Counter(row["sku"] for row in world.rows()) == rows
    if not fixed:
        assert Counter(json.loads(r["value"])["id"] for r in world.rows("shop.dead")) == Counter(rejected)
    check_verified(world)


def test_records_explode_are_filtered_or_rejected_and_add_up(make_world: Make, produce: Produce) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, orders(0, 120))
    closed = world.run()
    rows, rejected = expected(0, 120)
    counts = next(p.counts for p in closed.published if p.table == "shop.rows")
    assert closed.rows == rows.total()
    assert (counts.landed, counts.rejected) == (len({sku.partition("-")[0] for sku in rows}), len(rejected))
    assert counts.filtered == 120 - counts.landed - counts.rejected
    check(world, 0, 120)
    assert {(row["kind"], row["reason"]) for row in world.rows("shop.dead")} == {
        ("transform_failed", "Invalid Input Error: division by zero")
    }
    found = world.rows()
    assert all(row["sku"].startswith(f"s{row['id']}-") for row in found)
    places = [(row["kafka_partition"], row["kafka_offset"], row["sku"]) for row in found]
    assert len(set(places)) == len(places)


@pytest.mark.heavy(but=("5-after",))
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [pytest.param(n, marks=pytest.mark.heavy) if n % 5 else n for n in range(1, 11)])
def test_whatever_dies_each_row_is_there_once(make_world: Make, produce: Produce, at: int, when: Any) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, orders(0, 60))
    with deaths(at, when), suppress(Killed):
        world.run("dies")
    world.settle()
    check(world, 0, 60)


@pytest.mark.heavy
def test_dead_letters_go_through_the_sql_of_now(make_world: Make, produce: Produce) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, orders(0, 120))
    world.settle()
    sql = SQL.replace("// unnest(items).n", "// nullif(unnest(items).n, 0)")
    fixed = replace(world, landing=changed_landing(world.landing, transform=sql))
    assert fixed.landing.spec_version != world.landing.spec_version
    with fixed.session() as session:
        done = replay_dead_letters(session, Selection(), decision=DECISION)
    assert done.dead_letters == len(expected(0, 120)[1])
    check(fixed, 0, 120, fixed=True)


@pytest.mark.heavy
def test_a_range_is_replayed_by_the_sql_of_now(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **FIELDS)
    produce(world.landing.topics, orders(0, 120))
    world.settle()
    everything = replace(world, landing=changed_landing(world.landing, transform=SQL.partition("where")[0]))
    again = replay(everything, "0=0-60")
    again.finish()
    opened = Counter(i["sku"] for _, t in orders(0, 60) if (o := json.loads(t))["status"] == "open" for i in o["items"])
    # Of the first half, orders that are not paid have come in, less those that are rejected now.
    bad = {f"s{i}-{k}" for i in range(60) if i % 10 == 1 and i % 3 == 0 for k in range(4)}
    rows = expected(0, 120)[0] + Counter({sku: n for sku, n in opened.items() if sku not in bad})
    assert Counter(row["sku"] for row in everything.rows()) == rows
    check_verified(everything)


@pytest.mark.heavy
def test_each_table_of_a_route_may_have_its_own_sql(make_world: Make, produce: Produce) -> None:
    route = {
        "field": "status",
        "tables": {"paid": "shop.rows", "open": "shop.open"},
        "create": {"shop.open": {"schema": [{"name": "id", "type": "long", "required": True}]}},
    }
    sql = {"shop.rows": SQL, "shop.open": "select id from record where id % 2 = 0"}
    world = make_world(**{**FIELDS, "route": route, "transform": sql})
    produce(world.landing.topics, orders(0, 120))
    world.settle()
    check(world, 0, 120)
    assert Counter(row["id"] for row in world.rows("shop.open")) == Counter(i for i in range(120) if i % 6 == 0)


def test_sql_that_is_not_of_one_record_each_is_reported_before_anything_is_made(make_world: Make) -> None:
    world = make_world(**{**FIELDS, "transform": "select id, count(*) as each from record group by id"})
    with pytest.raises(TableError, match=r"group by: a transform reads one record.*LC4036"):
        world.open("run")
    with world.session() as session:
        assert session.tables.find("shop.rows") is None
