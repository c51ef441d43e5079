# SPDX-License-Identifier: Apache-2.0
"""A table that is kept equal to its source, from a real topic, whatever dies on the way: every engine reads one row per
key, the ledger is complete, and `verify` agrees.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from duckdb_extensions import import_extension

from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.backfill.range_replacement import replace_preview
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay
from airflow_provider_lakecommit.operations.decisions.starts import Way
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from airflow_provider_lakecommit.spark.task import run_task
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.record_rows import check_rows
from airflow_provider_lakecommit.status.table_history import Severity
from airflow_provider_lakecommit.status.upserted import check_keys, live_problem
from tests.faults.test_crossings import anew, go_on
from tests.faults.test_envelopes import Source
from tests.faults.test_lanes import lane
from tests.faults.test_sweep import age, files, swept
from tests.support.groups import group_job
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths

__all__ = ["anew"]

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
COLUMNS = [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]
JSON: dict[str, Any] = {
    "create": {"schema": COLUMNS, "partition_by": ["bucket(2, id)"]},
    "key": {"columns": ["id"], "format": "json"},
    "upsert_key": ["id"],
    # The deleted rows of so small a table would defer the plans of runs that do not compact.
    "compact": False,
}
CHANGES: dict[str, Any] = {
    "create": {"schema": [*COLUMNS, {"name": "credit", "type": "decimal(12,2)", "required": True}]},
    "unwrap": "debezium",
    "upsert_key": ["id"],
    "encodings": {},
    "compact": False,
}


def names_by_id(world: World) -> dict[Any, Any]:
    """Return names by id, as DuckDB and pyiceberg both read them; no id may be there twice."""
    with world.session() as session:
        table = session.tables.load(world.landing.table)
    rows = [(r["id"], r["name"]) for r in table.scan().to_arrow().to_pylist()]
    with duckdb.connect() as database:
        for name in ("avro", "iceberg"):
            import_extension(name, con=database)
            database.load_extension(name)
        duck = database.execute(f"SELECT id, name FROM iceberg_scan('{table.metadata_location}')").fetchall()
    assert sorted(duck) == sorted(rows)
    assert len(dict(rows)) == len(rows), "a key is there twice"
    return dict(rows)


def check_all(world: World) -> None:
    """`verify --rows --keys` finds nothing wrong."""
    check_verified(world)
    landing = world.landing
    with world.session() as session:
        tables = session.tables
        histories = [read_history(tables, t, landing.branch, progress=lambda _: None) for t in landing.tables]
        found = [*check_rows(landing, histories, tables, lambda _: None), *check_keys(landing, tables, lambda _: None)]
    assert [str(f) for f in found if f.level is Severity.WRONG] == []
    data = histories[0]
    assert data.live == len(names_by_id(world))


class Model:
    """A source of keyed JSON records, and what its table must hold."""

    def __init__(self, seed: int) -> None:
        self._random, self.rows, self._version = random.Random(seed), dict[int, str](), 0

    def records(self, count: int) -> list[tuple[str, str | None]]:
        out: list[tuple[str, str | None]] = []
        for _ in range(count):
            key, self._version = self._random.randrange(25), self._version + 1
            if key in self.rows and self._random.random() < 0.3:
                del self.rows[key]
                out.append((json.dumps({"id": key}), None))
            else:
                self.rows[key] = f"v{self._version}"
                out.append((json.dumps({"id": key}), json.dumps({"name": self.rows[key]})))
        return out


def test_tombstones_delete_and_records_replace(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON), Model(1)
    for _ in range(3):
        produce(world.landing.topics, model.records(120))
        world.settle()
        assert names_by_id(world) == model.rows
    check_all(world)


def test_verify_finds_a_key_that_is_there_twice_and_rows_that_are_missing(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON), Model(4)
    produce(world.landing.topics, model.records(80))
    world.settle()
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        again = table.scan().to_arrow().slice(0, 1)
        assert list(check_keys(world.landing, session.tables, lambda _: None)) == []
        table.append(again)
        (found,) = check_keys(world.landing, session.tables, lambda _: None)
        assert found.level is Severity.WRONG
        assert str(again.column("id")[0].as_py()) in found.text
        history = read_history(session.tables, world.landing.table, "main", progress=lambda _: None)
    assert history.live is None, "another writer has changed rows"
    assert live_problem(history) is None
    short = replace(history, live=len(model.rows) - 1)
    assert "live rows by its metadata" in str(live_problem(short))


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_step(make_world: Make, produce: Produce, when: Any) -> None:
    world, model = make_world(**JSON), Model(2)
    produce(world.landing.topics, model.records(60))
    world.settle()
    for step in range(1, 12):
        produce(world.landing.topics, model.records(30))
        with suppress(Killed), deaths(step, when):
            world.run()
    world.settle()
    assert names_by_id(world) == model.rows
    check_all(world)


def test_changes_of_debezium(make_world: Make, produce: Produce) -> None:
    world = make_world(**{**CHANGES, "encodings": {"credit": "base64"}})
    source = Source(3)
    for _ in range(3):
        source.changes.clear()
        source.run(80)
        produce(world.landing.topics, source.changes)
        world.settle()
        assert names_by_id(world) == {key: row["name"] for key, row in source.rows.items()}
    check_verified(world)


SOFT: dict[str, Any] = {
    **JSON,
    "create": {**JSON["create"], "schema": [*COLUMNS, {"name": "_is_deleted", "type": "boolean"}]},
    "upsert_deletes": "soft",
}


def test_soft_deletes_keep_the_row_and_mark_it(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**SOFT), Model(5)
    produce(world.landing.topics, model.records(150))
    world.settle()
    found = {row["id"]: row for row in world.rows()}
    assert {key: row["name"] for key, row in found.items() if not row["_is_deleted"]} == model.rows
    removed = [row for row in found.values() if row["_is_deleted"]]
    assert removed
    assert all(row["name"] is None for row in removed)
    check_all(world)


def test_history_next_to_the_live_stream_never_wins(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **SOFT), Model(6)
    produce(world.landing.topics, model.records(90))
    world.landing = world.landing.changed(window={"start": "latest"})
    world.settle()
    produce(world.landing.topics, model.records(60))
    world.settle()
    expected = dict(model.rows)
    past = lane(world, "0=0-90")
    past.finish()
    found = {row["id"]: row["name"] for row in world.rows() if not row["_is_deleted"]}
    assert found == expected
    # Both streams together have each change.
    assert len(world.rows()) == 25
    produce(world.landing.topics, model.records(40))
    world.settle()
    assert {r["id"]: r["name"] for r in world.rows() if not r["_is_deleted"]} == model.rows
    check_all(world)


def test_what_needs_a_row_of_each_record_is_refused(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **JSON), Model(7)
    produce(world.landing.topics, model.records(30))
    world.settle()
    with world.session() as session:
        with pytest.raises(SpecError, match="LC1335"):
            lane_preview(session, lane(world, "0=0-10").request)
        with pytest.raises(SpecError, match="LC1334"):
            replace_preview(session, Coverage())
        with pytest.raises(SpecError, match="LC1334"):
            replay(session, Selection())


def test_after_a_rollback_the_changes_are_read_again(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON), Model(8)
    heads = []
    for _ in range(3):
        produce(world.landing.topics, model.records(50))
        world.settle()
        with world.session() as session:
            heads.append(session.tables.load(world.landing.table).current_snapshot().snapshot_id)  # type: ignore[union-attr]
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        table.manage_snapshots().rollback_to_snapshot(heads[0]).commit()
    produce(world.landing.topics, model.records(20))
    world.settle()
    assert names_by_id(world) == model.rows
    check_all(world)


def test_a_topic_made_anew_goes_on_in_the_table(
    make_world: Make, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    world, model = make_world(1, **JSON), Model(9)
    produce(world.landing.topics, model.records(120))
    world.settle()
    anew(world, 1)
    produce(world.landing.topics, model.records(40))
    go_on(world, "earliest")
    world.settle()
    assert names_by_id(world) == model.rows
    check_all(world)


def test_a_reset_that_goes_back_ends_with_the_newest_changes(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **JSON), Model(11)
    produce(world.landing.topics, model.records(120))
    world.settle()
    go_on(world, {(str(world.landing.topics), 0): 20}, Way(again=True))
    world.settle()
    assert names_by_id(world) == model.rows
    check_all(world)


def test_compactions_between_windows(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON), Model(10)
    snapshots = 0
    for _ in range(4):
        produce(world.landing.topics, model.records(100))
        world.settle()
        with world.session() as session:
            (done,) = compact(session, write=True, tables=[world.landing.table])
        assert not done.error
        snapshots += len(done.snapshots)
        assert names_by_id(world) == model.rows
    assert snapshots
    check_all(world)


def test_a_sweep_takes_tombstones_once_they_are_published_and_no_delete_file(
    make_world: Make, produce: Produce
) -> None:
    world, model = make_world(**JSON), Model(12)
    produce(world.landing.topics, model.records(100))
    world.settle()
    produce(world.landing.topics, model.records(60))
    opened = world.open("staged")
    before = files(world)
    world.write(opened)
    staged = files(world) - before
    age(files(world))
    done = swept(world)
    assert done.error == ""
    assert staged <= files(world), "what is reported may still be published"
    assert done.removed, "the tombstone files of the first windows"
    world.close("staged", opened)
    age(files(world))
    assert swept(world).removed
    assert names_by_id(world) == model.rows
    check_all(world)


def test_a_branch_is_kept_equal_and_main_stays(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON, dead_letter_table=None), Model(11)
    produce(world.landing.topics, model.records(60))
    world.settle()
    main = dict(model.rows)
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()  # type: ignore[union-attr]
    on_branch = replace(world, landing=world.landing.changed(publish={"branch": "audit"}))
    produce(world.landing.topics, model.records(60))
    on_branch.settle()
    assert names_by_id(world) == main
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        rows = table.scan(snapshot_id=table.metadata.refs["audit"].snapshot_id).to_arrow().to_pylist()
    assert sorted((r["id"], r["name"]) for r in rows) == sorted(model.rows.items())
    check_verified(on_branch)


def test_slices_that_two_replicas_do_change_each_row_once(make_world: Make, produce: Produce) -> None:
    world, model = make_world(partitions=1, replicas=2, **JSON), Model(12)
    for window in range(2):
        produce(world.landing.topics, model.records(100))
        opened = world.open(f"w{window}")
        with world.session() as session:
            for ticket in opened.groups:
                job = group_job(world.landing, session.control, ticket, "test")
                assert job is not None
                for replica in (0, 1):
                    copy = replace(job, replica=replica).begun()
                    for place in range(len(job.numbers)):
                        run_task(copy, world.secrets, place)
        world.close(f"w{window}", opened)
        assert names_by_id(world) == model.rows
    check_all(world)


def test_new_columns_of_the_records_come_to_rows_that_changed(make_world: Make, produce: Produce) -> None:
    world, model = make_world(**JSON, evolve="add"), Model(13)
    produce(world.landing.topics, model.records(40))
    world.settle()
    produce(world.landing.topics, [(json.dumps({"id": 1}), json.dumps({"name": "a", "size": 7}))] * 2)
    world.settle()
    model.rows[1] = "a"
    assert names_by_id(world) == model.rows
    sizes = {r["id"]: r["size"] for r in world.rows()}
    assert sizes == {**dict.fromkeys(model.rows), 1: 7}
    check_all(world)
