# SPDX-License-Identifier: Apache-2.0
"""A table that follows its records stays one that another engine reads: Spark with Iceberg's runtime.

Which names keep it from that is tried on tables of its own, so that the list in the package is what it says.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from pyiceberg.types import LongType

from airflow_provider_lakecommit.formats.column_names import RESERVED
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from dev.servers.engine import Engine, EngineError
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import World, own_columns

pytestmark = pytest.mark.engine

Make = Callable[..., World]
Produce = Callable[..., object]
ALL = "SELECT * FROM lake.shop.rows ORDER BY id"
OF_CHANGES = {"_change_type", "_change_ordinal", "_commit_snapshot_id"}
"""Read as columns of a table, but not next to those of its changes."""
ODD = ("a b", "ü", 'sel"ect`', "q'uote", "a,b", "<x>", "order", "_is_deleted")


def begun(make_engine_world: Make, produce: Produce) -> World:
    world = make_engine_world(evolve="add")
    produce(world.landing.topics, [("1", '{"id": 1, "n": 1}')])
    world.settle()
    return world


def test_it_reads_what_records_with_hostile_names_made_of_a_table(
    engine: Engine, make_engine_world: Make, produce: Produce
) -> None:
    world = begun(make_engine_world, produce)
    hostile = dict.fromkeys((*RESERVED, "id_bucket", "ID", "x.y", *ODD), 7)
    produce(world.landing.topics, [("2", json.dumps({"id": 2, **hostile, "inner": {"_pos": 7}}))])
    world.settle()
    rows = engine.sql(world.catalog, ALL)
    assert [set(row) for row in rows] == [{"id", "name", "n", *ODD, "inner", *MARK_COLUMNS}] * 2
    assert [rows[1][name] for name in ODD] == [7] * len(ODD)
    assert rows[1]["inner"] == {"_pos": 7}
    check_verified(world)


@pytest.mark.parametrize("name", sorted(RESERVED - OF_CHANGES))
def test_it_reads_no_table_with_such_a_column(
    engine: Engine, make_engine_world: Make, produce: Produce, name: str
) -> None:
    world = begun(make_engine_world, produce)
    with table_of(world).update_schema() as update:
        update.add_column(name, LongType())
    with pytest.raises(EngineError, match="conflict with names reserved"):
        engine.sql(world.catalog, ALL)


def test_what_it_changes_is_taken_as_it_is(engine: Engine, make_engine_world: Make, produce: Produce) -> None:
    """It renames, drops, adds with another type and partitions anew, between windows."""
    world = begun(make_engine_world, produce)
    produce(world.landing.topics, [("2", '{"id": 2, "n": 2, "extra": "x", "more": 5}')])
    world.settle()
    for change in ("RENAME COLUMN extra TO word", "DROP COLUMN more", "ADD COLUMN late int"):
        engine.sql(world.catalog, f"ALTER TABLE lake.shop.rows {change}")
    produce(world.landing.topics, [("3", '{"id": 3, "extra": "y", "more": 6, "word": "z", "late": 8, "new": 1.5}')])
    world.settle()
    rows = engine.sql(world.catalog, "SELECT id, n, word, late, new FROM lake.shop.rows ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [
        (1, 1, None, None, None),
        (2, 2, "x", None, None),
        (3, None, "z", 8, 1.5),
    ]
    assert [f.name for f in own_columns(table_of(world).schema())] == ["id", "name", "n", "word", "late", "new"]
    check_verified(world)
