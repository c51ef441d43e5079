# SPDX-License-Identifier: Apache-2.0
"""Change envelopes landed from a real topic: the log is complete, and a MERGE over it gives the source's rows, whatever
dies on the way.
"""

from __future__ import annotations

import base64
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from dev.servers.engine import Engine
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths
from tests.unit.formats.transforms.test_unwrap import digits

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SPEC = yaml.safe_load((EXAMPLES / "changes.yaml").read_text())
FIELDS = {key: SPEC[key] for key in ("transform", "columns", "create", "timestamps", "format")}
MERGE = (EXAMPLES / "merge_changes.sql").read_text()
LARGE = (EXAMPLES / "merge_large_values.sql").read_text()
UNCHANGED = "__debezium_unavailable_value"


class Source:
    """A table of which each change is written as Debezium writes it.

    :param large: names are values that are reported only where they change
    """

    def __init__(self, seed: int, large: bool = False) -> None:
        self._random, self._large = random.Random(seed), large
        self.rows: dict[int, dict[str, Any]] = {}
        self.changes: list[tuple[str, str | None]] = []
        self.ops: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            key = self._random.randrange(20)
            if key not in self.rows:
                self._write(key, "c" if self._random.random() < 0.8 else "r")
            elif self._random.random() < 0.3:
                self._change("d", self.rows.pop(key), None)
                self.changes.append((str(key), None))
            else:
                self._write(key, "u")

    def _write(self, key: int, op: str) -> None:
        before, cents = self.rows.get(key), self._random.randrange(-(10**9), 10**9)
        self.rows[key] = {"id": key, "name": f"n{cents}", "credit": digits(cents), "seen": 1767323045000006}
        if self._large and before is not None and self._random.random() < 0.6:
            self.rows[key]["name"] = before["name"]
            self._change(op, {**before, "name": UNCHANGED}, {**self.rows[key], "name": UNCHANGED})
        else:
            self._change(op, before, self.rows[key])

    def _change(self, op: str, before: Any, after: Any) -> None:
        self.ops[op] += 1
        source = {"ts_ms": 1767323045006, "lsn": len(self.changes), "table": "customers", "connector": "postgresql"}
        value = {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1}
        wrapped = {"schema": {"type": "struct"}, "payload": value} if self._random.random() < 0.5 else value
        self.changes.append((str((after or before)["id"]), json.dumps(wrapped)))


def merged(world: World, merge: str = MERGE) -> list[tuple[Any, ...]]:
    """The newest rows by a statement of the page, merged twice over."""
    with duckdb.connect() as engine, world.session() as session:
        changes = session.tables.load(world.landing.table).scan().to_arrow()
        engine.execute("create schema shop")
        engine.register("landed", changes)
        engine.execute("create table shop.customer_changes as select * from landed")
        engine.execute("create table shop.customers (id bigint, name varchar, credit decimal(12, 2))")
        for _ in range(2):
            engine.execute(merge)
        return engine.execute("select * from shop.customers order by id").fetchall()


def expected(source: Source) -> list[tuple[Any, ...]]:
    return [(key, row["name"], amount(row["credit"])) for key, row in sorted(source.rows.items())]


def amount(text: str) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(text), "big", signed=True)) / 100


@pytest.mark.heavy(but=("3-after",))
@pytest.mark.parametrize(
    ("at", "when"), [(0, "before"), (3, "after"), pytest.param(5, "before", marks=pytest.mark.heavy), (7, "after")]
)
def test_a_merge_over_the_landed_changes_gives_the_rows_of_the_source(
    make_world: Make, produce: Produce, at: int, when: Any
) -> None:
    world = make_world(**FIELDS)
    source = Source(seed=at)
    source.run(150)
    produce(world.landing.topics, source.changes)
    with deaths(at, when), suppress(Killed):
        world.run("first")
    world.settle()
    sent = len(source.changes)
    source.run(100)
    produce(world.landing.topics, source.changes[sent:])
    world.settle()
    assert Counter(row["_op"] for row in world.rows()) == source.ops
    assert merged(world) == expected(source)
    check_verified(world)


@pytest.mark.heavy
def test_large_values_that_were_not_changed_are_those_of_before(make_world: Make, produce: Produce) -> None:
    world = make_world(**FIELDS)
    source = Source(seed=3, large=True)
    source.run(150)
    produce(world.landing.topics, source.changes)
    world.settle()
    assert UNCHANGED in {row["name"] for row in world.rows()}
    assert merged(world, LARGE) == expected(source)


def test_a_large_value_that_no_change_of_its_key_contains_is_marked_and_not_null() -> None:
    """As behind a change of a primary key: the value was reported under the old one."""
    with duckdb.connect() as engine:
        engine.execute("create schema shop")
        columns = "kafka_offset bigint, id bigint, name varchar, credit decimal(12, 2), _is_deleted boolean"
        engine.execute(f"create table shop.customer_changes ({columns})")
        engine.execute("create table shop.customers (id bigint, name varchar, credit decimal(12, 2))")
        changes = [
            (1, 1, "long", 1, False),
            (2, 1, None, None, True),
            (3, 2, UNCHANGED, 1, False),
            (4, 3, None, 1, False),
        ]
        engine.executemany("insert into shop.customer_changes values (?, ?, ?, ?, ?)", changes)
        engine.execute(LARGE)
        rows = "select id, name from shop.customers order by id"
        assert engine.execute(rows).fetchall() == [(2, UNCHANGED), (3, None)]
        engine.execute(
            "insert into shop.customer_changes values (5, 2, 'told', 1, false), (6, 2, ?, 2, false)", [UNCHANGED]
        )
        engine.execute(LARGE)
        assert engine.execute(rows).fetchall() == [(2, "told"), (3, None)]


@pytest.mark.engine
@pytest.mark.parametrize(("merge", "large"), [(MERGE, False), (LARGE, True)], ids=["plain", "large"])
def test_spark_merges_what_landed_out_of_order(
    make_engine_world: Make, produce: Produce, engine: Engine, merge: str, large: bool
) -> None:
    world = make_engine_world(**{**FIELDS, "slice_records": 20})
    engine.sql(world.catalog, "CREATE NAMESPACE IF NOT EXISTS lake.shop")
    columns = "id BIGINT, name STRING, credit DECIMAL(12, 2)"
    engine.sql(world.catalog, f"CREATE TABLE lake.shop.customers ({columns}) USING iceberg")
    merge = merge.replace("shop.customer_changes", f"lake.{world.landing.table}")
    merge = merge.replace("shop.customers ", "lake.shop.customers ")
    source = Source(seed=5, large=large)
    for n in range(3):
        sent = len(source.changes)
        source.run(120)
        produce(world.landing.topics, source.changes[sent:])
        opened = world.open(f"window-{n}")
        for odd in (1, 0):
            world.write(opened, lambda place, odd=odd: place % 2 == odd)  # type: ignore[misc]
        world.close(f"window-{n}", opened)
        for _ in range(2):
            engine.sql(world.catalog, merge)
        rows = engine.sql(world.catalog, "SELECT id, name, credit FROM lake.shop.customers ORDER BY id")
        assert [(r["id"], r["name"], Decimal(r["credit"])) for r in rows] == expected(source)


def test_tombstones_are_filtered_and_a_truncated_table_is_a_dead_letter(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **FIELDS, dead_letter_max_ratio=1.0)
    source = Source(seed=1)
    source.run(60)
    produce(world.landing.topics, [*source.changes, ("t", json.dumps({"op": "t", "before": None, "after": None}))])
    closed = world.run()
    counts = next(p.counts for p in closed.published if p.table == world.landing.table)
    assert (counts.landed, counts.rejected) == (source.ops.total(), 1)
    assert counts.filtered == sum(value is None for _, value in source.changes) > 0
    assert [row["kind"] for row in world.rows("shop.dead")] == ["truncated"]
    check_verified(world)
