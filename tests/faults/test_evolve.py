# SPDX-License-Identifier: Apache-2.0
"""A table that evolves with its records, on real parts: added and widened columns, and what becomes of the rest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import BadRequestError
from pyiceberg.table import Table
from pyiceberg.table.update import AddSchemaUpdate
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import DoubleType, IntegerType, LongType, StringType

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.outcome import Commit, Ended, decide
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.cycle.plan import column_check
from airflow_provider_lakecommit.cycle.plan.open import evolve_now, preview
from airflow_provider_lakecommit.exceptions import CommitUnknownError, LakecommitError
from airflow_provider_lakecommit.formats.evolution import sampled_columns
from airflow_provider_lakecommit.iceberg.ledger.summary import record_of
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import EVOLVED
from airflow_provider_lakecommit.landing import MARK_COLUMNS
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.replay import replay
from airflow_provider_lakecommit.status.status import read_status
from airflow_provider_lakecommit.status.status_rules import StatusVerdict, status_verdict
from tests.faults.test_lanes import lane
from tests.faults.test_replay import replay as replay_of
from tests.support.declared import changed_landing
from tests.support.messes import table_of
from tests.support.steps import Step, check_verified, hung
from tests.support.world import Killed, World, deaths, own_columns

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
DECISION = Decision(command="dead-letters --replay", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")

NESTED: dict[str, Any] = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "n", "type": "int"},
        {"name": "price", "type": "decimal(6, 2)"},
        {"name": "ratio", "type": "float"},
        {"name": "who", "type": "struct<name: string>"},
        {"name": "lines", "type": "list<struct<sku: string>>"},
        {"name": "tags", "type": "map<string, struct<of: int>>"},
    ]
}


def values(*some: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(v["id"]), json.dumps(v)) for v in some]


def evolutions(world: World) -> list[dict[str, Any]]:
    """What the table's history says was changed, oldest first."""
    table = table_of(world, world.landing.table)
    found = (record_of(s) for s in table.metadata.snapshots)
    return [json.loads(r.extra[EVOLVED]) for r in found if r is not None and EVOLVED in r.extra]


def test_columns_are_added_and_widened_at_every_level(make_world: Make, produce: Produce) -> None:
    world = make_world(create=NESTED, evolve="widen")
    topic = world.landing.topics
    old = {
        "id": 1,
        "n": 1,
        "price": 12.5,
        "ratio": 0.5,
        "who": {"name": "a"},
        "lines": [{"sku": "x"}],
        "tags": {"k": {"of": 1}},
    }
    produce(topic, values(old))
    world.run()
    new = {
        "id": 2,
        "n": 1 << 40,
        "price": 1234567.25,
        "ratio": 1e300,
        "who": {"name": "b", "age": 7},
        "lines": [{"sku": "y", "amount": 2.5}],
        "tags": {"k": {"of": 1 << 33, "by": "me"}},
        "extra": {"deep": [{"x": True}]},
    }
    produce(topic, values(new))
    world.run()
    schema = table_of(world).schema()
    kinds = {name: schema.find_type(name) for name in schema.column_names if name not in MARK_COLUMNS}
    assert (kinds["n"], kinds["ratio"], str(kinds["price"])) == (LongType(), DoubleType(), "decimal(9, 2)")
    assert (kinds["who.age"], kinds["lines.element.amount"]) == (LongType(), DoubleType())
    assert (kinds["tags.value.of"], kinds["tags.value.by"]) == (LongType(), StringType())
    assert str(kinds["extra.deep.element.x"]) == "boolean"
    rows = {row["id"]: row for row in world.rows()}
    assert rows[2]["n"] == 1 << 40
    assert rows[2]["ratio"] == 1e300
    assert str(rows[2]["price"]) == "1234567.25"
    assert rows[2]["extra"] == {"deep": [{"x": True}]}
    assert rows[2]["lines"] == [{"sku": "y", "amount": 2.5}]
    assert rows[1]["extra"] is None
    assert rows[1]["who"] == {"name": "a", "age": None}
    (change,) = evolutions(world)
    assert "add extra struct" in " ".join(change["changes"])
    assert "widen n from int to long" in change["changes"]
    assert "landing rows (live)" in change["reason"]
    assert topic in change["reason"]
    assert any("widen n from int to long" in line for line in world.lines)
    check_verified(world)


PLAIN: dict[str, Any] = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "n", "type": "int"}]}


def begun(make_world: Make, produce: Produce, **fields: Any) -> World:
    """A landing that has landed ids 0 to 9, and of which ids 10 to 19 bring a field `extra` that the table lacks."""
    world = make_world(**{"create": PLAIN, "evolve": "add", **fields})
    produce(world.landing.topics, values(*({"id": i, "n": i} for i in range(10))))
    world.run()
    produce(world.landing.topics, values(*({"id": i, "n": i, "extra": f"x{i}"} for i in range(10, 20))))
    return world


def check_extra(world: World, ids: range = range(20)) -> None:
    """Each id is there once, and each record that has the field has it in the table."""
    world.check(Counter(ids))
    assert {row["id"]: row["extra"] for row in world.rows()} == {i: f"x{i}" if i >= 10 else None for i in ids}
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize("retry", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_at_any_durable_step_evolves_once_and_loses_nothing(
    make_world: Make, produce: Produce, when: str, retry: bool
) -> None:
    survived, step = False, 0
    while not survived:
        step += 1
        names = {"name": f"kill-{when}-{retry}-{step}", "table": f"shop.rows{step}", "dead_letter_table": None}
        world = begun(make_world, produce, **names)
        with deaths(step, when) as observed:
            try:
                world.run("killed")
                survived = len(observed.steps) < step
            except Killed:
                pass
        if retry:
            world.run("killed", retry=True)
        world.settle()
        check_extra(world)
        assert len(evolutions(world)) == 1, f"step {step}: {observed.steps}"
    assert observed.steps[:2] == ["catalog", "control"], (
        "the table has the column before anything is said of the window"
    )
    assert step > 4, f"only {step} steps were tried"


@pytest.mark.heavy
def test_what_was_written_under_the_older_columns_is_published_next_to_the_newer(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(create=PLAIN, evolve="add")
    topic = world.landing.topics
    produce(topic, values(*({"id": i} for i in range(10))))
    before = world.open("before", release=False)
    produce(topic, values(*({"id": i, "extra": f"x{i}"} for i in range(10, 20))))
    after = world.open("after", release=False)
    world.write(after)
    world.write(before)
    assert world.close("after", after).rows + world.close("before", before).rows == 20
    world.settle()
    check_extra(world)


@pytest.mark.heavy
def test_a_retried_run_keeps_the_plan_and_the_columns_that_it_had(make_world: Make, produce: Produce) -> None:
    world = begun(make_world, produce)
    opened = world.open("run")
    produce(world.landing.topics, values({"id": 20, "other": 1}))
    again = world.open("run", retry=True)
    assert again.plan == opened.plan
    assert len(evolutions(world)) == 1


def other_landing(world: World, make_topic: Callable[..., str]) -> World:
    """A second landing of another topic into the same table."""
    landing = replace(world.landing, name="other", topics=make_topic(1), dead_letter_table=None)
    return replace(world, landing=landing, lines=[])


@pytest.mark.heavy
@pytest.mark.parametrize("field", ["extra", "another"])
def test_two_landings_that_evolve_one_table_at_once(
    make_world: Make, produce: Produce, make_topic: Callable[..., str], field: str
) -> None:
    """The same column or another one, decided on the same look: one is first, the other looks again."""
    world = begun(make_world, produce)
    other = other_landing(world, make_topic)
    produce(other.landing.topics, values({"id": 100}))
    other.run()
    produce(other.landing.topics, values({"id": 101, field: "y"}))
    with hung(Step.CHECKED, lambda: other.run()):
        world.run()
    world.settle()
    rows = {row["id"]: row for row in world.rows()}
    assert len(rows) == 22
    assert rows[15]["extra"] == "x15"
    assert rows[101][field] == "y"
    assert [f.name for f in own_columns(table_of(world).schema())] == ["id", "n", *dict.fromkeys([field, "extra"])]
    check_verified(world)


def add_same(update: UpdateSchema) -> None:
    update.add_column("extra", StringType())


def add_as_number(update: UpdateSchema) -> None:
    update.add_column("extra", IntegerType())


def add_other(update: UpdateSchema) -> None:
    update.add_column("other", StringType())


def rename_n(update: UpdateSchema) -> None:
    update.rename_column("n", "number")


def drop_n(update: UpdateSchema) -> None:
    update.delete_column("n")


FOREIGN: dict[str, tuple[Callable[[UpdateSchema], None], list[str], int]] = {
    "adds the same column": (add_same, ["id", "n", "extra"], 0),
    "adds it with another type": (add_as_number, ["id", "n", "extra"], 10),
    "adds another column": (add_other, ["id", "n", "other", "extra"], 0),
    "renames a column": (rename_n, ["id", "number", "extra"], 0),
    "drops a column": (drop_n, ["id", "extra"], 0),
}


@pytest.mark.heavy
@pytest.mark.parametrize("name", FOREIGN)
def test_another_engine_changes_the_table_between_check_and_commit(
    make_world: Make, produce: Produce, name: str
) -> None:
    change, columns, rejected = FOREIGN[name]
    world = begun(make_world, produce, dead_letter_max_ratio=1.0)

    def foreign() -> None:
        with table_of(world).update_schema() as update:
            change(update)

    with hung(Step.CHECKED, foreign):
        world.run()
    world.settle()
    assert [f.name for f in own_columns(table_of(world).schema())] == columns
    assert len(world.rows()) == 20 - rejected
    assert len(world.rows("shop.dead")) == rejected
    check_verified(world)


@pytest.mark.heavy(but=("rename_n",))
@pytest.mark.parametrize("foreign", [rename_n, drop_n])
def test_what_a_user_dropped_or_renamed_is_not_brought_back(
    make_world: Make, produce: Produce, foreign: Callable[[UpdateSchema], None]
) -> None:
    world = begun(make_world, produce)
    with table_of(world).update_schema() as update:
        foreign(update)
    world.run()
    assert "n" not in table_of(world).schema().column_names
    assert any(
        "n is not added: the table once had it" in line for line in world.open("next").explain + tuple(world.lines)
    )


def test_a_rollback_to_before_the_change_loses_neither_rows_nor_columns(make_world: Make, produce: Produce) -> None:
    world = begun(make_world, produce)
    first = table_of(world).metadata.current_snapshot_id
    world.run()
    table_of(world).manage_snapshots().rollback_to_snapshot(first).commit()
    world.settle()
    check_extra(world)
    produce(world.landing.topics, values({"id": 20, "extra": "x20"}))
    world.settle()
    check_extra(world, range(21))


@pytest.mark.heavy
def test_a_catalog_that_fails_at_each_change_is_reported_with_the_way_on(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose own limits (of a comment, a type's text) are no refusal that is known as one."""
    world = begun(make_world, produce)

    def fails(*_: Any) -> None:
        raise CommitUnknownError("LC9999", "20 commit request(s) were sent")

    monkeypatch.setattr(column_check, "evolve_table", fails)
    opened = world.open("stuck")
    assert opened.plan.refused is RefusalState.CATALOG_AWAY
    assert "The request was to change columns: add extra string. " in str(opened.plan.reason)
    assert "`evolve: none`" in str(opened.plan.reason)
    world.close("stuck", opened)
    world.landing = replace(world.landing, evolve="none")
    world.settle()
    world.check(Counter(range(20)))


@pytest.mark.heavy
def test_the_dead_letter_table_never_evolves(make_world: Make, produce: Produce) -> None:
    world = begun(make_world, produce, evolve="widen", dead_letter_max_ratio=1.0)
    before = table_of(world, "shop.dead").schema()
    produce(world.landing.topics, [*values({"id": 20, "n": 1 << 40, "topic": 5}), ("bad", '{"id": "x", "what": 1}')])
    world.settle()
    assert table_of(world, "shop.dead").schema() == before
    assert [row["column"] for row in world.rows("shop.dead")] == ["id"]
    assert {"topic", "extra", "what"} <= set(table_of(world).schema().column_names)


class TestWhatDoesNotFit:
    @pytest.mark.heavy
    def test_is_for_the_dead_letters(self, make_world: Make, produce: Produce) -> None:
        world = make_world(create=PLAIN, evolve="widen", dead_letter_max_ratio=1.0)
        some: list[dict[str, Any]] = [{"id": 1, "n": 5}, {"id": 2, "n": "five"}, {"id": 3, "n": 1 << 70}]
        produce(world.landing.topics, values(*some, {"id": 4, "v": 1}, {"id": 5, "v": "one"}))
        opened = world.open("run")
        text = " ".join(opened.explain)
        assert "column n is int in the table and a text in 1 (" in text
        assert "a whole number beyond a long" in text
        assert "v is not added: its values disagree" in text
        world.write(opened)
        assert world.close("run", opened).rows == 3
        world.settle()
        world.check(Counter([1, 4, 5]))
        reasons = sorted(row["reason"] for row in world.rows("shop.dead"))
        assert reasons[0] == "column n is a string, not a number (the table has int)"
        assert reasons[1].startswith("column n: ")
        assert reasons[1].startswith("column n: 1180591620717411303424 does not fit in 64 bits")

    @pytest.mark.heavy
    def test_stops_the_landing_where_configured(self, make_world: Make, produce: Produce) -> None:
        world = make_world(create=PLAIN, evolve="widen", on_incompatible="stop", dead_letter_max_ratio=1.0)
        produce(world.landing.topics, values({"id": 1, "n": 5}))
        world.run()
        produce(world.landing.topics, values({"id": 2, "n": "five", "extra": 1}))
        for run in ("one", "two"):
            opened = world.open(run)
            assert opened.plan.refused is RefusalState.INCOMPATIBLE
            assert opened.plan.left == 1
            assert "column n is int in the table and a text in 1" in str(opened.plan.reason)
            cleared = "cleared by a column of a matching type, columns.on_incompatible: dead_letter"
            assert cleared in str(opened.plan.reason)
            closed = world.close(run, opened)
            assert closed.stopped == opened.plan.reason
            commit = Commit.from_dict(closed.to_dict())
            assert decide(Ended(plan="success", groups={}, commit="skipped", closed=commit))[0] == "failed"
            with world.session() as session:
                standing, why = status_verdict(read_status(session))
            assert standing is StatusVerdict.BLOCKED
            assert why == f"not all is planned: {opened.plan.reason}"
        assert "extra" not in table_of(world).schema().column_names, "nothing is changed for a window that is refused"
        world.landing = changed_landing(world.landing, on_incompatible="dead_letter")
        world.settle()
        world.check(Counter([1]))
        assert len(world.rows("shop.dead")) == 1
        with world.session() as session:
            assert not read_status(session).stopped
        check_verified(world)

    @pytest.mark.heavy
    def test_a_required_column_without_a_value_stops_it_too(self, make_world: Make, produce: Produce) -> None:
        world = make_world(create=PLAIN, evolve="add", on_incompatible="stop")
        produce(world.landing.topics, values({"id": 1}, {"id": 2}))
        world.run()
        produce(world.landing.topics, [("3", '{"n": 3}'), ("4", '{"id": null, "n": 4}'), ("5", '{"id": 5}')])
        reason = str(world.open("stop").plan.reason)
        assert "column id is required long in the table and missing or null in 2 in the records" in reason


@pytest.mark.heavy
def test_names_that_would_keep_others_from_reading_the_table_are_left_out(make_world: Make, produce: Produce) -> None:
    """And what else the same records bring is added. Which names these are, Spark has told: `test_engine_evolve.py`."""
    world = make_world(create={**PLAIN, "partition_by": ["bucket(2, id)"]}, evolve="add")
    produce(world.landing.topics, values({"id": 1, "_file": "x", "id_bucket": 7, "extra": 1}))
    world.settle()
    assert [f.name for f in own_columns(table_of(world).schema())] == ["id", "n", "extra"]
    text = " ".join(world.lines)
    assert "_file is not added: Iceberg reserves that name for metadata" in text
    assert "id_bucket is not added: a partition field of the table has that name" in text


@pytest.mark.heavy
def test_columns_follow_the_rows_of_change_envelopes(make_world: Make, produce: Produce) -> None:
    schema = [*PLAIN["schema"], {"name": "_op", "type": "string"}]
    world = make_world(create={"schema": schema}, evolve="widen", unwrap="debezium", dead_letter_max_ratio=1.0)

    def change(op: str, before: Any, after: Any) -> tuple[str, str]:
        value = {"op": op, "before": before, "after": after, "source": {"lsn": 1}}
        return "1", json.dumps({"schema": {}, "payload": value} if op == "u" else value)

    produce(world.landing.topics, [change("c", None, {"id": 1, "n": 1})])
    world.run()
    new = {"id": 1, "n": 1 << 40, "note": "x", "_op": 5, "lines": [{"sku": "a"}]}
    produce(
        world.landing.topics, [change("u", {"id": 1, "n": 1}, new), change("d", new, None), change("t", None, None)]
    )
    world.settle()
    assert [f.name for f in own_columns(table_of(world).schema())] == ["id", "n", "_op", "note", "lines"]
    rows = {row["_op"]: row for row in world.rows()}
    assert (rows["c"]["n"], rows["c"]["note"]) == (1, None)
    assert [(rows[op]["n"], rows[op]["note"], rows[op]["lines"]) for op in "ud"] == [(1 << 40, "x", [{"sku": "a"}])] * 2
    assert [row["kind"] for row in world.rows("shop.dead")] == ["truncated"]
    produce(world.landing.topics, [change("u", None, {"id": 2, "n": "x"}), change("d", {"id": 2, "n": "y"}, None)])
    world.settle()
    dead = [row for row in world.rows("shop.dead") if row["kind"] == "wrong_value"]
    assert [row["column"] for row in dead] == ["n", "n"]
    assert all(row["reason"].endswith("(the table has long)") for row in dead)
    check_verified(world)


def refuse_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog lets nobody change a schema."""
    commit = SqlCatalog.commit_table

    def refusing(self: SqlCatalog, table: Table, requirements: Any, updates: Any) -> Any:
        if any(isinstance(u, AddSchemaUpdate) for u in updates):
            raise BadRequestError("schemas are not changed here")
        return commit(self, table, requirements, updates)

    monkeypatch.setattr(SqlCatalog, "commit_table", refusing)


@pytest.mark.heavy
def test_a_catalog_that_refuses_is_named_and_the_landing_goes_on(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = begun(make_world, produce)
    refuse_schemas(monkeypatch)
    world.run()
    world.check(Counter(range(20)))
    (warning,) = [line for line in world.lines if "was not changed" in line]
    assert "schemas are not changed here" in warning
    assert "add extra string" in warning
    monkeypatch.undo()
    produce(world.landing.topics, values({"id": 20, "extra": "x20"}))
    world.settle()
    assert {row["extra"] for row in world.rows()} == {None, "x20"}
    check_verified(world)


@pytest.mark.heavy
def test_records_rejected_for_an_unknown_field_are_replayed_once_it_is_a_column(
    make_world: Make, produce: Produce
) -> None:
    world = begun(make_world, produce, evolve="none", unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    world.settle()
    assert len(world.rows("shop.dead")) == 10
    world.landing = replace(world.landing, evolve="add")
    produce(world.landing.topics, values({"id": 20, "n": 1, "extra": "x20"}))
    world.settle()
    with world.session() as session:
        assert replay(session, Selection(), decision=DECISION).rows == 10
    check_extra(world, range(21))


@pytest.mark.heavy
def test_a_plan_that_is_only_previewed_changes_nothing_and_reports_what_would_be(
    make_world: Make, produce: Produce
) -> None:
    world = begun(make_world, produce)
    with world.session() as session:
        assert any("add extra string" in line for line in preview(session).explain)
    assert "extra" not in table_of(world).schema().column_names


@pytest.mark.heavy
def test_a_stream_next_to_the_live_stream_evolves_the_table_too(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, create=PLAIN, evolve="add", start="latest")
    produce(world.landing.topics, values({"id": 1, "extra": "x"}, {"id": 2}), partition=0)
    world.settle()
    assert "extra" not in table_of(world).schema().column_names
    lane(world, "0=0-2").finish()
    produce(world.landing.topics, values({"id": 3, "other": 5}), partition=0)
    world.settle()
    assert {row["id"]: (row["extra"], row["other"]) for row in world.rows()} == {
        1: ("x", None),
        2: (None, None),
        3: (None, 5),
    }
    assert "landing rows (offsets-" in evolutions(world)[0]["reason"]
    check_verified(world)


@pytest.mark.heavy
def test_a_replay_brings_the_values_of_a_column_that_came_later(make_world: Make, produce: Produce) -> None:
    """Landed while `evolve` was none: the field was left out. The same range landed anew has it."""
    world = begun(make_world, produce, partitions=1, evolve="none", metadata_columns=True)
    world.settle()
    world.landing = replace(world.landing, evolve="add")
    replay_of(world, "0=0-20").finish()
    check_extra(world)
    assert len(evolutions(world)) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("unknown_fields", ["ignore", "dead_letter"])
def test_a_field_that_no_sample_shows_is_added_by_the_window_after_the_one_that_met_it(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch, unknown_fields: str
) -> None:
    """Its place was reported by the task."""
    monkeypatch.setattr(sampled_columns, "RECORDS", 3)
    world = make_world(partitions=1, create=NESTED, evolve="add", unknown_fields=unknown_fields, slice_records=40)
    some: list[dict[str, Any]] = [{"id": i, "n": i} for i in range(40)]
    some[7] |= {"lines": [{"sku": "a"}, {"rare": 2.5}], "seldom": "x"}
    produce(world.landing.topics, values(*some))
    world.run()
    assert "seldom" not in table_of(world).schema().column_names
    produce(world.landing.topics, values({"id": 40, "seldom": "y"}))
    world.settle()
    names = set(table_of(world).schema().column_names)
    assert {"seldom", "lines.element.rare"} <= names
    (change,) = evolutions(world)
    assert " and of " in change["reason"]
    if unknown_fields == "dead_letter":
        with world.session() as session:
            assert replay(session, Selection(), decision=DECISION).rows == 1
    rows = {row["id"]: row for row in world.rows()}
    assert len(rows) == 41
    assert rows[40]["seldom"] == "y"
    assert rows[7]["seldom"] == ("x" if unknown_fields == "dead_letter" else None)
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize("unknown_fields", ["ignore", "dead_letter"])
def test_a_range_that_is_blocked_for_what_no_sample_shows_is_read_again_with_its_column(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch, unknown_fields: str
) -> None:
    """Also if nothing else can be planned meanwhile."""
    monkeypatch.setattr(sampled_columns, "RECORDS", 3)
    stated = {"evolve": "widen", "unknown_fields": unknown_fields, "dead_letter_max_records": 2}
    world = make_world(partitions=1, create=NESTED, **stated)
    some: list[dict[str, Any]] = [{"id": i, "n": i} for i in range(40)]
    for one in some[5:10]:
        one |= {"seldom": "x"} if unknown_fields == "dead_letter" else {"n": 1 << 40}
    produce(world.landing.topics, values(*some))
    world.run()
    assert world.rows() == []
    world.settle()
    assert len(world.rows()) == 40
    check_verified(world)


@pytest.mark.heavy
def test_a_value_that_no_sample_shows_widens_its_column_by_the_window_after_the_one_that_met_it(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the landing stop before what it has behind it: of the window that met it, a text was rejected too."""
    monkeypatch.setattr(sampled_columns, "RECORDS", 3)
    stated = {"evolve": "widen", "on_incompatible": "stop", "slice_records": 20, "dead_letter_max_ratio": 1.0}
    world = make_world(partitions=1, create=NESTED, **stated)
    some: list[dict[str, Any]] = [{"id": i, "n": i} for i in range(40)]
    some[7] |= {"n": 1 << 40}
    some[27] |= {"price": "much", "n": 1 << 41}
    produce(world.landing.topics, values(*some))
    world.run()
    assert len(world.rows("shop.dead")) == 2
    produce(world.landing.topics, values({"id": 40}))
    world.settle()
    schema = table_of(world).schema()
    assert (schema.find_type("n"), str(schema.find_type("price"))) == (LongType(), "decimal(6, 2)")
    with world.session() as session:
        assert replay(session, Selection(), decision=DECISION).rows == 1
    assert {row["id"]: row["n"] for row in world.rows()}[7] == 1 << 40
    assert len(world.rows()) == 40
    check_verified(world)


@pytest.mark.heavy
def test_while_a_table_lags_behind_columns_stay_as_they_are(make_world: Make, produce: Produce) -> None:
    """The data table has a range whose dead letters are not in theirs yet: by other columns it could be
    evaluated anew.
    """
    world = make_world(partitions=1, create=PLAIN, evolve="add", dead_letter_max_ratio=1.0)
    produce(world.landing.topics, values({"id": 1}))
    world.run()
    produce(world.landing.topics, [*values({"id": 2}), ("bad", '{"id": "x"}')])
    opened = world.open("halfway")
    world.write(opened)
    with world.session() as session:
        session.tables.catalog.rename_table("shop.dead", "shop.elsewhere")
    with pytest.raises(LakecommitError, match=r"shop\.dead.*LC6015"):
        world.close("halfway", opened)
    with world.session() as session:
        session.tables.catalog.rename_table("shop.elsewhere", "shop.dead")
    produce(world.landing.topics, values({"id": 3, "extra": "x"}))
    opened = world.open("waits")
    assert any("columns do not change yet: shop.dead lacks its rows of" in line for line in opened.explain)
    assert "extra" not in table_of(world).schema().column_names
    world.close("waits", opened)
    produce(world.landing.topics, values({"id": 4, "extra": "y"}))
    world.settle()
    assert {row["id"]: row["extra"] for row in world.rows()} == {1: None, 2: None, 3: "x", 4: "y"}
    check_verified(world)


@pytest.mark.heavy
def test_a_table_that_has_evolved_is_no_other_than_create_reports(make_world: Make, produce: Produce) -> None:
    world = make_world(create=NESTED, evolve="widen")
    produce(world.landing.topics, values({"id": 1, "n": 1 << 40, "who": {"age": 7}, "lines": [{"x": 1}], "extra": 1}))
    world.settle()
    assert not any("is not as `create` says" in line for line in world.lines)
    world.landing = replace(world.landing, evolve="none")
    world.open("told")
    assert any("column n is long, not int" in line for line in world.lines)


@pytest.mark.heavy
def test_a_user_has_the_columns_made_whatever_the_landing_reports(make_world: Make, produce: Produce) -> None:
    world = begun(make_world, produce, evolve="none")
    world.settle()
    assert "extra" not in table_of(world).schema().column_names
    wide = replace(world, landing=replace(world.landing, evolve="add"))
    with wide.session() as session:
        lines, changed = evolve_now(session, None)
        assert (len(lines), changed) == (1, {})
        assert "extra" not in table_of(world).schema().column_names
        lines, changed = evolve_now(session, replace(DECISION, command="evolve", landing="rows"))
        assert [str(c) for c in changed[world.landing.table]] == ["add extra string"]
        assert evolve_now(session, DECISION) == ((), {})
    found = record_of(table_of(world).current_snapshot())
    assert found is not None
    assert [(d.command, d.actor, d.what) for d in found.decisions] == [("evolve", "ann", "add extra string")]
    world.check(Counter(range(20)))
    check_verified(world)
