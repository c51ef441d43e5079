# SPDX-License-Identifier: Apache-2.0
"""Deleted rows of a table with a row per key that another engine has rewritten: its delete files are missing then, and
no run waits for a compaction that could not remove them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_lakecommit.iceberg.ledger.compaction import debt_of
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from tests.support.in_memory import MemoryWorld, memory_world
from tests.support.steps import check_verified

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {
    "create": {
        "schema": [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}],
        "partition_by": ["bucket(2, id)"],
    },
    "key": {"columns": ["id"], "format": "json"},
    "upsert_key": ["id"],
}


def total(table: Any, what: str) -> int:
    return int(table.current_snapshot().summary.additional_properties.get(f"total-{what}", 0))


def change(key: int, name: str) -> tuple[str, str]:
    return json.dumps({"id": key}), json.dumps({"name": name})


def rewrite(world: MemoryWorld) -> None:
    """Another engine makes new files of all rows, and leaves the delete files of the old ones where they are."""
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        table.overwrite(table.scan().to_arrow())


def test_delete_files_that_apply_to_nothing_are_taken_out_and_no_plan_waits_for_them(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*(change(n, "a") for n in range(20)))
        world.send(*(change(n, "b") for n in range(12)))
        rows = world.found("id", "name")
        rewrite(world)
        with world.session() as session:
            table = session.tables.load(world.landing.table)
            assert (total(table, "delete-files"), total(table, "position-deletes")) == (2, 12), "they are left behind"
            (done,) = compact(session, write=True, tables=[world.landing.table])
            assert (done.error, len(done.snapshots), done.numbers.deletes_in) == ("", 1, 2)
            table.refresh()
            assert (total(table, "delete-files"), total(table, "position-deletes")) == (0, 0)
            debt = debt_of(table.metadata, "main", world.landing.maintain)
            assert debt is not None
            assert (debt.due, debt.defers) == (False, False)
            (again,) = compact(session, write=True, tables=[world.landing.table])
            assert again.snapshots == [], "there is nothing more to do"
        assert world.found("id", "name") == rows
        world.send(change(0, "c"), change(30, "new"))
        assert dict(world.found("id", "name")) == {**dict(rows), 0: "c", 30: "new"}
        check_verified(world)


@pytest.mark.heavy
def test_delete_files_of_a_table_that_is_compacted_as_well(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*(change(n, "a") for n in range(20)))
        world.send(*(change(n, "b") for n in range(12)))
        rewrite(world)
        world.send(*(change(n, "c") for n in range(10)))
        rows = world.found("id", "name")
        with world.session() as session:
            (done,) = compact(session, write=True, tables=[world.landing.table])
            assert done.error == ""
            table = session.tables.load(world.landing.table)
            assert (total(table, "delete-files"), total(table, "position-deletes")) == (0, 0)
        assert world.found("id", "name") == rows
        check_verified(world)
