# SPDX-License-Identifier: Apache-2.0
"""Tables that evolve where records are dealt out to several of them, and where SQL makes the rows: each follows what is
for it, and nothing is lost, doubled or held up by that, whatever dies.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.refusal import RefusalState
from airflow_provider_lakecommit.cycle.plan.open import evolve_now
from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, TableError
from airflow_provider_lakecommit.formats.evolution import sampled_columns as sampling
from airflow_provider_lakecommit.iceberg.ledger.summary import record_of
from airflow_provider_lakecommit.iceberg.ledger.summary_extras import EVOLVED
from tests.faults.test_evolve import refuse_schemas
from tests.faults.test_failing_tables import refusing
from tests.faults.test_replay import replay
from tests.faults.test_routes import broken
from tests.support.declared import changed_landing
from tests.support.messes import table_of
from tests.support.steps import check_verified
from tests.support.world import Killed, World, deaths, own_columns

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
IDS: dict[str, Any] = {"schema": [{"name": "id", "type": "long", "required": True}, {"name": "n", "type": "int"}]}
REFUNDS = "shop.refunds"
ROUTE: dict[str, Any] = {"field": "kind", "tables": {"order": "shop.rows", "refund": REFUNDS}, "create": {REFUNDS: IDS}}
ROUTED: dict[str, Any] = {"create": IDS, "route": ROUTE, "evolve": "widen", "dead_letter_max_ratio": 1.0}
FIRST_RUNS = count(100, 100)
DECISION = Decision(command="maintain --only columns", actor="ann", host="here", at="2026-01-01T00:00:00+00:00")


def values(*some: dict[str, Any]) -> list[tuple[str, str]]:
    return [(str(v["id"]), json.dumps(v)) for v in some]


def columns(world: World, table: str | None = None) -> dict[str, str]:
    schema = table_of(world, table or world.landing.table).schema()
    return {f.name: str(f.field_type) for f in own_columns(schema)}


def changes(world: World, table: str | None = None) -> list[list[str]]:
    found = (record_of(s) for s in table_of(world, table or world.landing.table).metadata.snapshots)
    return [json.loads(r.extra[EVOLVED])["changes"] for r in found if r is not None and EVOLVED in r.extra]


def dealt(first: int, count: int, **fields: dict[str, Any]) -> list[tuple[str, str]]:
    """Orders and refunds in turns, with further fields by their kind."""
    kinds = [("order", "refund")[i % 2] for i in range(first, first + count)]
    return values(*({"id": first + i, "kind": k, **fields.get(k, {})} for i, k in enumerate(kinds)))


def check_dealt(world: World, count: int) -> None:
    for table, rest in (("shop.rows", 0), (REFUNDS, 1)):
        found = Counter(row["id"] for row in world.rows(table))
        assert found == Counter(i for i in range(count) if i % 2 == rest), (table, world.lines[-12:])
    check_verified(world)


class TestSeveralTables:
    def test_each_follows_the_records_that_are_for_it(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**ROUTED)
        produce(world.landing.topics, dealt(0, 20))
        world.run()
        new = {"order": {"n": 1 << 40, "channel": "web"}, "refund": {"why": {"code": 7}}}
        produce(world.landing.topics, [*dealt(20, 20, **new), *values({"id": 99, "kind": "gift", "ribbon": "red"})])
        world.settle()
        assert any(line.startswith("shop.rows: add channel string, by 10 records of ") for line in world.lines)
        assert any(
            line.startswith("shop.refunds: add why struct<code: optional long>, by 10 records") for line in world.lines
        )
        assert columns(world) == {"id": "long", "n": "long", "kind": "string", "channel": "string"}
        assert list(columns(world, REFUNDS)) == ["id", "n", "kind", "why"]
        assert columns(world, REFUNDS)["n"] == "int", "no refund has a larger one"
        rows = {row["id"]: row for table in ("shop.rows", REFUNDS) for row in world.rows(table)}
        assert rows[30]["n"] == 1 << 40
        assert (rows[30]["channel"], rows[31]["why"], rows[1]["why"]) == ("web", {"code": 7}, None)
        assert [row["kind"] for row in world.rows("shop.dead")] == ["not_routed"]
        check_dealt(world, 40)

    @pytest.mark.heavy
    def test_records_are_sampled_once_for_all_of_them(
        self, make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        requests: list[str] = []
        take = sampling.sample_of

        def counted(*args: Any, **kwargs: Any) -> Any:
            requests.append("sample")
            return take(*args, **kwargs)

        monkeypatch.setattr(sampling, "sample_of", counted)
        world = make_world(**ROUTED)
        produce(world.landing.topics, dealt(0, 20, order={"channel": "web"}, refund={"why": "late"}))
        world.run()
        assert requests == ["sample"]
        check_dealt(world, 20)

    @pytest.mark.heavy
    def test_a_field_that_was_too_rare_is_added_behind_the_task_that_met_it(
        self, make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sampling, "RECORDS", 12)
        world = make_world(1, **ROUTED)
        produce(world.landing.topics, dealt(0, 200))
        produce(world.landing.topics, values({"id": 200, "kind": "order"}, {"id": 201, "kind": "refund", "rare": "x"}))
        produce(world.landing.topics, dealt(202, 90))
        world.run()
        assert "rare" not in columns(world, REFUNDS)
        produce(world.landing.topics, dealt(292, 2))
        world.run()
        assert "rare" in columns(world, REFUNDS)
        assert "rare" not in columns(world), "the record is for another table"
        check_dealt(world, 294)

    @pytest.mark.heavy
    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_death_at_any_durable_step_changes_each_once(self, make_world: Make, produce: Produce, when: Any) -> None:
        survived, step = False, 0
        while not survived:
            step += 1
            route = {**ROUTE, "tables": {"order": f"shop.rows{step}", "refund": f"shop.refunds{step}"}}
            route["create"] = {f"shop.refunds{step}": IDS}
            names = {"name": f"kill-{when}-{step}", "table": f"shop.rows{step}", "dead_letter_table": None}
            world = make_world(**{**ROUTED, **names, "route": route})
            produce(world.landing.topics, dealt(0, 10))
            world.run()
            produce(world.landing.topics, dealt(10, 10, order={"a": 1}, refund={"b": 2}))
            with deaths(step, when) as observed:
                try:
                    world.run("killed")
                    survived = len(observed.steps) < step
                except Killed:
                    pass
            world.settle()
            for table, rest, name in ((f"shop.rows{step}", 0, "a"), (f"shop.refunds{step}", 1, "b")):
                rows = {row["id"]: row[name] for row in world.rows(table)}
                assert rows == {i: (None if i < 10 else 1 + rest) for i in range(20) if i % 2 == rest}
                assert len(world.rows(table)) == len(rows)
                # The table begins with the records that were there, so that its `kind` is the first change.
                assert len(changes(world, table)) == 2, f"step {step}: {observed.steps}"
            check_verified(world)
        assert observed.steps[:3] == ["catalog", "catalog", "control"], "both tables, before anything is said"

    @pytest.mark.heavy
    def test_none_is_changed_while_one_cannot_be_read(
        self, make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = make_world(**ROUTED)
        produce(world.landing.topics, dealt(0, 20))
        world.settle()
        produce(world.landing.topics, dealt(20, 20, order={"channel": "web"}))
        broken(monkeypatch, "refunds")
        opened = world.open("without")
        assert "columns do not change yet: shop.refunds cannot be read" in " ".join(opened.explain)
        world.write(opened)
        with pytest.raises(CatalogError, match=r"refunds is broken.*LC9999"):
            world.close("without", opened)
        monkeypatch.undo()
        produce(world.landing.topics, dealt(40, 2, order={"channel": "shop"}))
        world.settle()
        produce(world.landing.topics, dealt(42, 2, order={"channel": "shop"}))
        world.settle()
        assert "channel" in columns(world)
        check_dealt(world, 44)

    @pytest.mark.heavy
    def test_what_does_not_fit_one_of_them_stops_all_where_configured(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**ROUTED, on_incompatible="stop")
        produce(world.landing.topics, [*dealt(0, 10), *values({"id": 11, "kind": "refund", "n": "three"})])
        refused = world.open("stop").plan
        assert refused.refused is RefusalState.INCOMPATIBLE
        assert "shop.refunds: column n is int in the table and a text in 1" in str(refused.reason)
        assert "shop.rows" not in str(refused.reason)

    @pytest.mark.heavy
    def test_a_user_may_request_it(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**{**ROUTED, "evolve": "none"})
        produce(world.landing.topics, dealt(0, 20, order={"channel": "web"}, refund={"why": "late"}))
        world.settle()
        by_hand = replace(world, landing=replace(world.landing, evolve="add"))
        with by_hand.session() as session:
            lines, made = evolve_now(session, DECISION)
        assert {table: [str(c) for c in some] for table, some in made.items()} == {
            "shop.rows": ["add kind string", "add channel string"],
            REFUNDS: ["add kind string", "add why string"],
        }
        assert lines == ()
        check_dealt(world, 20)


RECORD = [
    {"name": "id", "type": "long", "required": True},
    {"name": "n", "type": "long"},
    {"name": "items", "type": "list<struct<sku: string, cents: int>>"},
]
WITH_SQL: dict[str, Any] = {
    "create": IDS,
    "record_schema": RECORD,
    "transform": "select id, n::int as n from record",
    "dead_letter_max_ratio": 1.0,
}


def with_sql(world: World, sql: str, **more: Any) -> World:
    """The same landing with other SQL, and runs of its own."""
    return replace(world, landing=changed_landing(world.landing, transform=sql, **more), runs=next(FIRST_RUNS))


def items(first: int, count: int) -> list[tuple[str, str]]:
    return values(
        *({"id": i, "n": i << 32, "items": [{"sku": f"s{i}", "cents": i * 10}]} for i in range(first, first + count))
    )


class TestSql:
    def test_what_it_gives_becomes_columns(self, make_world: Make, produce: Produce) -> None:
        """Of each type, exactly, and under no other name."""
        world = make_world(**WITH_SQL)
        produce(world.landing.topics, values(*({"id": i, "n": i} for i in range(10))))
        world.run()
        given = {
            "small": ("1::tinyint", "int"),
            "whole": ("n", "long"),
            "large": ("18446744073709551615::ubigint", "decimal(20, 0)"),
            "price": ("n * 0.01", "decimal(22, 2)"),
            "ratio": ("n / 4", "double"),
            "near": ("0.5::float", "float"),
            "flag": ("n > 12", "boolean"),
            "word": ("'w' || id", "string"),
            "bytes": ("'ab'::blob", "binary"),
            "key": ("'00000000-0000-0000-0000-000000000007'::uuid", "uuid"),
            "day": ("date '2026-01-02'", "date"),
            "hour": ("time '01:02:03'", "time"),
            "here": ("timestamp '2026-01-02 03:04:05'", "timestamp"),
            "there": ("timestamptz '2026-01-02 03:04:05+00'", "timestamptz"),
            "first": ("{'sku': items[1].sku, 'of': [id]}", "struct"),
            "tags": ("map {'a': n}", "map"),
        }
        sql = ", ".join(f"{text} as {name}" for name, (text, _) in given.items())
        evolving = with_sql(world, f"select id, n::int as n, {sql} from record", evolve="add")
        produce(world.landing.topics, values({"id": 10, "n": 14, "items": [{"sku": "s", "cents": 1}]}))
        evolving.settle()
        kinds = columns(evolving)
        assert {n: kinds[n].split("<")[0] for n in given} == {n: kind for n, (_, kind) in given.items()}
        row = next(r for r in evolving.rows() if r["id"] == 10)
        assert (row["large"], str(row["price"]), row["ratio"]) == (2**64 - 1, "0.14", 3.5)
        assert (row["flag"], row["word"], row["first"]) == (True, "w10", {"sku": "s", "of": [10]})
        assert dict(row["tags"]) == {"a": 14}
        assert (str(row["hour"]), row["here"].hour, row["there"].hour) == ("01:02:03", 3, 3)
        assert {r["whole"] for r in evolving.rows() if r["id"] < 10} == {None}
        assert len(changes(evolving)) == 1
        assert any("by the SQL of the landing" in line for line in evolving.lines)
        evolving.check(Counter(range(11)))
        check_verified(evolving)

    @pytest.mark.heavy
    def test_many_columns_are_reported_in_few_lines(self, make_world: Make, produce: Produce) -> None:
        many = ", ".join(f"id + {i} as c{i}" for i in range(40))
        world = make_world(**{**WITH_SQL, "transform": f"select id, {many} from record", "evolve": "add"})
        produce(world.landing.topics, values({"id": 1}))
        world.settle()
        assert len(columns(world)) == 42
        lines = [line for line in world.lines if line.endswith(", by the SQL of the landing")]
        assert len(lines) == 11
        assert lines[-1] == "shop.rows: 30 more changes, by the SQL of the landing"

    @pytest.mark.heavy
    def test_types_are_widened_by_its_types_where_configured(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**WITH_SQL)
        produce(world.landing.topics, values({"id": 1, "n": 5}))
        world.run()
        add = with_sql(world, "select id, n from record", evolve="add")
        produce(world.landing.topics, values({"id": 2, "n": 6}, {"id": 3, "n": 1 << 40}))
        add.settle()
        assert columns(add)["n"] == "int"
        assert [json.loads(row["value"])["id"] for row in add.rows("shop.dead")] == [3]
        wide = with_sql(add, "select id, n from record", evolve="widen")
        produce(world.landing.topics, values({"id": 4, "n": 1 << 41}))
        wide.settle()
        assert columns(wide)["n"] == "long"
        assert {row["id"]: row["n"] for row in wide.rows()} == {1: 5, 2: 6, 4: 1 << 41}
        check_verified(wide)

    @pytest.mark.heavy
    def test_a_table_that_is_made_has_what_it_gives(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**{**WITH_SQL, "transform": "select id, n as count from record", "evolve": "add"})
        produce(world.landing.topics, items(0, 10))
        world.settle()
        assert {row["id"]: row["count"] for row in world.rows()} == {i: i << 32 for i in range(10)}
        check_verified(world)

    @pytest.mark.heavy
    @pytest.mark.parametrize(
        ("sql", "why"),
        [
            (
                "select id, interval 1 day as age from record",
                "columns cannot have type month_day_nano_interval: cast it",
            ),
            ("select id, n::bit as bits from record", "bit.*cast it"),
            ('select id, n as "N" from record', "its name differs from column n only in case"),
            ("select id, n as _file from record", "Iceberg reserves that name for metadata"),
            ("select id, 'x' as n from record", "column n is string, but int32 in the table: cast it"),
        ],
    )
    def test_what_no_column_can_be_fails_the_plan_by_its_name(
        self, make_world: Make, produce: Produce, sql: str, why: str
    ) -> None:
        world = make_world(**WITH_SQL)
        produce(world.landing.topics, values({"id": 9, "n": 1}))
        world.settle()
        evolving = with_sql(world, sql, evolve="widen")
        produce(world.landing.topics, values({"id": 10, "n": 1}))
        with pytest.raises(TableError, match=why):
            evolving.open("run")
        assert columns(world) == {"id": "long", "n": "int"}

    @pytest.mark.heavy
    def test_what_a_user_dropped_is_not_brought_back_by_it(self, make_world: Make, produce: Produce) -> None:
        world = make_world(**{**WITH_SQL, "transform": "select id, n as count from record", "evolve": "add"})
        produce(world.landing.topics, items(0, 10))
        world.settle()
        with table_of(world).update_schema() as update:
            update.delete_column("count")
        produce(world.landing.topics, items(10, 1))
        with pytest.raises(TableError, match=r"which the table lacks.*it was dropped or renamed.*LC6004"):
            world.open("run")
        with_sql(world, "select id from record").settle()
        world.check(Counter(range(11)))

    @pytest.mark.heavy
    def test_a_catalog_that_refuses_fails_the_plan(
        self, make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """No row could be written; as soon as the catalog lets it, all is landed."""
        world = make_world(**WITH_SQL)
        evolving = with_sql(world, "select id, n as count from record", evolve="add")
        produce(world.landing.topics, items(10, 10))
        refuse_schemas(monkeypatch)
        with pytest.raises(TableError, match=r"'count', which the table lacks.*the catalog refuses the change.*LC6004"):
            evolving.run()
        monkeypatch.undo()
        evolving.settle()
        evolving.check(Counter(range(10, 20)))
        check_verified(evolving)

    @pytest.mark.heavy(but=("2-after",))
    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("at", range(1, 7))
    def test_whatever_dies_the_columns_come_once_and_each_row(
        self, make_world: Make, produce: Produce, at: int, when: Any
    ) -> None:
        world = make_world(**WITH_SQL)
        produce(world.landing.topics, values(*({"id": i, "n": i} for i in range(20))))
        world.settle()
        evolving = with_sql(world, "select id, unnest(items).cents as cents from record", evolve="add")
        produce(world.landing.topics, items(20, 20))
        with deaths(at, when), suppress(Killed):
            evolving.run("killed")
        evolving.settle()
        assert {row["id"]: row["cents"] for row in evolving.rows()} == {
            i: None if i < 20 else i * 10 for i in range(40)
        }
        assert len(changes(evolving)) == 1
        check_verified(evolving)

    @pytest.mark.heavy
    def test_a_range_that_is_landed_again_gets_its_values(self, make_world: Make, produce: Produce) -> None:
        places = [{"name": f"kafka_{n}", "type": k} for n, k in (("topic", "string"), ("partition", "int"))]
        schema = [*IDS["schema"], *places, {"name": "kafka_offset", "type": "long"}]
        world = make_world(1, **{**WITH_SQL, "create": {"schema": schema}, "metadata_columns": True})
        produce(world.landing.topics, items(0, 10))
        with_sql(world, "select id from record").settle()
        evolving = with_sql(world, "select id, items[1].sku as sku from record", evolve="add")
        produce(world.landing.topics, items(10, 5))
        evolving.settle()
        assert {row["sku"] for row in evolving.rows() if row["id"] < 10} == {None}
        replay(evolving, "0=0-10").finish()
        assert {row["id"]: row["sku"] for row in evolving.rows()} == {i: f"s{i}" for i in range(15)}
        check_verified(evolving)

    @pytest.mark.heavy
    def test_next_to_tables_that_take_their_records_as_they_are(self, make_world: Make, produce: Produce) -> None:
        world = make_world(
            **{**ROUTED, "transform": {REFUNDS: "select id, n, 'late' as why from record"}, "record_schema": RECORD}
        )
        produce(world.landing.topics, dealt(0, 20, order={"channel": "web"}, refund={"n": 1 << 40, "note": "x"}))
        world.settle()
        assert columns(world) == {"id": "long", "n": "int", "kind": "string", "channel": "string"}
        assert columns(world, REFUNDS) == {"id": "long", "n": "long", "why": "string"}
        assert {(row["n"], row["why"]) for row in world.rows(REFUNDS)} == {(1 << 40, "late")}
        check_dealt(world, 20)

    @pytest.mark.heavy
    def test_new_sql_waits_for_a_table_that_lags_and_the_sql_of_before_does_not(
        self, make_world: Make, produce: Produce
    ) -> None:
        sql = "select id, n::int as n from record"
        world = make_world(**{**ROUTED, "transform": {REFUNDS: sql}, "record_schema": RECORD})
        produce(world.landing.topics, dealt(0, 20))
        world.settle()
        newer = replace(
            world,
            landing=changed_landing(world.landing, transform={REFUNDS: "select id, 'x' as why from record"}),
            runs=next(FIRST_RUNS),
        )
        produce(world.landing.topics, dealt(20, 20))
        with refusing("shop.rows"):
            with pytest.raises(LakecommitError, match=r"shop\.rows.*LC3041"):
                world.run()
            produce(world.landing.topics, dealt(40, 20))
            with pytest.raises(TableError, match=r"until then, records land with the previous SQL.*LC6004"):
                newer.open("newer")
            with pytest.raises(LakecommitError, match=r"shop\.rows.*LC3041"):
                world.run()
            assert len(world.rows(REFUNDS)) == 30
        world.settle()
        newer.settle()
        produce(world.landing.topics, dealt(60, 20))
        newer.settle()
        assert columns(world, REFUNDS)["why"] == "string"
        check_dealt(world, 80)
