# SPDX-License-Identifier: Apache-2.0
"""Audit before publish, crossed with kills, other writers, rollbacks and decisions: `main` has each window once, and
only windows that passed.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any

import duckdb
import pytest
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.cycle import ledger_state
from airflow_provider_lakecommit.exceptions import DecisionError, LakecommitError, LedgerError, TableError
from airflow_provider_lakecommit.operations.decisions.audit_decision import HeldBack, audit_preview, decide_audit
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.operation import NothingToDoError
from airflow_provider_lakecommit.operations.decisions.pause import suspend
from airflow_provider_lakecommit.operations.decisions.requests import ResetBlocked
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from tests.support.steps import check_verified
from tests.support.world import SCHEMA, Killed, World, deaths, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
GOOD = "SELECT * FROM added_rows WHERE id < 0"
UNIQUE = "SELECT id FROM all_rows GROUP BY id HAVING count(*) > 1"
AUDITED: dict[str, Any] = {"create": SCHEMA, "checks": [GOOD], "branch": "audit", "compact": False}
WITHOUT_BAD = {"sql": "SELECT * FROM record WHERE id >= 0", "record_schema": SCHEMA["schema"]}
REASON = Decision(command="reset blocked", actor="ana", host="here", at="2026-11-28T00:00:00", landing="faults")


def bad(number: int) -> list[tuple[str, str]]:
    return [(str(number), json.dumps({"id": -number, "name": "bad"}))]


def loaded(world: World, table: str | None = None) -> Table:
    with world.session() as session:
        return session.tables.load(table or world.landing.table)


def ids(world: World, branch: str = "main", table: str | None = None) -> Counter[int]:
    found = loaded(world, table)
    at = found.metadata.refs[branch].snapshot_id
    return Counter(found.scan(snapshot_id=at).to_arrow().column("id").to_pylist())


def counted(*numbers: int) -> Counter[int]:
    return Counter(numbers)


def shown(world: World, *, drop: bool) -> tuple[HeldBack, ...]:
    with world.session() as session:
        return audit_preview(session, drop=drop)


def decided(world: World, *, drop: bool, agreed: tuple[HeldBack, ...] | None = None) -> dict[str, Any]:
    with world.session() as session:
        return decide_audit(session, agreed or audit_preview(session, drop=drop), REASON, drop=drop)


def refused(world: World) -> None:
    with pytest.raises(TableError, match="LC6250"):
        world.run()


def caught_up(world: World, expected: Counter[int]) -> None:
    """Every window is landed, on both branches, and the proof holds."""
    world.settle()
    assert ids(world) == ids(world, "audit") == expected
    check_verified(world)


def rolled_back(world: World, branch: str, snapshots: int) -> None:
    table = loaded(world)
    at = table.metadata.snapshot_by_id(table.metadata.refs[branch].snapshot_id)
    for _ in range(snapshots):
        assert at is not None
        assert at.parent_snapshot_id is not None
        at = table.metadata.snapshot_by_id(at.parent_snapshot_id)
    assert at is not None
    if branch == "main":
        table.manage_snapshots().rollback_to_snapshot(at.snapshot_id).commit()
    else:
        table.manage_snapshots().create_branch(at.snapshot_id, branch).commit()


@pytest.mark.parametrize("first", ["none", "main"])
def test_a_window_is_on_main_once_it_passed(make_world: Make, produce: Produce, first: str) -> None:
    world = make_world(**{**AUDITED, "checks": [], "branch": "main"} if first == "main" else AUDITED)
    produce(world.landing.topics, records(0, 20))
    world.settle()
    world.landing = world.landing.changed(publish={"branch": "audit", "checks": [GOOD, UNIQUE]})
    produce(world.landing.topics, records(20, 20))
    caught_up(world, counted(*range(40)))
    produce(world.landing.topics, [*bad(7), *records(40, 5)])
    refused(world)
    refused(world)
    assert ids(world) == counted(*range(40))
    assert ids(world, "audit") == counted(*range(45), -7)
    check_verified(world)


def test_the_first_window_of_a_table_is_refused_and_dropped(make_world: Make, produce: Produce) -> None:
    world = make_world(**AUDITED)
    produce(world.landing.topics, [*records(0, 5), *bad(3)])
    refused(world)
    assert ids(world) == counted()
    decided(world, drop=True)
    assert ids(world, "audit") == counted()
    world.landing = world.landing.changed(transform=WITHOUT_BAD)
    caught_up(world, counted(*range(5)))


def test_a_refused_window_is_released(make_world: Make, produce: Produce) -> None:
    world = make_world(**AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    produce(world.landing.topics, bad(3))
    refused(world)
    (error,) = [line for line in world.lines if "wrong row" in line]
    assert "'name': 'bad'" in error, "the log shows the rows"
    with world.session() as session:
        log = [entry for entry in session.read_state(()).entries if "LC6250" in str(entry)]
    assert log, "the refusal is evidence in the control topic"
    assert not [entry for entry in log if "'bad'" in str(entry)], "and the rows are not"
    before = shown(world, drop=False)
    assert [(t.rows, len(t.ranges), t.apart) for t in before] == [(1, 1, "")]
    decided(world, drop=False, agreed=before)
    assert shown(world, drop=False) == ()
    produce(world.landing.topics, [*records(5, 5), *bad(4)])
    refused(world)
    assert ids(world) == counted(*range(5))
    decided(world, drop=False)
    closed = world.run()
    assert sum(p.rows for p in closed.published) == 7
    caught_up(world, counted(*range(10), -3, -4))
    with world.session() as session:
        made, _ = ledger_state(session, world.landing.table).decisions  # type: ignore[union-attr]
        assert (made.actor, made.what) == ("ana", f"releases 1 rows of branch audit: {before[0].ranges}")


def test_stalled_by_refusals_until_dropped(make_world: Make, produce: Produce) -> None:
    """Planning stops after three refusals; the decision lets it go on."""
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    for n in range(5):
        produce(world.landing.topics, bad(n + 1))
        refused(world)
    assert any("stalled" in line for line in world.lines)
    held = shown(world, drop=True)
    assert sum(t.rows for t in held) < 5, "windows go on until the stall, not for ever"
    decided(world, drop=True, agreed=held)
    world.landing = world.landing.changed(transform=WITHOUT_BAD)
    caught_up(world, counted(*range(5)))


def test_a_preview_names_the_decisions_that_a_drop_undoes(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **AUDITED)
    reset = replace(REASON, command="reset offsets")
    produce(world.landing.topics, records(0, 5))
    world.settle()
    with world.session() as session:
        ledger_init(session, "latest", agreed=init_preview(session, "latest"), decision=reset)
    produce(world.landing.topics, records(5, 5))
    world.settle()
    produce(world.landing.topics, bad(1))
    refused(world)
    produce(world.landing.topics, records(10, 5))
    with world.session() as session:
        ledger_init(session, "latest", agreed=init_preview(session, "latest"), decision=replace(reset, actor="bob"))
        suspend(session, replace(REASON, command="pause"))
    held, *_ = shown(world, drop=True)
    assert [(d.command, d.actor) for d in held.undone] == [("reset offsets", "bob")]
    assert shown(world, drop=False)[0].undone == ()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 9))
def test_killed_at_every_step(make_world: Make, produce: Produce, at: int, when: Any) -> None:
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    produce(world.landing.topics, records(5, 5))
    with suppress(Killed), deaths(at, when):
        world.run("window")
    assert ids(world) in (counted(*range(5)), counted(*range(10)))
    # The same run again tells what it has published, whenever it died.
    closed = world.run("window", retry=True)
    assert closed.finished or sum(p.rows for p in closed.published) == 5
    caught_up(world, counted(*range(10)))


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", [1, 2])
def test_killed_in_a_decision(make_world: Make, produce: Produce, at: int, when: Any, drop: bool) -> None:
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    produce(world.landing.topics, bad(1))
    refused(world)
    with suppress(Killed), deaths(at, when):
        decided(world, drop=drop)
    if shown(world, drop=drop) and ids(world, "audit")[-1]:
        decided(world, drop=drop)
    if drop:
        world.landing = world.landing.changed(transform=WITHOUT_BAD)
    caught_up(world, counted(*range(5)) if drop else counted(*range(5), -1))


@pytest.mark.parametrize("how", ["release", "drop"])
def test_the_operation_does_what_it_previewed(make_world: Make, produce: Produce, how: str) -> None:
    world, operation = make_world(1, **AUDITED), ResetBlocked(how=how)
    produce(world.landing.topics, [*records(0, 5), *bad(1)])
    refused(world)
    with world.session() as session:
        before, _ = operation.propose(session)
        other = "drop" if how == "release" else "release"
        with pytest.raises(DecisionError, match="LC8320"):
            ResetBlocked(how=other).apply_agreed(session, before, REASON)
        assert operation.apply_agreed(session, before, REASON)["tables"][0]["rows"] == 6
        if how == "release":
            with pytest.raises(NothingToDoError):
                operation.propose(session)
    world.landing = world.landing.changed(transform=WITHOUT_BAD)
    caught_up(world, counted(*range(5), *([-1] if how == "release" else [])))


def test_main_of_another_writer_is_never_overwritten(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    table = loaded(world)
    row = table.scan(row_filter="id = 1").to_arrow()
    table.append(row.set_column(row.schema.get_field_index("id"), row.schema.field("id"), [[99]]))
    produce(world.landing.topics, records(5, 5))
    with pytest.raises(LedgerError, match="LC3060"):
        world.run()
    with pytest.raises(LedgerError, match="LC3060"):
        decided(world, drop=False)
    assert ids(world) == counted(*range(5), 99)
    decided(world, drop=True)
    caught_up(world, counted(*range(10), 99))


@pytest.mark.parametrize("drop", [False, True])
def test_a_rollback_of_main_is_decided_and_not_undone(make_world: Make, produce: Produce, drop: bool) -> None:
    world = make_world(1, **AUDITED)
    for first in (0, 5):
        produce(world.landing.topics, records(first, 5))
        world.settle()
    rolled_back(world, "main", 1)
    assert ids(world) == counted(*range(5))
    produce(world.landing.topics, records(10, 5))
    with pytest.raises(LedgerError, match="LC3060"):
        world.run()
    assert ids(world) == counted(*range(5))
    decided(world, drop=drop)
    caught_up(world, counted(*range(15)))


def test_a_branch_that_a_user_drops_comes_back(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, records(0, 5))
    world.settle()
    produce(world.landing.topics, bad(1))
    refused(world)
    loaded(world).manage_snapshots().remove_branch("audit").commit()
    refused(world)
    assert ids(world, "audit") == counted(*range(5), -1)
    decided(world, drop=True)
    world.landing = world.landing.changed(transform=WITHOUT_BAD)
    caught_up(world, counted(*range(5)))


def test_a_decision_about_another_head_is_refused(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **AUDITED)
    produce(world.landing.topics, bad(1))
    refused(world)
    for drop in (False, True):
        before = shown(world, drop=drop)
        produce(world.landing.topics, bad(2))
        refused(world)
        with pytest.raises(LedgerError, match="LC3063"):
            decided(world, drop=drop, agreed=before)


def test_another_landing_on_the_branch_is_not_published_with_it(make_world: Make, produce: Produce) -> None:
    ours = make_world(1, **AUDITED)
    other = replace(ours, landing=ours.landing.changed(name="other", topics=make_world(1).landing.topics))
    produce(ours.landing.topics, records(0, 3))
    ours.settle()
    produce(other.landing.topics, bad(1))
    refused(other)
    produce(ours.landing.topics, records(3, 3))
    ours.landing = ours.landing.changed(publish={"checks": ["SELECT 1 WHERE false"]})
    with pytest.raises(LedgerError, match="LC3062"):
        ours.run()
    assert ids(ours) == counted(*range(3))


def function_of(monkeypatch: pytest.MonkeyPatch, call: Callable[[duckdb.DuckDBPyConnection], Any]) -> str:
    module = ModuleType("own_checks")
    module.totals = call  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "own_checks", module)
    return "own_checks.totals"


def test_python_functions_check_too(make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[Any] = []

    def totals(connection: duckdb.DuckDBPyConnection) -> list[str]:
        counts = [connection.execute(f"SELECT count(*) FROM {name}").fetchone() for name in ("added_rows", "all_rows")]
        observed.append(tuple(c[0] for c in counts if c))
        if observed[-1][0] == 13:
            raise AssertionError("thirteen rows")
        return ["too many"] if observed[-1][0] > 13 else []

    world = make_world(1, **{**AUDITED, "checks": [function_of(monkeypatch, totals)]})
    produce(world.landing.topics, records(0, 5))
    world.settle()
    assert observed == [(5, 5)]
    for first, many in ((5, 13), (18, 1)):
        produce(world.landing.topics, records(first, many))
        refused(world)
    assert observed == [(5, 5), (13, 18), (14, 19)]
    assert ids(world) == counted(*range(5))


@pytest.mark.parametrize(
    ("check", "code"),
    [
        ("SELECT no_such_column FROM added_rows", "LC6252"),
        ("SELECT * FROM read_csv('/etc/passwd')", "LC6252"),
        ("COPY added_rows TO '/tmp/stolen.csv'", "LC6252"),
        ("no_such_module.check", "LC6253"),
        ("builtins.len", "LC6254"),
    ],
)
def test_a_check_that_cannot_be_run_has_not_passed(make_world: Make, produce: Produce, check: str, code: str) -> None:
    world = make_world(1, **{**AUDITED, "checks": [check]})
    produce(world.landing.topics, records(0, 5))
    with pytest.raises(TableError, match=code):
        world.run()
    assert ids(world) == counted()
    world.landing = world.landing.changed(publish={"checks": [GOOD]})
    caught_up(world, counted(*range(5)))


def test_upserts_are_checked_by_their_newest_rows(make_world: Make, produce: Produce) -> None:
    world = make_world(
        1,
        **{
            **AUDITED,
            "checks": ["SELECT * FROM all_rows WHERE name = 'bad'"],
            "upsert_key": ["id"],
            "upsert_deletes": "ignore",
        },
    )
    topic = world.landing.topics
    produce(topic, records(0, 5))
    world.settle()
    produce(topic, [("1", json.dumps({"id": 1, "name": "bad"}))])
    refused(world)
    produce(topic, [("1", json.dumps({"id": 1, "name": "good"}))])
    caught_up(world, counted(*range(5)))


def test_compaction_of_the_branch_reaches_main(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **AUDITED)
    for first in range(0, 20, 5):
        produce(world.landing.topics, records(first, 5))
        world.settle()
    with world.session() as session:
        assert list(compact(session, write=True))
    produce(world.landing.topics, records(20, 5))
    caught_up(world, counted(*range(25)))


def test_rejects_and_rows_are_published_together(make_world: Make, produce: Produce) -> None:
    world = make_world(1, **{**AUDITED, "dead_letter_table": "shop.dead"})
    produce(world.landing.topics, [*records(0, 40), ("x", "no json")])
    world.settle()
    dead = loaded(world, "shop.dead")
    assert dead.scan().to_arrow().num_rows == 1
    produce(world.landing.topics, [*bad(1), *records(40, 40), ("x", "no json")])
    refused(world)
    assert loaded(world, "shop.dead").scan().to_arrow().num_rows == 1
    decided(world, drop=False)
    world.run()
    assert loaded(world, "shop.dead").scan().to_arrow().num_rows == 2
    caught_up(world, counted(*range(80), -1))


def test_runs_at_once_publish_once(make_world: Make, produce: Produce) -> None:
    from tests.support.world import race

    world = make_world(2, **AUDITED)
    produce(world.landing.topics, records(0, 30))
    race(world)
    caught_up(world, counted(*range(30)))


def test_a_zombie_of_the_former_spec_does_not_reach_main_twice(make_world: Make, produce: Produce) -> None:
    """A run that began before `publish.checks` was stated commits on main afterwards."""
    world = make_world(1, **{**AUDITED, "checks": [], "branch": "main"})
    produce(world.landing.topics, records(0, 5))
    world.settle()
    produce(world.landing.topics, records(5, 5))
    zombie = replace(world)
    opened = zombie.open("zombie")
    zombie.write(opened)
    world.landing = world.landing.changed(publish={"branch": None, "checks": [GOOD]})
    with suppress(LakecommitError):
        world.run()
    zombie.close("zombie", opened)
    with suppress(LakecommitError):
        world.run()
    if shown(world, drop=True):
        decided(world, drop=True)
    caught_up(world, counted(*range(10)))
