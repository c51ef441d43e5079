# SPDX-License-Identifier: Apache-2.0
"""Ranges replaced in tables that another engine works on: Spark with Iceberg's runtime deletes, compacts, and reads.

It is the reader that shares no code with ours: rows are compared one by one, by position deletes, pruning and all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import uuid4

import pytest

from airflow_provider_lakecommit.core.offsets import Coverage, OffsetRange
from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.iceberg.ledger.replaced import Replaced
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace, replace_preview
from dev.servers.engine import Engine
from tests.support.messes import CREATE
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.engine

Make = Callable[..., World]
Produce = Callable[..., object]
ROWS = "lake.shop.rows"
MOR = f"ALTER TABLE {ROWS} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
COMPACT = "CALL lake.system.rewrite_data_files(table => 'shop.rows', options => map('rewrite-all', 'true'))"


def take_out(world: World, partition: int, start: int, end: int, *, fewer: bool = False) -> Replaced:
    with world.session() as session:
        known = read_ledger(session.tables.load("shop.rows").metadata).covered().parts
        (p,) = (p for p in known if p.partition == partition)
        coverage = Coverage.of([(p, OffsetRange(start, end))])
        (previewed,) = replace_preview(session, coverage)
        done = replace(session, coverage, commit_id=uuid4(), previews=[previewed], fewer=fewer)["shop.rows"]
    assert done.made.replaced == previewed.replaced
    return previewed.replaced


def read(engine: Engine, world: World) -> Counter[tuple[object, ...]]:
    rows = engine.sql(world.catalog, f"SELECT id, kafka_partition AS p, kafka_offset AS o FROM {ROWS}")
    return Counter((r["id"], r["p"], r["o"]) for r in rows)


def due(*ranges: range) -> Counter[tuple[object, ...]]:
    """All ids are offsets of partition 0."""
    return Counter((i, 0, i) for some in ranges for i in some)


@pytest.fixture
def world(make_engine_world: Make, produce: Produce) -> World:
    made = make_engine_world(metadata_columns=True, partitions=1)
    produce(made.landing.topics, records(0, 60))
    made.settle()
    produce(made.landing.topics, records(60, 60))
    made.settle()
    return made


def test_it_reads_what_is_left_and_what_is_landed_again(engine: Engine, world: World) -> None:
    took = take_out(world, 0, 50, 110)
    assert took.rows == 60
    assert read(engine, world) == due(range(50), range(110, 120))
    (pruned,) = engine.sql(world.catalog, f"SELECT count(*) AS n FROM {ROWS} WHERE kafka_offset >= 45 AND id < 115")
    assert pruned["n"] == 10
    world.settle()
    assert read(engine, world) == due(range(120))
    check_verified(world)


@pytest.mark.parametrize("when", ["before", "after"])
def test_compaction_before_or_after(engine: Engine, world: World, when: str) -> None:
    if when == "before":
        engine.sql(world.catalog, COMPACT)
    took = take_out(world, 0, 30, 90)
    assert took.rows == 60
    if when == "after":
        engine.sql(world.catalog, COMPACT)
    assert read(engine, world) == due(range(30), range(90, 120))
    world.settle()
    assert read(engine, world) == due(range(120))
    check_verified(world)


def test_its_position_deletes_are_applied_to_the_copies(engine: Engine, world: World) -> None:
    engine.sql(world.catalog, MOR)
    engine.sql(world.catalog, f"DELETE FROM {ROWS} WHERE id IN (10, 40, 70)")
    (files,) = engine.sql(world.catalog, f"SELECT count(*) AS n FROM {ROWS}.delete_files")
    assert files["n"]
    took = take_out(world, 0, 30, 90, fewer=True)
    assert (took.rows, took.deleted_rows) == (58, 3)
    assert read(engine, world) == due(range(30), range(90, 120)) - Counter({(10, 0, 10): 1})
    engine.sql(world.catalog, COMPACT)
    engine.sql(world.catalog, "CALL lake.system.rewrite_position_delete_files(table => 'shop.rows')")
    assert read(engine, world) == due(range(30), range(90, 120)) - Counter({(10, 0, 10): 1})
    check_verified(world)


def test_its_update_keeps_what_a_row_is_of(engine: Engine, world: World) -> None:
    engine.sql(world.catalog, f"UPDATE {ROWS} SET name = 'changed' WHERE id BETWEEN 20 AND 100")
    take_out(world, 0, 30, 90)
    assert read(engine, world) == due(range(30), range(90, 120))


def test_columns_and_partitions_that_it_changes(engine: Engine, world: World, produce: Produce) -> None:
    for statement in (
        f"ALTER TABLE {ROWS} ADD COLUMN added struct<a: int>",
        f"ALTER TABLE {ROWS} ALTER COLUMN n TYPE bigint",
        f"ALTER TABLE {ROWS} RENAME COLUMN name TO title",
        f"ALTER TABLE {ROWS} ADD PARTITION FIELD truncate(1, title)",
        f"ALTER TABLE {ROWS} WRITE ORDERED BY id",
    ):
        engine.sql(world.catalog, statement)
    produce(world.landing.topics, records(120, 40))
    world.settle()
    titles = f"SELECT id, title FROM {ROWS} WHERE id < 30 OR id >= 140"
    before = Counter((r["id"], r["title"]) for r in engine.sql(world.catalog, titles))
    take_out(world, 0, 30, 140)
    assert read(engine, world) == due(range(30), range(140, 160))
    assert Counter((r["id"], r["title"]) for r in engine.sql(world.catalog, titles)) == before
    check_verified(world)


def test_a_partition_column_that_is_missing(engine: Engine, make_engine_world: Make, produce: Produce) -> None:
    """The manifest that is written anew is one of a spec which no current column explains."""
    world = make_engine_world(metadata_columns=True, partitions=1, create={**CREATE, "partition_by": ["name"]})
    produce(world.landing.topics, [(None, f'{{"id": {n}, "name": "{n % 3}"}}') for n in range(60)])
    world.settle()
    engine.sql(world.catalog, f"ALTER TABLE {ROWS} DROP PARTITION FIELD name")
    engine.sql(world.catalog, f"ALTER TABLE {ROWS} DROP COLUMN name")
    take_out(world, 0, 20, 40)
    assert read(engine, world) == due(range(20), range(40, 60))
    world.settle()
    engine.sql(world.catalog, COMPACT)
    assert read(engine, world) == due(range(60))
    check_verified(world)


def test_format_version_3_is_refused_by_name(engine: Engine, world: World) -> None:
    engine.sql(world.catalog, f"ALTER TABLE {ROWS} SET TBLPROPERTIES ('format-version' = '3')")
    engine.sql(world.catalog, MOR)
    engine.sql(world.catalog, f"DELETE FROM {ROWS} WHERE id = 10")
    with pytest.raises(TableError, match=r"version 3.*LC7232"):
        take_out(world, 0, 30, 90)
    assert read(engine, world) == due(range(120)) - Counter({(10, 0, 10): 1})


@pytest.mark.parametrize("keyed", [False, True])
def test_what_a_reader_of_changes_sees(engine: Engine, make_engine_world: Make, produce: Produce, keyed: bool) -> None:
    """Deletions of just the rows that went. Rows that were only copied are no change, but to a reader that holds no two
    binary values for equal: Iceberg's procedure does not. A reader of appends sees nothing.
    """
    world = make_engine_world(metadata_columns=True, partitions=1)
    produce(world.landing.topics, [(key if keyed else None, value) for key, value in records(0, 120)])
    world.settle()
    head = f"SELECT snapshot_id, operation FROM {ROWS}.snapshots ORDER BY committed_at DESC LIMIT 1"
    (before,) = engine.sql(world.catalog, head)
    take_out(world, 0, 50, 110)
    (after,) = engine.sql(world.catalog, head)
    assert after["operation"] == "overwrite"
    between = {f"{edge}-snapshot-id": s["snapshot_id"] for edge, s in (("start", before), ("end", after))}
    options = ", ".join(f"'{k}', '{v}'" for k, v in between.items())
    engine.sql(
        world.catalog,
        "CALL lake.system.create_changelog_view(table => 'shop.rows', changelog_view => 'changes', "
        f"options => map({options}))",
    )
    changes = "SELECT id, sum(IF(_change_type = 'INSERT', 1, -1)) AS n, count(*) AS told FROM changes GROUP BY id"
    found = {r["id"]: (r["n"], r["told"]) for r in engine.sql(world.catalog, changes)}
    removed, copied = dict.fromkeys(range(50, 110), (-1, 1)), dict.fromkeys([*range(50), *range(110, 120)], (0, 2))
    assert found == ({**removed, **copied} if keyed else removed)
    given = ", ".join(f"'{k}' = '{v}'" for k, v in between.items())
    assert engine.sql(world.catalog, f"SELECT count(*) AS n FROM {ROWS} WITH ({given})") == [{"n": 0}]
