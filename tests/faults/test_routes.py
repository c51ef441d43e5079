# SPDX-License-Identifier: Apache-2.0
"""A landing of several tables: each record is in the table that its field names, once, or is a dead letter with its
reason; one broken table stops no other; whatever dies.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import BinaryType

from airflow_provider_lakecommit.exceptions import CatalogError, LakecommitError, LedgerError, SpecError, TableError
from airflow_provider_lakecommit.operations.dead_letters.counts import counted, open_dead_letters
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.open_set import State
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_dead_letters
from airflow_provider_lakecommit.operations.decisions.starts import Way
from tests.faults.test_lanes import LaneWorld
from tests.faults.test_lanes import lane as backfill
from tests.faults.test_replay import ReplayWorld, replay
from tests.faults.test_reset import apply
from tests.support.steps import check_verified
from tests.support.world import SCHEMA, Killed, World, deaths

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
REFUNDS = {
    "schema": [
        {"name": "id", "type": "long", "required": True},
        {"name": "cents", "type": "int", "required": True},
        {"name": "at", "type": "timestamptz"},
    ]
}
ROUTE: Mapping[str, Any] = {
    "field": "meta.type",
    "tables": {"order": "shop.rows", "again": "shop.rows", "refund": "shop.refunds"},
    "create": {"shop.refunds": REFUNDS},
}
NOON = 1_767_268_800
FIELDS = {"route": ROUTE, "dead_letter_max_ratio": 1.0, "timestamps": {"at": "epoch_millis"}}


def value(i: int, kind: object, **more: object) -> str:
    return json.dumps({"id": i, "meta": {"type": kind, "n": i}, **more})


def mixed(first: int, count: int) -> list[tuple[str, str]]:
    """Of each ten: five orders, three refunds, one of a type that nobody knows, one refund that lacks its cents."""
    kinds = ["order", "refund", "order", "unknown", "again", "refund", "order", "bad", "refund", "order"]
    out = []
    for i in range(first, first + count):
        kind = kinds[i % 10]
        text = value(i, "refund") if kind == "bad" else value(i, kind, name=f"n{i}", cents=i, at=(NOON + i) * 1000)
        out.append((str(i), text))
    return out


def ids(world: World, table: str) -> Counter[int]:
    return Counter(row["id"] for row in world.rows(table))


def expected(first: int, count: int) -> dict[str, Counter[int]]:
    kinds: dict[int, str] = {
        0: "rows",
        1: "refunds",
        2: "rows",
        4: "rows",
        5: "refunds",
        6: "rows",
        8: "refunds",
        9: "rows",
    }
    out: dict[str, Counter[int]] = {"rows": Counter(), "refunds": Counter(), "dead": Counter()}
    for i in range(first, first + count):
        out[kinds.get(i % 10, "dead")][i] += 1
    return out


def check(world: World, first: int, count: int) -> None:
    rows = expected(first, count)
    assert ids(world, "shop.rows") == rows["rows"]
    assert ids(world, "shop.refunds") == rows["refunds"]
    dead = Counter(json.loads(row["value"])["id"] for row in world.rows("shop.dead"))
    assert dead == rows["dead"]
    check_verified(world)


def test_each_record_is_in_its_table_or_a_dead_letter_with_its_reason(make_world: Make, produce: Produce) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 100))
    closed = world.run()
    assert closed.rows == 80
    check(world, 0, 100)
    found = Counter((row["kind"], row["column"]) for row in world.rows("shop.dead"))
    assert found == {("not_routed", "meta.type"): 10, ("missing_required", "cents"): 10}
    assert closed.ignored_fields["cents"] == 50, "an order has cents, for which its table has no column"
    assert {row["at"].timestamp() - NOON for row in world.rows("shop.refunds")} == set(expected(0, 100)["refunds"])


@pytest.mark.heavy(but=('{"id": 1}-not_routed', "null-*"))
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{"id": 1', "not_json"),
        ('{"id": 1}', "not_routed"),
        ('{"id": 1, "meta": null}', "not_routed"),
        ('{"id": 1, "meta": 7}', "not_routed"),
        ('{"id": 1, "meta": {"type": 7}}', "not_routed"),
        ('{"id": 1, "meta": {"type": null}}', "not_routed"),
        ('{"id": 1, "meta": {"type": "Order"}}', "not_routed"),
        ('{"id": 1, "meta": {"type": "\\ud800"}}', None),
        ('{"id": 1, "meta": {"type": "order", "type": "refund"}}', None),
        ('{"id": 1, "meta": {"type": ["order"]}}', "not_routed"),
        ("[]", None),
        ("null", None),
        ("", None),
    ],
)
def test_what_names_no_table_is_never_dropped(make_world: Make, produce: Produce, text: str, kind: str | None) -> None:
    world = make_world(1, **FIELDS)
    produce(world.landing.topics, [("a", value(0, "order")), ("b", text), ("c", value(2, "refund", cents=1))])
    world.settle()
    (dead,) = world.rows("shop.dead")
    assert dead["offset"] == 1
    assert dead["value"] == text.encode()
    assert kind in (None, dead["kind"])
    assert (ids(world, "shop.rows"), ids(world, "shop.refunds")) == (Counter([0]), Counter([2]))
    check_verified(world)


@pytest.mark.heavy
def test_other_records_may_have_a_table_of_their_own(make_world: Make, produce: Produce) -> None:
    route = {**ROUTE, "other": "shop.other", "create": {**ROUTE["create"], "shop.other": SCHEMA}}
    world = make_world(1, **{**FIELDS, "route": route})
    produce(world.landing.topics, [*mixed(0, 40), ("x", '{"id": 99}'), ("y", value(98, 5))])
    world.settle()
    assert ids(world, "shop.other") == Counter([98, 99, *(i for i in range(40) if i % 10 == 3)])
    assert {row["kind"] for row in world.rows("shop.dead")} == {"missing_required"}
    check_verified(world)


def test_a_record_that_names_no_table_can_stop_its_range_until_a_user_states_more(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(1, **{**FIELDS, "route": {**ROUTE, "other": "fail"}})
    produce(world.landing.topics, [("a", value(0, "order")), ("b", value(1, "gift", name="g"))])
    for _ in range(3):
        closed = world.run()
    assert "names no table" in str(closed.blocked)
    gifts = {**ROUTE, "other": "fail", "tables": {**ROUTE["tables"], "gift": "shop.rows"}}
    gifts_world = replace(world, landing=replace(world.landing, route=gifts))
    gifts_world.settle()
    assert ids(gifts_world, "shop.rows") == Counter([0, 1])
    check_verified(gifts_world)


@pytest.mark.heavy
def test_a_missing_table_fails_the_plan_or_has_its_records_set_aside(make_world: Make, produce: Produce) -> None:
    route = {k: v for k, v in ROUTE.items() if k != "create"}
    world = make_world(1, **{**FIELDS, "route": route})
    produce(world.landing.topics, mixed(0, 20))
    with pytest.raises(TableError, match=r"there is no table shop\.refunds.*`route\.create`.*LC6226"):
        world.run()
    aside = replace(world, landing=replace(world.landing, route={**route, "missing": "dead_letter"}))
    aside.settle()
    rows = expected(0, 20)
    assert ids(aside, "shop.rows") == rows["rows"]
    kinds = Counter(row["kind"] for row in aside.rows("shop.dead"))
    assert kinds == {"not_routed": 2, "missing_table": rows["refunds"].total() + 2}
    check_verified(aside)
    # Made by a user, it takes what comes from then on; what was set aside is read again by a replay.
    made = replace(
        aside, landing=replace(aside.landing, route={**route, "missing": "dead_letter", "create": ROUTE["create"]})
    )
    produce(world.landing.topics, mixed(20, 20))
    made.settle()
    assert ids(made, "shop.refunds") == expected(20, 20)["refunds"]
    assert ids(made, "shop.rows") == expected(0, 40)["rows"]
    check_verified(made)


def broken(monkeypatch: pytest.MonkeyPatch, name: str) -> pytest.MonkeyPatch:
    """The catalog answers nothing that is about one table."""
    load = SqlCatalog.load_table

    def refuse(self: SqlCatalog, identifier: Any, *args: Any, **kwargs: Any) -> Any:
        if ".".join(identifier if isinstance(identifier, tuple) else (identifier,)).endswith(name):
            raise CatalogError("LC9999", f"{name} is broken")
        return load(self, identifier, *args, **kwargs)

    monkeypatch.setattr(SqlCatalog, "load_table", refuse)
    return monkeypatch


@pytest.mark.heavy(but=("shop.rows",))
@pytest.mark.parametrize("table", ["shop.refunds", "shop.rows"])
def test_a_broken_table_stops_no_other_and_takes_what_it_lacks_later(
    make_world: Make, produce: Produce, table: str
) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    produce(world.landing.topics, mixed(40, 40))
    opened = world.open("broken")
    world.write(opened)
    with pytest.MonkeyPatch.context() as patch:
        broken(patch, table)
        with pytest.raises(LakecommitError, match=table):
            world.close("broken", opened)
    other = "rows" if table == "shop.refunds" else "refunds"
    assert ids(world, f"shop.{other}") == expected(0, 80)[other], "the table that is not broken has all"
    mine = "refunds" if other == "rows" else "rows"
    assert ids(world, f"shop.{mine}") == expected(0, 40)[mine]
    world.settle()
    check(world, 0, 80)


@pytest.mark.heavy
@pytest.mark.parametrize("trouble", ["broken", "dropped", "emptied"])
def test_windows_are_planned_without_a_table_that_is_in_trouble(
    make_world: Make, produce: Produce, trouble: str
) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    with world.session() as session:
        catalog = session.tables.catalog
        table = catalog.load_table("shop.refunds")
    with pytest.MonkeyPatch.context() as patch:
        if trouble == "broken":
            broken(patch, "shop.refunds")
        else:
            catalog.drop_table("shop.refunds")
        if trouble == "emptied":
            catalog.create_table("shop.refunds", table.schema())
        for n in range(1, 4):
            produce(world.landing.topics, mixed(40 * n, 40))
            with pytest.raises(LakecommitError, match=r"shop\.refunds.*(LC6015|LC9999)"):
                world.run()
        assert any("shop.refunds is left out of this plan" in line for line in world.lines)
        assert ids(world, "shop.rows") == expected(0, 160)["rows"], "the other table is not held up"
        dead = Counter(json.loads(row["value"])["id"] for row in world.rows("shop.dead"))
        assert dead == expected(0, 160)["dead"], "nothing is a dead letter for a table's trouble"
        if trouble != "broken":
            with pytest.raises(AssertionError, match="dropped or recreated"):
                check_verified(world)
    if trouble == "emptied":
        catalog.drop_table("shop.refunds")
    if trouble != "broken":
        catalog.register_table("shop.refunds", table.metadata_location)
    world.settle()
    check(world, 0, 160)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_comes_and_goes_while_runs_die_has_each_record_once(
    make_world: Make, produce: Produce, seed: int
) -> None:
    world, chance = make_world(**FIELDS), random.Random(seed)
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    with world.session() as session:
        catalog = session.tables.catalog
    sent, away = 40, None
    for step in range(14):
        if chance.random() < 0.6:
            produce(world.landing.topics, mixed(sent, 20))
            sent += 20
        if away is None and chance.random() < 0.4:
            away = catalog.load_table("shop.refunds").metadata_location
            catalog.drop_table("shop.refunds")
        elif away is not None and chance.random() < 0.5:
            catalog.register_table("shop.refunds", away)
            away = None
        at, when = chance.choice([0, 0, 1, 2, 3, 4, 5, 6, 8]), chance.choice(["before", "after"])
        with deaths(at, when), suppress(Killed, LakecommitError):  # type: ignore[arg-type]
            world.run(f"step-{step}")
    if away is not None:
        catalog.register_table("shop.refunds", away)
    world.settle(10)
    check(world, 0, sent)


@pytest.mark.heavy
@pytest.mark.parametrize("of", [backfill, replay], ids=["backfill", "replay"])
def test_a_stream_makes_no_table_that_was_there(
    make_world: Make, produce: Produce, of: Callable[..., LaneWorld | ReplayWorld]
) -> None:
    """It would have the stream's rows alone, and stand in the place of the one that can be brought back."""
    world = make_world(1, **FIELDS, metadata_columns=True, start="latest" if of is backfill else "earliest")
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    produce(world.landing.topics, mixed(40, 20))
    world.settle()
    with world.session() as session:
        catalog = session.tables.catalog
    place = catalog.load_table("shop.refunds").metadata_location
    catalog.drop_table("shop.refunds")
    with pytest.raises(LedgerError, match=r"shop\.refunds.*LC6015"):
        of(world, "0=0-40").finish()
    assert not catalog.table_exists("shop.refunds")
    catalog.register_table("shop.refunds", place)
    of(world, "0=0-40").finish()
    check(world, 0, 60)


@pytest.mark.heavy
def test_a_table_that_is_missing_for_good_is_recreated_and_filled_by_a_users_decision(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 40))
    world.settle()
    with world.session() as session:
        session.tables.catalog.drop_table("shop.refunds")
    produce(world.landing.topics, mixed(40, 40))
    with pytest.raises(LedgerError, match=r"`lakecommit reset offsets SPEC --from.*LC6015"):
        world.run()
    head = len(world.rows("shop.rows"))
    apply(world, "earliest", Way())
    world.settle()
    assert (head, ids(world, "shop.rows").total()) == (40, 40), "nothing is read again for the other table"
    check(world, 0, 80)


@pytest.mark.heavy
def test_a_table_that_cannot_be_filled_is_named(make_world: Make, produce: Produce) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 20))
    world.settle()
    with world.session() as session:
        table = session.tables.catalog.load_table("shop.refunds")
    with table.update_schema() as update:
        update.add_column("octets", BinaryType())
    with pytest.raises(TableError, match=r"^shop\.refunds: column octets is binary.*LC6228"):
        world.run()


@pytest.mark.heavy
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [pytest.param(n, marks=pytest.mark.heavy) if n % 4 else n for n in range(1, 14)])
def test_whatever_dies_each_record_is_in_its_table_once(make_world: Make, produce: Produce, at: int, when: Any) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, mixed(0, 60))
    with deaths(at, when) as died, suppress(Killed):
        world.run("dies")
    world.settle()
    check(world, 0, 60)
    assert len(died.steps) >= 1


@pytest.mark.heavy
def test_a_replay_reads_a_range_again_for_all_tables(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **FIELDS, metadata_columns=True)
    produce(world.landing.topics, mixed(0, 100))
    world.settle()
    with world.session() as session, pytest.raises(SpecError, match=r"lakecommit backfill SPEC --replace.*LC7404"):
        replay_dead_letters(session, Selection())
    assert open_ones(world) == expected(0, 100)["dead"]
    tables = {**ROUTE["tables"], "unknown": "shop.refunds"}
    now = replace(world, landing=replace(world.landing, route={**ROUTE, "tables": tables}))
    again = replay(now, "0=20-60")
    again.finish()
    rows = expected(0, 100)
    moved = [i for i in range(20, 60) if i % 10 == 3]
    assert ids(now, "shop.rows") == rows["rows"]
    assert ids(now, "shop.refunds") == rows["refunds"] + Counter(moved)
    dead = Counter(json.loads(row["value"])["id"] for row in now.rows("shop.dead"))
    assert dead == rows["dead"] - Counter(moved)
    assert open_ones(now) == dead
    check_verified(now)


def open_ones(world: World) -> Counter[int]:
    """The ids of the open dead letters, as they are listed; the counts by kind agree."""
    with world.session() as session:
        found = Counter(json.loads(one.value())["id"] for one in open_dead_letters(session, Selection()))
        counts = sum(one.states[State.OPEN] for one in counted(session, Selection()))
    assert counts == found.total()
    return found


@pytest.mark.heavy
def test_a_rule_that_is_for_no_table_is_reported_before_anything_is_read(make_world: Make) -> None:
    world = make_world(1, **{**FIELDS, "timestamps": {"a": "epoch_millis"}})
    with pytest.raises(TableError, match=r"timestamps: no table has a column 'a'.*LC5004"):
        world.open("run")
