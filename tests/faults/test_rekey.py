# SPDX-License-Identifier: Apache-2.0
"""A table that was appended to gets one row per key, and is appended to again: `reset key`, crossed with kills, other
writers, slices in flight and compactions.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.exceptions import LedgerError, TableError
from airflow_provider_lakecommit.iceberg.ledger import excess_rows
from airflow_provider_lakecommit.operations.decisions.key_change import KeyChange, apply, preview
from airflow_provider_lakecommit.operations.decisions.requests import ResetKey
from airflow_provider_lakecommit.operations.decisions.starts import Way
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from tests.faults.test_crossings import anew, go_on
from tests.faults.test_envelopes import Source
from tests.faults.test_upserts import COLUMNS, Model, check_all, names_by_id
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths

__all__ = ["anew"]

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
MARKED = [*COLUMNS, {"name": "_is_deleted", "type": "boolean"}]
CHANGES: dict[str, Any] = {
    "create": {"schema": MARKED, "partition_by": ["bucket(2, id)"]},
    "unwrap": "debezium",
    "encodings": {},
    "compact": False,
}
LOG: dict[str, Any] = {
    "create": {"schema": COLUMNS, "partition_by": ["bucket(2, id)"]},
    "key": {"columns": ["id"], "format": "json"},
    "compact": False,
}
KEYED = {"upsert": {"key": ["id"]}}
REASON = Decision(command="reset key", actor="ana", host="here", at="2026-11-27T00:00:00", landing="faults")


def shown(world: World) -> KeyChange:
    with world.session() as session:
        return preview(session, ResetKey())


def changed(world: World, agreed: KeyChange | None = None) -> dict[str, Any]:
    with world.session() as session:
        return apply(session, ResetKey(), agreed or preview(session, ResetKey()), REASON)


def produced(world: World, produce: Produce, source: Source, steps: int) -> None:
    source.changes.clear()
    source.run(steps)
    produce(world.landing.topics, source.changes)


def names(source: Source) -> dict[int, str]:
    return {key: row["name"] for key, row in source.rows.items()}


@pytest.mark.parametrize("rows_at_once", [excess_rows.ROWS_AT_ONCE, 37])
def test_a_log_of_changes_becomes_its_newest_rows(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch, rows_at_once: int
) -> None:
    monkeypatch.setattr(excess_rows, "ROWS_AT_ONCE", rows_at_once)
    world, source = make_world(**CHANGES), Source(1)
    for _ in range(2):
        produced(world, produce, source, 60)
        world.settle()
    log = world.rows()
    world.landing = world.landing.changed(**KEYED)
    with pytest.raises(LedgerError, match="LC3055"):
        world.run()
    before = shown(world)
    assert (before.old, before.new, before.rows) == ((), ("id",), len(log))
    assert before.rows - before.superseded - before.deleted == len(source.rows)
    assert before.deleted
    assert world.rows() == log, "a preview writes nothing"
    changed(world, before)
    assert names_by_id(world) == names(source)
    produced(world, produce, source, 60)
    world.settle()
    assert names_by_id(world) == names(source)
    check_all(world)
    again = shown(world)
    assert (again.superseded, again.deleted) == (0, 0)


@pytest.mark.parametrize("deletes", ["soft", "ignore"])
def test_deletes_that_are_kept_or_ignored(make_world: Make, produce: Produce, deletes: str) -> None:
    world, source = make_world(**CHANGES), Source(2)
    produced(world, produce, source, 100)
    world.settle()
    log = world.rows()
    last: dict[int, dict[str, Any]] = {}
    for row in sorted(log, key=lambda r: (r["kafka_partition"], r["kafka_offset"])):
        if deletes == "soft" or not row["_is_deleted"]:
            last[row["id"]] = row
    world.landing = world.landing.changed(upsert={"key": ["id"], "deletes": deletes})
    changed(world)
    assert {r["id"]: r for r in world.rows()} == last
    assert len(world.rows()) == len(last)
    if deletes == "soft":
        assert {k: r["name"] for k, r in last.items() if not r["_is_deleted"]} == names(source)
    check_verified(world)


def test_a_log_without_a_mark_of_deletes_is_refused(make_world: Make, produce: Produce) -> None:
    world, source = make_world(**{**CHANGES, "create": {"schema": COLUMNS}}), Source(3)
    produced(world, produce, source, 20)
    world.settle()
    world.landing = world.landing.changed(**KEYED)
    with pytest.raises(TableError, match="LC7054"):
        shown(world)


def test_back_to_a_row_per_record_and_forth(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **LOG, upsert_key=["id"]), Model(4)
    produce(world.landing.topics, model.records(60))
    world.settle()
    kept = world.rows()
    world.landing = world.landing.changed(upsert={"key": ()})
    with pytest.raises(LedgerError, match="LC3055"):
        world.run()
    assert shown(world).rows == 0
    changed(world)
    assert world.rows() == kept
    more = [(k, v) for k, v in Model(5).records(40) if v is not None]
    produce(world.landing.topics, more)
    world.settle()
    assert len(world.rows()) == len(kept) + len(more)
    check_verified(world)
    world.landing = world.landing.changed(**KEYED)
    assert shown(world).tombstones is True
    changed(world)
    newest = {**model.rows, **{json.loads(k)["id"]: json.loads(v)["name"] for k, v in more}}
    assert names_by_id(world) == newest
    check_all(world)


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_in_the_commit(make_world: Make, produce: Produce, when: Any) -> None:
    world, source = make_world(**CHANGES), Source(6)
    produced(world, produce, source, 60)
    world.settle()
    world.landing = world.landing.changed(**KEYED)
    with suppress(Killed), deaths(1, when):
        changed(world)
    changed(world)
    assert names_by_id(world) == names(source)
    world.settle()
    check_all(world)


def test_more_rows_than_previewed_are_refused(make_world: Make, produce: Produce) -> None:
    world, source = make_world(1, **CHANGES), Source(7)
    produced(world, produce, source, 40)
    world.settle()
    other = World(landing=world.landing, kafka=world.kafka, catalog=world.catalog, runs=100)
    world.landing = world.landing.changed(**KEYED)
    before = shown(world)
    produced(other, produce, source, 40)
    other.settle()
    with pytest.raises(LedgerError, match="LC7052"):
        changed(world, before)
    changed(world)
    assert names_by_id(world) == names(source)


def test_reported_slices_of_the_former_rule_are_read_again(make_world: Make, produce: Produce) -> None:
    world, source = make_world(**CHANGES), Source(8)
    produced(world, produce, source, 60)
    world.settle()
    produced(world, produce, source, 60)
    opened = world.open("old")
    world.write(opened)
    world.landing = world.landing.changed(**KEYED)
    changed(world)
    world.settle()
    assert names_by_id(world) == names(source)
    check_all(world)


def test_two_partitions_order_nothing_without_a_column(make_world: Make, produce: Produce) -> None:
    schema = [*MARKED, {"name": "version", "type": "long"}]
    world = make_world(2, **{**LOG, "create": {"schema": schema}})
    for version, partition in ((2, 0), (1, 1)):
        value = json.dumps({"name": f"v{version}", "version": version})
        produce(world.landing.topics, [(json.dumps({"id": 1}), value)], partition)
    world.settle()
    ignoring = {"key": ["id"], "deletes": "ignore"}
    world.landing = world.landing.changed(upsert=ignoring)
    with pytest.raises(TableError, match="LC7053"):
        shown(world)
    world.landing = world.landing.changed(upsert={**ignoring, "order_by": ["version", "offset"]})
    changed(world)
    assert names_by_id(world) == {1: "v2"}
    check_all(world)


def test_rows_of_another_writer_are_older_and_go(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **LOG, upsert_key=["id"]), Model(9)
    produce(world.landing.topics, model.records(80))
    world.settle()
    with world.session() as session:
        table = session.tables.load(world.landing.table)
        rows = table.scan().to_arrow().slice(0, 3)
        for name in ("kafka_topic", "kafka_partition", "kafka_generation", "kafka_offset"):
            column = rows.schema.get_field_index(name)
            rows = rows.set_column(
                column, rows.schema.field(name), pa.nulls(rows.num_rows, rows.schema.field(name).type)
            )
        table.append(rows)
    found = shown(world)
    assert (found.old, found.new, found.superseded) == (("id",), ("id",), 3)
    changed(world)
    assert names_by_id(world) == model.rows


def test_a_row_without_a_key_is_named(make_world: Make, produce: Produce) -> None:
    optional = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    world = make_world(1, create={"schema": optional}, compact=False)
    produce(world.landing.topics, [("a", json.dumps({"name": "nobody"}))])
    world.settle()
    world.landing = world.landing.changed(upsert={"key": ["id"], "deletes": "ignore"})
    with pytest.raises(TableError, match="LC3057"):
        shown(world)


def test_between_compactions_and_readings_of_a_topic_made_anew(
    make_world: Make, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    world, source = make_world(1, **CHANGES), Source(10)
    produced(world, produce, source, 60)
    world.settle()
    anew(world, 1)
    produced(world, produce, source, 60)
    go_on(world, "earliest")
    world.settle()
    with world.session() as session:
        (done,) = compact(session, write=True, tables=[world.landing.table])
    assert not done.error
    world.landing = world.landing.changed(**KEYED)
    changed(world)
    assert names_by_id(world) == names(source)
    with world.session() as session:
        (done,) = compact(session, write=True, tables=[world.landing.table])
    assert not done.error
    # Going back over the log brings older states, and then the newest ones again.
    go_on(world, {(str(world.landing.topics), 0): 10}, Way(again=True))
    world.settle()
    assert names_by_id(world) == names(source)
    check_all(world)


def test_nothing_to_change_before_the_first_run(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **LOG, upsert_key=["id"])
    with pytest.raises(LedgerError, match="LC7050"):
        shown(world)


def test_a_table_that_merge_keeps_is_taken_over(make_world: Make, produce: Produce) -> None:
    log, source = make_world(1, **CHANGES), Source(11)
    produced(log, produce, source, 60)
    log.settle()
    merged = names(source)
    with log.session() as session:
        schema = Schema(
            NestedField(1, "id", LongType(), required=True), NestedField(2, "name", StringType(), required=False)
        )
        table = session.tables.catalog.create_table("shop.customers", schema)
        rows = [{"id": key, "name": name} for key, name in merged.items()]
        table.append(pa.Table.from_pylist(rows, schema=schema_to_pyarrow(schema)))
    landing = log.landing.changed(
        name="customers",
        table="shop.customers",
        create=None,
        dead_letter_table=None,
        columns={"metadata": True},
        **KEYED,
    )
    world = replace(log, landing=landing)
    with pytest.raises(TableError, match="LC5070"):
        world.run()
    with world.session() as session, session.tables.load("shop.customers").update_schema() as update:
        update.add_column("kafka_topic", StringType())
        update.add_column("kafka_partition", IntegerType())
        update.add_column("kafka_generation", LongType())
        update.add_column("kafka_offset", LongType())
    # The job had merged more than this: changes that are applied again change nothing.
    go_on(world, {(str(landing.topics), 0): 40})
    world.settle()
    assert names_by_id(world) == merged
    produced(world, produce, source, 60)
    world.settle()
    assert names_by_id(world) == names(source)
    check_verified(world)


def test_another_key_than_previewed_is_refused_though_no_row_would_go(make_world: Make, produce: Produce) -> None:
    world, model = make_world(1, **LOG, upsert_key=["id"]), Model(13)
    produce(world.landing.topics, model.records(30))
    world.settle()
    before = shown(world)
    assert before.superseded + before.deleted == 0
    world.landing = world.landing.changed(upsert={"key": ()})
    with pytest.raises(LedgerError, match="LC7052"):
        changed(world, before)


@pytest.mark.parametrize(
    ("old", "new", "kept"),
    [(["id"], ["name"], [1, 2, 3]), (["id"], [], [0, 1, 2, 3]), ([], ["id"], [2, 3])],
    ids=["another key", "no key", "a key"],
)
def test_a_key_that_changes_before_the_first_rows_decides_what_their_slices_keep(
    make_world: Make, produce: Produce, old: list[str], new: list[str], kept: list[int]
) -> None:
    """No `reset key`: the table has no rows. But a slice keeps only the last change of each key that it was read by."""
    world = make_world(1, **LOG, **({"upsert_key": old} if old else {}))
    values = [{"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}, {"id": 1, "name": "ann"}, {"id": 2, "name": "cy"}]
    produce(world.landing.topics, [(json.dumps({"id": v["id"]}), v) for v in values])
    opened = world.open("interrupted")
    world.write(opened)
    world.landing = world.landing.changed(upsert={"key": new, "deletes": "ignore"} if new else {"key": ()})
    with pytest.raises(LedgerError, match="LC6020"):
        world.close("interrupted", opened)
    assert world.rows() == []
    world.settle()
    found = sorted((r["kafka_offset"], r["name"]) for r in world.rows())
    assert found == [(n, values[n]["name"]) for n in kept]
    check_verified(world)
