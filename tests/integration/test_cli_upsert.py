# SPDX-License-Identifier: Apache-2.0
"""Tables that a real Spark job keeps equal to their source, verified by the command, read by DuckDB and pyiceberg: one
landing, and a set of landings.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.cli.terminal.output import Exit
from tests.integration.test_cli_land import land, new_landing, table_of
from tests.support.cli import run
from tests.support.doc_sql import duck
from tests.support.shop import Shop

__all__ = ["new_landing"]

pytestmark = [pytest.mark.integration, pytest.mark.long]

SPEC: dict[str, Any] = {
    "table": "shop.accounts",
    "create": {
        "schema": [{"name": "id", "type": "long", "required": True}, {"name": "balance", "type": "long"}],
        "partition_by": ["bucket(4, id)"],
    },
    "key": {"columns": ["id"], "format": "json"},
    "upsert_key": ["id"],
    "slice_records": 300,
    "groups": 2,
}


def test_each_run_leaves_one_row_per_key(new_landing: Callable[..., tuple[Path, Any]], tmp_path: Path) -> None:
    spec, sender = new_landing(2, **SPEC)
    values = json.loads(spec.read_text())
    expected: dict[int, int] = {}
    for run_number in range(2):
        for partition in range(2):
            changes = []
            for n in range(800):
                key = (n * 7 + run_number * 13) % 250 * 2 + partition
                balance = None if n % 11 == 0 else run_number * 1000 + n
                expected |= {key: balance}  # type: ignore[dict-item]
                value = None if balance is None else json.dumps({"balance": balance})
                changes.append((json.dumps({"id": key}), value))
            sender.produce(values["topics"], changes, partition)
        expected = {key: balance for key, balance in expected.items() if balance is not None}
        answer = land(spec)
        assert answer.code == 0, answer.err
        with duck(tmp_path / "extensions") as engine:
            engine.execute("LOAD iceberg")
            place = table_of(spec).metadata_location
            rows = engine.execute(f"SELECT id, balance FROM iceberg_scan('{place}')").fetchall()
        assert len(rows) == len(dict(rows))
        assert dict(rows) == expected
        ours = table_of(spec).scan(selected_fields=("id", "balance")).to_arrow().to_pylist()
        assert sorted(rows) == sorted((r["id"], r["balance"]) for r in ours)
    summaries = [s.summary.additional_properties for s in table_of(spec).metadata.snapshots if s.summary]
    assert sum(int(s.get("lakecommit.superseded", 0)) for s in summaries) > 0
    assert sum(int(s.get("lakecommit.deleted", 0)) for s in summaries) > 0
    # Many rows of so small a table are deleted: the runs have compacted it.
    assert any("lakecommit.compacted" in s for s in summaries)
    verified = run("verify", str(spec), "--rows", "--keys", "--json")
    assert verified.code == 0, verified.out
    (table, *_) = json.loads(verified.out)["tables"]
    assert table["rows"] - table["superseded"] - table["deleted"] == len(expected)
    assert table["counts"]["superseded"] > 0
    assert table["counts"]["deleted"] > 0


@pytest.mark.heavy
def test_a_table_that_was_appended_to_gets_one_row_per_key(new_landing: Callable[..., tuple[Path, Any]]) -> None:
    spec, sender = new_landing(1, **{name: value for name, value in SPEC.items() if name != "upsert_key"})
    values = json.loads(spec.read_text())
    changes = [(json.dumps({"id": n % 40}), json.dumps({"balance": n})) for n in range(100)]
    sender.produce(values["topics"], changes, 0)
    assert land(spec).code == 0
    spec.write_text(json.dumps({**values, "upsert": {"key": ["id"]}}))
    refused = land(spec)
    assert refused.code != 0
    assert "LC3055" in refused.err
    previewed = run("reset", "key", str(spec), "--json")
    assert previewed.code == Exit.UNCONFIRMED
    assert json.loads(previewed.out)["superseded"] == 60
    done = run("reset", "key", str(spec), "--yes", "--reason", "the newest rows are enough", "--json")
    assert done.code == 0, done.err
    sender.produce(values["topics"], [(json.dumps({"id": 3}), json.dumps({"balance": 1000}))], 0)
    assert land(spec).code == 0
    found = {r["id"]: r["balance"] for r in table_of(spec).scan().to_arrow().to_pylist()}
    assert found == {**{n % 40: n for n in range(100)}, 3: 1000}
    verified = run("verify", str(spec), "--rows", "--keys", "--json")
    assert verified.code == 0, verified.out


def change(key: int, balance: int | None) -> tuple[str, str | None]:
    return json.dumps({"id": key}), None if balance is None else json.dumps({"balance": balance})


def balances(table: Any) -> dict[int, int]:
    """Return balances by id; no id may be there twice."""
    rows = table.refresh().scan(selected_fields=("id", "balance")).to_arrow().to_pylist()
    found = {r["id"]: r["balance"] for r in rows}
    assert len(found) == len(rows)
    return found


@pytest.mark.heavy
def test_a_set_keeps_the_table_of_each_topic_equal(shop: Shop) -> None:
    names, catalog = ("accounts", "cards", "loans"), shop.sql()
    own = {key: value for key, value in SPEC.items() if key not in ("table", "groups")}
    defaults = {**own, "control_topic": f"{shop.prefix}-control"}
    expected: dict[str, dict[int, int]] = {name: {} for name in names}
    for name in names:
        shop.topic(name, partitions=1)
    for turn in range(2):
        for n, name in enumerate(names):
            rows, changes = expected[name], []
            for k in range(40):
                if k % 5 == turn and k % 3:
                    rows.pop(k % 10 + n, None)
                    changes.append(change(k % 10 + n, None))
                else:
                    rows[k % 10 + n] = 1000 * turn + k
                    changes.append(change(k % 10 + n, 1000 * turn + k))
            shop.sender.produce(f"{shop.prefix}.{name}", changes, 0)
        answer = shop.run("land", defaults=defaults)
        assert answer.code == 0, answer.err
        assert {name: balances(catalog.load_table(f"lake.{name}")) for name in names} == expected
    for name in names:
        verified = shop.run("verify", "--keys", "--landing", f"shop.lake.{name}", defaults=defaults)
        assert verified.code == 0, verified.out + verified.err
