# SPDX-License-Identifier: Apache-2.0
"""Change envelopes landed from a real topic: the log is complete, and a MERGE over it gives the source's rows, whatever
dies on the way.
"""

from __future__ import annotations

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

from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths
from tests.unit.records.test_unwrap import digits

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SPEC = yaml.safe_load((EXAMPLES / "changes.yaml").read_text())
FIELDS = {key: SPEC[key] for key in ("unwrap", "metadata_columns", "create", "timestamps", "encodings")}
MERGE = (EXAMPLES / "merge_changes.sql").read_text()


class Source:
    """A table of which each change is written as Debezium writes it."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
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
        self._change(op, before, self.rows[key])

    def _change(self, op: str, before: Any, after: Any) -> None:
        self.ops[op] += 1
        source = {"ts_ms": 1767323045006, "lsn": len(self.changes), "table": "customers", "connector": "postgresql"}
        value = {"before": before, "after": after, "op": op, "source": source, "ts_ms": 1}
        wrapped = {"schema": {"type": "struct"}, "payload": value} if self._random.random() < 0.5 else value
        self.changes.append((str((after or before)["id"]), json.dumps(wrapped)))


def merged(world: World) -> list[tuple[Any, ...]]:
    """The newest rows by the statement of the page, merged twice over."""
    with duckdb.connect() as engine, world.session() as session:
        changes = session.tables.load(world.landing.table).scan().to_arrow()
        engine.execute("create schema shop")
        engine.register("landed", changes)
        engine.execute("create table shop.customer_changes as select * from landed")
        engine.execute("create table shop.customers (id bigint, name varchar, credit decimal(12, 2))")
        for _ in range(2):
            engine.execute(MERGE)
        return engine.execute("select * from shop.customers order by id").fetchall()


def expected(source: Source) -> list[tuple[Any, ...]]:
    return [(key, row["name"], Decimal(row["name"][1:]) / 100) for key, row in sorted(source.rows.items())]


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
