# SPDX-License-Identifier: Apache-2.0
"""A record has one disposition: it is a row of the data table or a dead letter, never both and never neither, whatever
is read again of one table alone after the columns or the landing changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import ancestry
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.stated import parse_offsets
from tests.faults.test_replay import DECISION
from tests.fixtures.kafka import delete_topic
from tests.support.declared import changed_landing
from tests.support.messes import CREATE, TABLE, TAG, add_column, drop_column, table_of
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import World

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., object]
DEAD = "shop.dead"
FIELDS = {
    "partitions": 1,
    "create": CREATE,
    "table": TABLE,
    "dead_letter_table": DEAD,
    "slice_records": 100,
    "unknown_fields": "dead_letter",
    "dead_letter_max_ratio": 1.0,
}
REFUSED = r"could end in two tables, or in none"


def strange(first: int, count: int) -> list[tuple[str, dict[str, object]]]:
    """Every other one has the column that :func:`add_column` adds, and each the one that :func:`drop_column` drops."""
    return [(str(i), {"id": i, "n": 1} | ({"added": "x"} if i % 2 else {})) for i in range(first, first + count)]


def landed(make_world: Make, produce: Produce, **fields: object) -> World:
    """Twenty records, half of them dead letters."""
    world = make_world(**{**FIELDS, **fields})
    produce(world.landing.topics, strange(0, 20))
    world.run()
    assert len(world.rows(DEAD)) == 10
    return world


def roll_back(world: World, name: str, back: int | None = None) -> None:
    """By some snapshots; by default to the origin."""
    table = table_of(world, name)
    line = list(ancestry(table.metadata, "main"))
    to = line[-1] if back is None else line[back]
    table.manage_snapshots().set_current_snapshot(to.snapshot_id).commit()


def check_dispositions(world: World, ids: Iterable[int]) -> None:
    """Each record is a row or a dead letter, once."""
    rows, dead = (Counter(r[key] for r in world.rows(t)) for t, key in ((TABLE, "id"), (DEAD, "offset")))
    assert rows + dead == Counter(ids), f"both {rows & dead}; {world.lines[-6:]}"
    check_verified(world)


def add_and_drop(world: World) -> None:
    add_column(world)
    with table_of(world).update_schema() as schema:
        schema.delete_column("added")


def other_spec(world: World) -> None:
    world.landing = changed_landing(world.landing, unknown_fields="ignore")


CHANGES = [add_column, drop_column, other_spec]


@pytest.mark.heavy
@pytest.mark.parametrize("change", CHANGES, ids=["column added", "column dropped", "spec"])
@pytest.mark.parametrize("lost", [TABLE, DEAD], ids=["rows", "dead letters"])
def test_a_table_that_was_rolled_back_is_not_read_again_alone_by_other_rules(
    make_world: Make, produce: Produce, lost: str, change: Callable[[World], None]
) -> None:
    world = landed(make_world, produce)
    change(world)
    roll_back(world, lost)
    produce(world.landing.topics, strange(20, 10))
    held = DEAD if lost == TABLE else TABLE
    with pytest.raises(LedgerError, match=REFUSED) as refused:
        world.settle()
    text = str(refused.value)
    assert f"{lost} lacks" in text
    assert f"[0, 20), which {held} read" in text
    to = re.search(rf"roll {held} back to snapshot (\d+)", text)
    assert to is not None
    table_of(world, held).manage_snapshots().set_current_snapshot(int(to[1])).commit()
    world.settle()
    check_dispositions(world, range(30))


def test_what_one_table_has_is_taken_out_as_the_refusal_reports(make_world: Make, produce: Produce) -> None:
    """Where others have written to it since, or its snapshots are expired, it cannot be rolled back."""
    world = landed(make_world, produce, metadata_columns=True)
    table = table_of(world, DEAD)
    table.append(table.scan(row_filter="offset = 1").to_arrow())
    table_of(world, DEAD).delete("offset = 1")
    other_spec(world)
    roll_back(world, TABLE)
    with pytest.raises(LedgerError, match=REFUSED) as refused:
        world.settle()
    assert "roll shop.dead back" not in str(refused.value)
    match = re.search(r"`lakecommit reset offsets SPEC --from (\S+) --delete`", str(refused.value))
    assert match is not None
    with world.session() as session:
        delete_back(session, delete_preview(session, parse_offsets(match[1], "")), DECISION, fewer=True)
    produce(world.landing.topics, strange(20, 10))
    world.settle()
    check_dispositions(world, range(30))


@pytest.mark.heavy
@pytest.mark.parametrize("lost", [TABLE, DEAD], ids=["rows", "dead letters"])
def test_what_is_only_reported_for_one_table_is_read_again_for_all(
    make_world: Make, produce: Produce, lost: str
) -> None:
    """The other table has a new epoch, and the rules have changed: nothing is landed yet that could not be undone."""
    world = landed(make_world, produce)
    produce(world.landing.topics, strange(20, 10))
    world.write(world.open("reported"))
    table_of(world, lost).manage_snapshots().remove_tag(TAG).commit()
    other_spec(world)
    world.settle()
    assert any(f"{lost} lacks it and would apply other rules" in line for line in world.lines)
    assert len(world.rows(DEAD)) == 10
    check_dispositions(world, range(30))


@pytest.mark.heavy
@pytest.mark.parametrize("lost", [TABLE, DEAD], ids=["rows", "dead letters"])
def test_a_change_that_is_undone_is_no_other_rules(make_world: Make, produce: Produce, lost: str) -> None:
    world = landed(make_world, produce)
    add_and_drop(world)
    roll_back(world, lost)
    produce(world.landing.topics, strange(20, 10))
    world.settle()
    check_dispositions(world, range(30))


@pytest.mark.heavy
def test_the_dead_letters_may_be_taken_as_they_are_by_a_users_decision(make_world: Make, produce: Produce) -> None:
    world = landed(make_world, produce)
    add_column(world)
    roll_back(world, DEAD)
    with pytest.raises(LedgerError, match=REFUSED) as refused:
        world.settle()
    match = re.search(r"assert SPEC --table shop\.dead --at (\S+):0=(\d+)`", str(refused.value))
    assert match is not None
    with world.session() as session:
        assert_tables(session, from_offsets(session, {(match[1], 0): int(match[2])}, [DEAD]))
    produce(world.landing.topics, strange(20, 10))
    world.settle()
    assert world.rows(DEAD) == []
    world.check(Counter([*range(0, 20, 2), *range(20, 30)]))
    check_verified(world)


@pytest.mark.heavy
def test_a_dead_letter_table_made_anew_is_not_filled_by_other_rules(make_world: Make, produce: Produce) -> None:
    world = landed(make_world, produce)
    with world.session() as session:
        session.tables.catalog.drop_table(DEAD)
    add_column(world)
    with world.session() as session:
        ledger_init(session, "earliest")
    with pytest.raises(LedgerError, match=REFUSED):
        world.settle()
    with table_of(world).update_schema() as schema:
        schema.delete_column("added")
    world.settle()
    check_dispositions(world, range(20))


def test_only_what_was_evaluated_otherwise_is_refused(make_world: Make, produce: Produce) -> None:
    world = landed(make_world, produce)
    add_column(world)
    produce(world.landing.topics, [(str(i), {"id": i, "stranger": 1}) for i in range(20, 40)])
    world.run()
    roll_back(world, DEAD, 1)
    world.settle()
    check_dispositions(world, range(40))
    roll_back(world, DEAD)
    with pytest.raises(LedgerError, match=r"lacks \S+ \[0, 20\), which.*LC6005"):
        world.settle()


def rename(world: World, name: str, to: str) -> None:
    with world.session() as session:
        session.tables.catalog.rename_table(name, to)


@pytest.mark.heavy
def test_dead_letters_that_waited_for_days_are_those_of_the_rows_that_landed(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(**FIELDS)
    produce(world.landing.topics, strange(0, 2))
    world.run()
    produce(world.landing.topics, strange(2, 18))
    opened = world.open("halfway")
    world.write(opened)
    rename(world, DEAD, "shop.elsewhere")
    with pytest.raises(LakecommitError, match=r"shop\.dead.*LC6015"):
        world.close("halfway", opened)
    add_column(world)
    rename(world, "shop.elsewhere", DEAD)
    produce(world.landing.topics, strange(20, 10))
    world.settle()
    check_dispositions(world, range(30))


@pytest.mark.heavy
def test_dead_letters_that_lag_when_the_control_topic_is_lost_are_read_again_for_them_alone(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = landed(make_world, produce)
    lag(world, produce)
    delete_topic(admin, world.landing.control_topic_name)
    produce(world.landing.topics, strange(40, 10))
    world.settle()
    check_dispositions(world, range(50))


@pytest.mark.heavy
def test_of_those_the_source_has_no_more_nothing_stops_the_rows(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = landed(make_world, produce)
    lag(world, produce)
    delete_topic(admin, world.landing.control_topic_name)
    partition = TopicPartition(str(world.landing.topics), 0, 30)
    admin.delete_records([partition])[partition].result(PATIENCE)
    produce(world.landing.topics, strange(40, 10))
    for _ in range(3):
        world.run()
    world.check(Counter(range(0, 50, 2)))
    assert any("shop.dead lacks" in line and "[20, 30)" in line and "reset offsets" in line for line in world.lines)
    with world.session() as session:
        (_, dead) = init_preview(session, "earliest").tables
        assert str(dead.given_up).endswith("[0] [20, 30)")
        ledger_init(session, "earliest")
    world.settle()
    assert Counter(r["offset"] for r in world.rows(DEAD)) == Counter([*range(1, 20, 2), *range(31, 50, 2)])
    world.check(Counter(range(0, 50, 2)))
    check_verified(world)


def lag(world: World, produce: Produce) -> None:
    """The rows of twenty more records are landed, their dead letters wait."""
    produce(world.landing.topics, strange(20, 20))
    opened = world.open("halfway")
    world.write(opened)
    rename(world, DEAD, "shop.elsewhere")
    with pytest.raises(LakecommitError, match=r"shop\.dead.*LC6015"):
        world.close("halfway", opened)
    rename(world, "shop.elsewhere", DEAD)


@pytest.mark.heavy
def test_a_table_without_rows_is_brought_forward_when_the_rules_change(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    """So that a control topic that is lost later leaves nothing that was evaluated otherwise to be read for it
    alone.
    """
    world = make_world(**FIELDS)
    produce(world.landing.topics, [(str(i), {"id": i}) for i in range(20)])
    world.run()
    add_column(world)
    produce(world.landing.topics, strange(20, 10))
    world.run()
    delete_topic(admin, world.landing.control_topic_name)
    produce(world.landing.topics, strange(30, 10))
    world.settle()
    check_dispositions(world, range(40))


@pytest.mark.heavy
def test_a_table_that_joins_with_slices_pending_is_filled(make_world: Make, produce: Produce) -> None:
    world = make_world(**{**FIELDS, "dead_letter_table": None})
    produce(world.landing.topics, [(str(i), {"id": i}) for i in range(20)])
    world.write(world.open("before"))
    world.landing = replace(world.landing, dead_letter_table=DEAD)
    produce(world.landing.topics, strange(20, 10))
    world.settle()
    check_dispositions(world, range(30))


@pytest.mark.heavy
def test_a_comment_on_a_column_is_no_other_rule(make_world: Make, produce: Produce) -> None:
    world = landed(make_world, produce)
    with table_of(world).update_schema() as schema:
        schema.update_column("name", doc="said of it")
    roll_back(world, DEAD)
    world.settle()
    check_dispositions(world, range(20))


@pytest.mark.heavy
def test_a_misspelt_column_of_a_first_spec_is_fixed_as_the_warning_reports(make_world: Make, produce: Produce) -> None:
    """All records became dead letters, within the budget."""
    misspelt = {"schema": [{"name": "idd", "type": "long", "required": True}]}
    world = make_world(**{**FIELDS, "create": misspelt, "unknown_fields": "ignore"})
    produce(world.landing.topics, strange(0, 20))
    world.settle()
    assert len(world.rows(DEAD)) == 20
    world.landing = replace(world.landing, create=CREATE)
    world.run()
    both = f"drop it and {DEAD}, which has its rejected records"
    message = f"{TABLE} has no rows yet: {both}; then `lakecommit reset offsets"
    assert any(message in line for line in world.lines), world.lines
    with world.session() as session:
        for name in (TABLE, DEAD):
            session.tables.catalog.drop_table(name)
        ledger_init(session, "earliest")
    world.settle()
    check_dispositions(world, range(20))
    assert world.rows(DEAD) == []


@pytest.mark.heavy
def test_a_table_that_never_had_a_row_is_recreated_without_a_decision(make_world: Make, produce: Produce) -> None:
    world = make_world(**{**FIELDS, "unknown_fields": "ignore"})
    produce(world.landing.topics, strange(0, 20))
    world.settle()
    with world.session() as session:
        session.tables.catalog.drop_table(DEAD)
    produce(world.landing.topics, [("20", "no json")])
    world.settle()
    check_dispositions(world, range(21))
    assert len(world.rows(DEAD)) == 1
