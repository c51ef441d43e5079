# SPDX-License-Identifier: Apache-2.0
"""What our writer wrote, read by another engine: values of every type that it has, and files found by partition and
by their bounds under every transform.

A wrong bound or partition value loses rows only for a reader that prunes by it, so each column is requested with a
condition that such a reader prunes by, and the answer is compared with what was sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dev.servers.engine import Engine
from tests.support.steps import check_verified
from tests.support.world import World

pytestmark = pytest.mark.engine

Make = Callable[..., World]
Produce = Callable[..., object]

COLUMNS = {
    "id": "long",
    "i": "int",
    "d": "double",
    "f": "float",
    "b": "boolean",
    "s": "string",
    "money": "decimal(12, 2)",
    "big": "decimal(30, 5)",
    "day": "date",
    "at": "timestamp",
    "attz": "timestamptz",
    "u": "uuid",
    "tags": "list<string>",
    "place": "struct<city: string, zip: int>",
    "counts": "map<string, long>",
}
ROWS = 60
PARTITIONS = (
    [],
    ["s"],
    ["b", "day"],
    ["bucket(4, id)"],
    ["bucket(3, u)"],
    ["bucket(3, s)"],
    ["bucket(3, money)"],
    ["bucket(3, attz)"],
    ["truncate(10, id)"],
    ["truncate(2, s)"],
    ["truncate(100, money)"],
    ["year(day)"],
    ["month(at)"],
    ["day(attz)"],
    ["hour(at)", "bucket(2, i)"],
)


def record(n: int) -> dict[str, Any]:
    """The n-th record; some are before 1970, negative, or without values."""
    at = datetime(1969, 12, 30, 22, 30) + timedelta(hours=7 * n, microseconds=n)
    values: dict[str, Any] = {
        "id": n,
        "i": n - 30,
        "d": (n - 30) / 4,
        "f": (n - 30) / 2,
        "b": n % 2 == 0,
        "s": f"{'äzй'[n % 3]}{n:02d}",
        "money": f"{(n - 30) * 1.25:.2f}",
        "big": f"{(n - 30) * 10**18}.00001",
        "day": str(at.date()),
        "at": at.isoformat(),
        "attz": at.replace(tzinfo=UTC).isoformat(),
        "u": f"{n * 7919 % 256:02x}000000-0000-4000-8000-0000000000{n:02x}",
        "tags": [f"t{n}", None],
        "place": {"city": f"c{n}", "zip": n},
        "counts": {"k": n},
    }
    return values if n % 10 else {"id": n}


@pytest.mark.parametrize("partition_by", PARTITIONS, ids=lambda fields: "-".join(fields) or "none")
def test_another_engine_finds_every_row_by_every_column(
    engine: Engine, make_engine_world: Make, produce: Produce, partition_by: list[str]
) -> None:
    schema = [{"name": name, "type": kind, "required": name == "id"} for name, kind in COLUMNS.items()]
    world = make_engine_world(create={"schema": schema, "partition_by": partition_by}, slice_records=15)
    rows = [record(n) for n in range(ROWS)]
    # Numbers as they are written: a decimal that went through a float is not what was sent.
    produce(world.landing.topics, [(str(r["id"]), _text(r)) for r in rows])
    world.settle()
    check_verified(world)

    def ids(condition: str) -> list[Any]:
        return [
            r["id"] for r in engine.sql(world.catalog, f"SELECT id FROM lake.shop.rows WHERE {condition} ORDER BY id")
        ]

    assert ids("true") == list(range(ROWS))
    assert ids("s IS NULL AND day IS NULL") == [n for n in range(ROWS) if n % 10 == 0]
    sample = [n for n in range(1, ROWS, 13) if n % 10]
    for n in sample:
        r = rows[n]
        for condition in (
            f"id = {n}",
            f"i = {r['i']}",
            f"d = {r['d']}",
            f"f = {r['f']}",
            f"s = '{r['s']}'",
            f"money = {r['money']}",
            f"big = {r['big']}BD",
            f"at = TIMESTAMP_NTZ '{r['at']}'",
            f"attz = TIMESTAMP '{r['attz']}'",
            # This release finds no uuid by comparison, not even one that it wrote itself.
            f"upper(u) = '{r['u'].upper()}'",
            f"tags[0] = 't{n}' AND tags[1] IS NULL",
            f"place.city = 'c{n}' AND place.zip = {n}",
            f"counts['k'] = {n}",
        ):
            assert ids(condition) == [n], condition
        assert ids(f"day = DATE '{r['day']}' AND b = {r['b']}") == [
            m for m, other in enumerate(rows) if other.get("day") == r["day"] and other["b"] == r["b"]
        ]
        assert ids(f"at >= TIMESTAMP_NTZ '{r['at']}' AND i > -100") == [m for m in range(n, ROWS) if m % 10]
        assert ids(f"money < {r['money']}") == [m for m in range(n) if m % 10]
    (files,) = engine.sql(world.catalog, "SELECT sum(record_count) AS n FROM lake.shop.rows.files")
    assert files == {"n": ROWS}


def _text(r: dict[str, Any]) -> str:
    text = json.dumps({k: v for k, v in r.items() if k not in ("money", "big")})
    numbers = "".join(f', "{k}": {r[k]}' for k in ("money", "big") if k in r)
    return text[:-1] + numbers + "}"
