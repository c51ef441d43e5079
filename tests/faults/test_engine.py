# SPDX-License-Identifier: Apache-2.0
"""Another engine at work on the same tables: what Spark with Iceberg's own runtime does between any two steps.

Maintenance (compaction, expiry, orphan clean-up), people (rollback, branches, REPLACE) and other jobs (DELETE, MERGE),
done by the implementation that most tables meet. Afterwards that engine counts the rows too, as a reader that shares no
code with ours.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_lakecommit.exceptions import TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry
from dev.servers.engine import Engine, EngineError
from tests.support import messes
from tests.support.messes import FOREIGN, Cure, table_of
from tests.support.steps import Step, check_verified, interrupted_cycle
from tests.support.world import World, records

pytestmark = pytest.mark.engine

Make = Callable[..., World]
Produce = Callable[..., object]
Sql = Callable[[str], list[dict[str, object]]]

ROWS = "lake.shop.rows"
CALL = "CALL lake.system."
INSERT = f"INSERT INTO {{}} (id, name) SELECT explode(array({', '.join(map(str, FOREIGN))})), 'x'"
STEPS = (Step.REPORTED, Step.CHECKED, Step.APPENDED, Step.CLOSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineMess:
    """Statements, or what makes them from the world; ``cure`` as in :class:`tests.support.messes.Mess`."""

    name: str
    log: Callable[[World], Iterable[str]]
    cure: Cure | None = None
    adds: tuple[int, ...] = ()
    removes: tuple[int, ...] = ()


def run_statements(*statements: str) -> Callable[[World], Iterable[str]]:
    return lambda _: statements


def line(world: World) -> list[int]:
    """Snapshots of main, newest first."""
    return [s.snapshot_id for s in ancestry(table_of(world).metadata, "main")]


def then_expire(*statements: str) -> Callable[[World], Iterable[str]]:
    """Statements, and then the expiry of everything older than the end of the last one."""

    def log(_: World) -> Iterator[str]:
        yield from statements
        time.sleep(0.01)
        when = f"TIMESTAMP '{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}'"
        yield f"{CALL}expire_snapshots(table => 'shop.rows', older_than => {when}, retain_last => 1)"

    return log


def pick_again(world: World) -> Iterable[str]:
    """Rolled back, and what was rolled back picked again: the same snapshot comes back."""
    head, before = line(world)[:2]
    return (f"{CALL}rollback_to_snapshot('shop.rows', {before})", f"{CALL}cherrypick_snapshot('shop.rows', {head})")


def pick_over_others(world: World) -> Iterable[str]:
    """Rolled back, written to by others, and then the landing's snapshot picked: its rows come without its ledger."""
    head, before = line(world)[:2]
    return (
        f"{CALL}rollback_to_snapshot('shop.rows', {before})",
        INSERT.format(ROWS),
        f"{CALL}cherrypick_snapshot('shop.rows', {head})",
    )


MESSES = (
    EngineMess(name="insert", log=run_statements(INSERT.format(ROWS)), adds=FOREIGN),
    EngineMess(name="delete", log=run_statements(f"DELETE FROM {ROWS} WHERE id < 10"), removes=tuple(range(10))),
    EngineMess(name="update", log=run_statements(f"UPDATE {ROWS} SET name = 'changed' WHERE id < 10")),
    EngineMess(
        name="merge",
        log=run_statements(
            f"MERGE INTO {ROWS} t USING (SELECT explode(array(1, 2, 900)) AS id) s ON t.id = s.id "
            "WHEN MATCHED THEN UPDATE SET name = 'merged' WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, 'new')"
        ),
        adds=(900,),
    ),
    EngineMess(
        name="rewrite_data_files",
        log=run_statements(f"{CALL}rewrite_data_files(table => 'shop.rows', options => map('rewrite-all', 'true'))"),
    ),
    EngineMess(name="rewrite_manifests", log=run_statements(f"{CALL}rewrite_manifests('shop.rows')")),
    EngineMess(name="expire_snapshots", log=then_expire()),
    EngineMess(
        name="compaction, then expiry",
        log=then_expire(f"{CALL}rewrite_data_files(table => 'shop.rows', options => map('rewrite-all', 'true'))"),
    ),
    EngineMess(
        name="two writes, then expiry",
        log=then_expire(INSERT.format(ROWS), f"INSERT INTO {ROWS} (id) VALUES (990)"),
        cure=messes.AT_THE_TAG,
        adds=(*FOREIGN, 990),
    ),
    EngineMess(name="rollback", log=lambda w: (f"{CALL}rollback_to_snapshot('shop.rows', {line(w)[1]})",)),
    EngineMess(name="set_current", log=lambda w: (f"{CALL}set_current_snapshot('shop.rows', {line(w)[-1]})",)),
    EngineMess(name="rollback and cherry-pick", log=pick_again),
    EngineMess(name="rollback, insert and cherry-pick", log=pick_over_others, cure=messes.AT_THE_TAG, adds=FOREIGN),
    EngineMess(
        name="fast_forward",
        log=run_statements(
            f"ALTER TABLE {ROWS} CREATE BRANCH side",
            INSERT.format(f"{ROWS}.branch_side"),
            f"{CALL}fast_forward('shop.rows', 'main', 'side')",
        ),
        adds=FOREIGN,
    ),
    EngineMess(name="tag dropped", log=run_statements(f"ALTER TABLE {ROWS} DROP TAG `lakecommit-main`")),
    EngineMess(
        name="replace as select",
        log=run_statements(f"REPLACE TABLE {ROWS} USING iceberg AS SELECT * FROM {ROWS}"),
        cure=messes.AT_THE_TAG,
    ),
    EngineMess(
        name="create or replace",
        log=run_statements(
            f"CREATE OR REPLACE TABLE {ROWS} (id bigint NOT NULL, name string, n int) USING iceberg "
            "PARTITIONED BY (bucket(4, id))"
        ),
        cure=messes.ANEW,
    ),
    EngineMess(
        name="partition field added", log=run_statements(f"ALTER TABLE {ROWS} ADD PARTITION FIELD truncate(1, name)")
    ),
    EngineMess(
        name="partition field dropped", log=run_statements(f"ALTER TABLE {ROWS} DROP PARTITION FIELD bucket(2, id)")
    ),
    EngineMess(name="ordered", log=run_statements(f"ALTER TABLE {ROWS} WRITE ORDERED BY name")),
    EngineMess(
        name="columns changed",
        log=run_statements(
            f"ALTER TABLE {ROWS} ADD COLUMN added struct<a: int>",
            f"ALTER TABLE {ROWS} ALTER COLUMN n TYPE bigint",
            f"ALTER TABLE {ROWS} RENAME COLUMN name TO title",
        ),
    ),
)


def count_by(engine: Engine, world: World, expected: Counter[int]) -> None:
    """The engine finds these ids, by reading and by the files' own counts, and prunes files without losing rows."""
    (found,) = engine.sql(
        world.catalog, f"SELECT count(*) AS n, count(DISTINCT id) AS ids, sum(id) AS total FROM {ROWS}"
    )
    total = sum(expected.elements())
    assert found == {"n": expected.total(), "ids": len(expected), "total": total}
    middle = sorted(expected)[len(expected) // 2]
    (pruned,) = engine.sql(world.catalog, f"SELECT count(*) AS n FROM {ROWS} WHERE id >= {middle}")
    assert pruned == {"n": sum(n for i, n in expected.items() if i >= middle)}


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name.lower())
@pytest.mark.parametrize("mess", MESSES, ids=lambda mess: mess.name.replace(" ", "-"))
def test_what_another_engine_does_between_two_steps(
    engine: Engine, make_engine_world: Make, produce: Produce, mess: EngineMess, step: Step
) -> None:
    world = make_engine_world()
    topic = world.landing.topics
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))

    def act() -> None:
        for statement in mess.log(world):
            engine.sql(world.catalog, statement)

    interrupted_cycle(world, step, act)
    produce(topic, records(100, 20))
    if mess.cure is not None:
        with pytest.raises(mess.cure.error, match=mess.cure.message):
            world.settle()
        mess.cure.remedy(world)
    world.settle()
    expected = Counter(range(120)) - Counter(mess.removes) + Counter(mess.adds)
    world.check(expected)
    check_verified(world)
    count_by(engine, world, expected)


def test_orphan_clean_up_that_takes_files_of_pending_slices(
    engine: Engine, make_engine_world: Make, produce: Produce
) -> None:
    """The clean-up spares files of the last day, so a pending slice's are as old here."""
    world = make_engine_world()
    topic = world.landing.topics
    produce(topic, records(0, 40))
    world.run()
    produce(topic, records(40, 60))
    old = datetime.now(UTC) - timedelta(days=2)
    opened = world.open("pending")
    world.write(opened)
    world.now = lambda: datetime.now(UTC) + timedelta(hours=25)
    for path in Path(world.catalog["warehouse"].removeprefix("file://")).rglob("*.parquet"):
        os.utime(path, (old.timestamp(), old.timestamp()))
    older_than = f"TIMESTAMP '{old + timedelta(hours=1):%Y-%m-%d %H:%M:%S}'"
    removed = engine.sql(world.catalog, f"{CALL}remove_orphan_files(table => 'shop.rows', older_than => {older_than})")
    assert any(str(row["orphan_file_location"]).endswith(".parquet") for row in removed)
    closed = world.close("pending", opened)
    assert len(closed.voided) == len(opened.slices)
    world.settle()
    world.check(Counter(range(100)))
    check_verified(world)
    count_by(engine, world, Counter(range(100)))


def test_a_table_of_format_version_3_is_refused_by_name_and_nothing_is_lost(
    engine: Engine, make_engine_world: Make, produce: Produce
) -> None:
    world = make_engine_world()
    produce(world.landing.topics, records(0, 40))
    world.run()
    produce(world.landing.topics, records(40, 60))
    engine.sql(world.catalog, f"ALTER TABLE {ROWS} SET TBLPROPERTIES ('format-version' = '3')")
    with pytest.raises(TableError, match=r"version 3.*LC6224"):
        world.run()
    world.check(Counter(range(40)))


def test_a_statement_that_is_refused_leaves_the_engine_at_work(engine: Engine, make_engine_world: Make) -> None:
    world = make_engine_world()
    with pytest.raises(EngineError, match=r"shop.*nothing"):
        engine.sql(world.catalog, "SELECT * FROM lake.shop.nothing")
    assert engine.sql(world.catalog, "SELECT 1 AS one") == [{"one": 1}]
