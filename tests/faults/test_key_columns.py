# SPDX-License-Identifier: Apache-2.0
"""A column of an upserting landing's key that another column replaces, by a change of the table: rows of the former
column are not taken for rows without a change, and no row of another key is replaced.

In memory: the plans, tasks and tables are the product's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from airflow_provider_lakecommit.core import LIVE
from airflow_provider_lakecommit.exceptions import LedgerError
from airflow_provider_lakecommit.iceberg import expire_older, refresh_ledger
from tests.support.campaign.console import console
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.steps import check_verified

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {
    "create": {"schema": [{"name": n, "type": "long"} for n in ("id", "other", "version")]},
    "upsert_key": ["id"],
    "upsert_deletes": "ignore",
}


def change(key: int, other: int, version: int) -> tuple[str, str]:
    return str(key), json.dumps({"id": key, "other": other, "version": version})


def renamed(world: MemoryWorld, *names: tuple[str, str]) -> None:
    for old, new in names:
        with world.session() as session, session.tables.load(world.landing.table).update_schema() as update:
            update.rename_column(old, new)


def made_anew(world: MemoryWorld) -> None:
    with world.session() as session:
        with session.tables.load(world.landing.table).update_schema(allow_incompatible_changes=True) as update:
            update.delete_column("id")
        with session.tables.load(world.landing.table).update_schema() as update:
            update.add_column("id", LongType())


SWAPPED = (("id", "x"), ("other", "id"), ("x", "other"))


@pytest.mark.parametrize("pending", [False, True])
def test_another_column_under_the_name_of_the_key_is_refused(tmp_path: Path, pending: bool) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(change(1, 10, 1), change(2, 20, 1))
        world.broker.produce(TOPIC, [change(1, 10, 2), change(10, 3, 2)], 0)
        if pending:
            world.write(world.open("died"))
        renamed(world, *SWAPPED)
        with pytest.raises(LedgerError, match="LC3058"):
            world.run()
        renamed(world, *SWAPPED)
        world.settle()
        assert world.found("id", "other", "version") == [(1, 10, 2), (10, 3, 2), (2, 20, 1)]
        check_verified(world)


def test_a_replaced_key_is_refused_after_the_snapshots_that_looked_for_it_have_expired(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(change(1, 10, 1), change(2, 20, 1))
        with world.session() as session:
            name = world.landing.table
            refresh_ledger(session.tables, name, world.landing.name, LIVE)
            now = session.tables.load(name).metadata.last_updated_ms
            assert expire_older(session.tables, name, "main", before_ms=now + 1)
        renamed(world, *SWAPPED)
        with pytest.raises(LedgerError, match="LC3058"):
            world.run()


def test_a_key_that_was_replaced_is_accepted_by_a_reset(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(change(1, 10, 1), change(2, 20, 1))
        renamed(world, *SWAPPED)
        spec = {**world.landing.to_flat(), "kafka": dict(world.kafka), "catalog": dict(world.catalog)}
        with console(tmp_path / "spec.json", spec) as commands:
            assert commands.run("reset", "key", "SPEC", "--yes").code == 0
        world.send(change(10, 5, 2))
        assert world.found("id", "other", "version") == [(10, 5, 2), (20, 2, 1)]
        made_anew(world)
        with console(tmp_path / "spec.json", spec) as commands:
            answer = commands.run("reset", "key", "SPEC", "--yes")
            assert answer.results[-1]["error"]["code"] == "LC3057", "rows of the former column have no key"


def test_slices_that_lack_a_column_of_the_key_are_read_again(tmp_path: Path) -> None:
    """The column is replaced before anything was published by it."""
    with memory_world(tmp_path, **OPTIONS) as world:
        world.run()
        world.broker.produce(TOPIC, [change(1, 10, 1), change(2, 20, 1), change(1, 10, 2)], 0)
        world.write(world.open("died"))
        made_anew(world)
        world.settle()
        assert world.found("id", "other", "version") == [(1, 10, 2), (2, 20, 1)]
        check_verified(world)
