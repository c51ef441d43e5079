# SPDX-License-Identifier: Apache-2.0
"""Change envelopes, a route and SQL of one landing, by a real Spark job: its workers import the engine and the user's
function, and what they wrote is read by another one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_cli_land import new_landing
from tests.support.cli import Running, run
from tests.support.doc_sql import duck

__all__ = ["new_landing"]

pytestmark = [pytest.mark.integration, pytest.mark.heavy]

FUNCTION = """
def cents(text: str) -> int:
    whole, _, rest = text.partition(",")
    return int(whole) * 100 + int(rest)
"""
CHANGES = {"_op": "string", "_is_deleted": "boolean"}
ITEMS = [{"name": "order_id", "type": "long", "required": True}, {"name": "sku", "type": "string"}]
ITEMS += [{"name": "cents", "type": "long"}]
CUSTOMERS = [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]
CUSTOMERS += [{"name": name, "type": kind} for name, kind in CHANGES.items()]
SPEC = {
    "table": "shop.customers",
    "create": {"schema": CUSTOMERS},
    "unwrap": "debezium",
    "route": {
        "field": "source.table",
        "tables": {"customers": "shop.customers", "orders": "shop.items"},
        "create": {"shop.items": {"schema": ITEMS}},
    },
    "record_schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "items", "type": "list<struct<sku: string, price: string>>"},
        {"name": "_is_deleted", "type": "boolean"},
    ],
    "transform": {
        "shop.items": "select id as order_id, unnest(items).sku as sku, cents(unnest(items).price) as cents "
        "from record where not _is_deleted"
    },
    "functions": {"cents": "our_functions.cents"},
    "dead_letter_max_ratio": 1.0,
    "slice_records": 100,
}


def envelope(table: str, op: str, row: dict[str, Any] | None) -> dict[str, Any]:
    value = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
    return {"schema": {}, "payload": {**value, "source": {"table": table}, "ts_ms": 1}}


def changes(count: int) -> list[dict[str, Any] | None]:
    """Of each six: two customers, an order of two items, one of none, one that is deleted, and one that is wrong."""
    out: list[dict[str, Any] | None] = []
    for n in range(count):
        items = [{"sku": f"a{n}", "price": f"{n},07"}, {"sku": f"b{n}", "price": "1,00"}]
        out += [
            envelope("customers", "c", {"id": n, "name": f"n{n}"}),
            envelope("customers", "d", {"id": n, "name": f"n{n}"}),
            None,
            envelope("orders", "c", {"id": n, "items": items}),
            envelope("orders", "c", {"id": n, "items": []}),
            envelope("orders", "d", {"id": n, "items": items}),
            envelope("orders", "c", {"id": n, "items": [{"sku": "x", "price": "one"}]}),
            envelope("stock", "c", {"id": n}),
        ]
    return out


def test_a_spark_job_makes_rows_of_envelopes_by_a_route_and_sql(
    new_landing: Callable[..., tuple[Path, Any]], tmp_path: Path
) -> None:
    spec, sender = new_landing(2, **SPEC)
    values = json.loads(spec.read_text())
    for partition in range(2):
        sender.produce(values["topics"], changes(100)[partition::2], partition)
    (tmp_path / "our_functions.py").write_text(FUNCTION)
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    landing = Running.land(spec, env={"PYTHONPATH": path})
    try:
        answer = landing.end()
    finally:
        landing.close()
    assert answer.code == 0, answer.err
    with duck(tmp_path / "extensions") as engine:
        engine.execute("LOAD iceberg")
        engine.execute("SET unsafe_enable_version_guessing = true")
        place = f"{values['catalog']['warehouse'].removeprefix('file://')}/shop"
        own = "COLUMNS(c -> c NOT LIKE 'kafka_%')"
        items = engine.execute(f"SELECT {own} FROM iceberg_scan('{place}/items') ORDER BY ALL").fetchall()
        kinds = "SELECT kind, count(*) FROM iceberg_scan('{}') GROUP BY ALL ORDER BY ALL"
        dead = engine.execute(kinds.format(f"{place}/orders_dead")).fetchall()
        customers = engine.execute(f"SELECT {own} FROM iceberg_scan('{place}/customers') ORDER BY ALL").fetchall()
    assert items == sorted((n, f"{s}{n}", n * 100 + 7 if s == "a" else 100) for n in range(100) for s in "ab")
    assert customers == sorted((n, f"n{n}", op, op == "d") for n in range(100) for op in "cd")
    assert dead == [("not_routed", 100), ("transform_failed", 100)]
    verified = run("verify", str(spec), "--json")
    assert verified.code == 0, verified.out
