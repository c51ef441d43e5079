# SPDX-License-Identifier: Apache-2.0
"""Windows that wait on their branch for a decision, while others expire snapshots, roll ``main`` back or commit to it.

In memory: the plans, tasks, checks and tables are the product's own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.table import Table

from airflow_provider_lakecommit.core import Decision
from airflow_provider_lakecommit.cycle import ledger_state
from airflow_provider_lakecommit.cycle.commit.drain import drained_after
from airflow_provider_lakecommit.exceptions import DecisionError, LedgerError, SourceError, TableError
from airflow_provider_lakecommit.iceberg import trim_snapshots
from airflow_provider_lakecommit.iceberg.catalog import KEEP_SNAPSHOTS
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_snapshot
from airflow_provider_lakecommit.operations.decisions.audit_decision import HeldBack, audit_preview, decide_audit
from airflow_provider_lakecommit.operations.decisions.pause import suspend
from airflow_provider_lakecommit.operations.decisions.requests import ResetBlocked
from airflow_provider_lakecommit.operations.maintenance.compact import compact
from airflow_provider_lakecommit.operations.maintenance.expire import expire
from airflow_provider_lakecommit.status.status import read_status
from tests.faults.test_upserts import JSON
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.steps import check_verified
from tests.support.world import Killed

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {
    "create": {"schema": [{"name": "id", "type": "long", "required": True}]},
    "checks": ["SELECT * FROM added_rows WHERE id < 0"],
    "branch": "audit",
}
REASON = Decision(command="reset blocked", actor="ana", host="here", at="2026-11-28T00:00:00", landing="rows")


def some(*numbers: int) -> list[tuple[str, str]]:
    return [(str(n), json.dumps({"id": n})) for n in numbers]


def shown(world: MemoryWorld, *, drop: bool) -> tuple[HeldBack, ...]:
    with world.session() as session:
        return audit_preview(session, drop=drop)


def decided(world: MemoryWorld, *, drop: bool) -> None:
    with world.session() as session:
        decide_audit(session, audit_preview(session, drop=drop), REASON, drop=drop)


def refused(world: MemoryWorld, *numbers: int) -> None:
    """Each number is a window that a check refuses."""
    for n in numbers:
        world.broker.produce(TOPIC, some(n), 0)
        with pytest.raises(TableError, match="LC6250"):
            world.run()


def loaded(world: MemoryWorld) -> Table:
    with world.session() as session:
        return session.tables.load(world.landing.table)


def rows_on_main(world: MemoryWorld) -> list[int]:
    return sorted(row["id"] for row in world.rows())


def expired_by_another(world: MemoryWorld) -> None:
    """Another engine expires all snapshots that no branch and no tag names."""
    with world.session() as session:
        for name in world.landing.tables:
            old = session.tables.load(name).maintenance.expire_snapshots()
            old.older_than(datetime.now() + timedelta(minutes=1)).commit()


def test_without_publish_what_waits_lands_on_main_once(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        refused(world, -1, 10)
        audited = world.landing
        world.landing = audited.changed(publish={"branch": None, "checks": []})
        world.settle()
        assert rows_on_main(world) == [-1, 1, 2, 10]
        world.landing = audited
        world.broker.produce(TOPIC, some(20), 0)
        with pytest.raises(LedgerError, match="LC3060"):
            world.run()
        decided(world, drop=True)
        world.settle()
        assert rows_on_main(world) == [-1, 1, 2, 10, 20]
        check_verified(world)


@pytest.mark.parametrize("name", ["audit", "other"])
def test_a_branch_made_anew_on_main_gets_what_waits_once(tmp_path: Path, name: str) -> None:
    """Another engine replaces the branch, or the spec names another one."""
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        refused(world, -1, 10)
        if name == "audit":
            table = loaded(world)
            table.manage_snapshots().create_branch(table.metadata.refs["main"].snapshot_id, "audit").commit()
        world.landing = world.landing.changed(publish={"branch": name})
        with pytest.raises(TableError, match="LC6250"):
            world.run()
        decided(world, drop=False)
        world.settle()
        assert rows_on_main(world) == [-1, 1, 2, 10]
        check_verified(world)


def test_deletes_that_wait_are_counted(tmp_path: Path) -> None:
    checks = ["SELECT 1 WHERE (SELECT count(*) FROM all_rows) < 2"]
    with memory_world(tmp_path, **{**JSON, "metadata_columns": True, "branch": "audit", "checks": checks}) as world:
        keys = [json.dumps({"id": n}) for n in range(2)]
        world.send(*((key, json.dumps({"name": "there"})) for key in keys))
        world.broker.produce(TOPIC, [(keys[0], None)], 0)
        with pytest.raises(TableError, match="LC6250"):
            world.run()
        with world.session() as session:
            found = read_status(session)
        assert ([t.unpublished for t in found.tables], found.valid_through) == ([1, 0], None)
        assert rows_on_main(world) == [0, 1]


def zero(_connection: object) -> Any:
    return np.array([0])


def test_the_wrong_row_of_a_function_may_be_zero(tmp_path: Path) -> None:
    with memory_world(tmp_path, **{**OPTIONS, "checks": [f"{__name__}.zero"]}) as world:
        refused(world, 0)
        assert rows_on_main(world) == []


@pytest.mark.parametrize("by", ["age", "number"])
@pytest.mark.parametrize("first", [[], [1, 2]])
def test_waiting_windows_are_released_after_an_expiry(tmp_path: Path, by: str, first: list[int]) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        for n in first:
            world.send(*some(n))
        for n in (-1, 10, 11):
            world.broker.produce(TOPIC, some(n), 0)
            with pytest.raises(TableError, match="LC6250"):
                world.run()
        with world.session() as session:
            table = session.tables.load(world.landing.table)
            if by == "age":
                assert [e.error for e in expire(session, older_than=-timedelta(minutes=1), remove=True)] == ["", ""]
            else:
                with table.transaction() as change:
                    change.set_properties({KEEP_SNAPSHOTS: "1"})
                trim_snapshots(session.tables, world.landing.table, "audit", audited=True)
            left = len(session.tables.load(world.landing.table).metadata.snapshots)
            assert (left < len(table.metadata.snapshots)) == bool(first), "those that main has are expired"
        decided(world, drop=False)
        world.settle()
        assert sorted(row["id"] for row in world.rows()) == sorted([-1, *first, 10, 11])
        check_verified(world)


@pytest.mark.parametrize("first", [[], [1, 2]])
def test_waiting_windows_are_released_after_another_engine_cut_them_off_from_main(
    tmp_path: Path, first: list[int]
) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(*first))
        refused(world, -1, 10, 11)
        expired_by_another(world)
        refused(world, 12)
        expired_by_another(world)
        (table,) = [t for t in shown(world, drop=True) if t.table == world.landing.table]
        assert (table.apart, table.cut) == ("", True)
        assert rows_on_main(world) == first
        decided(world, drop=False)
        world.settle()
        assert rows_on_main(world) == sorted([-1, *first, 10, 11, 12])
        world.send(*some(13))
        assert rows_on_main(world) == sorted([-1, *first, 10, 11, 12, 13])


def test_windows_that_are_cut_off_are_dropped_and_read_again_from_their_start(tmp_path: Path) -> None:
    """Also if the first entry of the ledger has expired, and `main` has none, and not from `start`."""
    with memory_world(tmp_path, **OPTIONS) as world:
        refused(world, -1, 10)
        expired_by_another(world)
        decided(world, drop=True)
        world.landing = world.landing.changed(window={"start": "latest"}, publish={"checks": ["SELECT 1 WHERE false"]})
        world.settle()
        assert rows_on_main(world) == [-1, 10]
        check_verified(world)


def test_a_main_that_is_cut_off_from_its_ledger_is_not_read_again(tmp_path: Path) -> None:
    """Others commit to `main`, and expire what the landing has published there."""
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        for _ in range(2):
            table = loaded(world)
            table.append(table.scan(row_filter="id = 1").to_arrow())
            expired_by_another(world)
        world.broker.produce(TOPIC, some(3), 0)
        with pytest.raises(LedgerError, match="LC3060"):
            world.run()
        expired_by_another(world)
        with pytest.raises(LedgerError, match="LC3067"):
            decided(world, drop=True)
        plain = replace(world, landing=world.landing.changed(publish={"branch": None, "checks": []}))
        with plain.session() as session:
            tag = loaded(world).metadata.refs["lakecommit-main"].snapshot_id
            assert_tables(session, from_snapshot(session, tag), decision=replace(REASON, command="reset assert"))
        decided(world, drop=True)
        world.settle()
        assert rows_on_main(world) == [1, 1, 1, 1, 2, 3]


def test_windows_that_are_cut_off_do_not_hide_a_commit_of_another_writer(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        refused(world, -1, 10)
        table = loaded(world)
        table.append(table.scan(row_filter="id = 1").to_arrow())
        expired_by_another(world)
        with pytest.raises(LedgerError, match="LC3060"):
            decided(world, drop=False)
        decided(world, drop=True)
        world.landing = world.landing.changed(publish={"checks": ["SELECT 1 WHERE false"]})
        world.settle()
        assert rows_on_main(world) == [-1, 1, 1, 2, 10]


def test_windows_of_another_landing_that_are_cut_off_are_not_published(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.broker.create("others", 1)
        other = replace(world, landing=world.landing.changed(name="other", topics="others", dead_letter_table=None))
        world.send(*some(1))
        world.broker.produce("others", some(-1), 0)
        with pytest.raises(TableError, match="LC6250"):
            other.run()
        refused(world, -2)
        refused(world, 2)
        expired_by_another(world)
        world.landing = world.landing.changed(publish={"checks": ["SELECT 1 WHERE false"]})
        with pytest.raises(LedgerError, match="LC3062"):
            world.run()
        assert rows_on_main(world) == [1]


@pytest.mark.parametrize("drop", [False, True])
def test_a_rollback_of_a_decided_window_is_not_undone(tmp_path: Path, drop: bool) -> None:
    """The decision about the window was done when `main` took it."""
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        before = loaded(world).metadata.refs["main"].snapshot_id
        refused(world, -1)
        decided(world, drop=drop)
        world.landing = world.landing.changed(publish={"checks": ["SELECT * FROM added_rows WHERE id < -1"]})
        world.settle()
        assert rows_on_main(world) == [-1, 1, 2]
        loaded(world).manage_snapshots().rollback_to_snapshot(before).commit()
        world.broker.produce(TOPIC, some(3), 0)
        with pytest.raises(LedgerError, match="LC3060"):
            world.run()
        assert rows_on_main(world) == [1, 2]
        decided(world, drop=False)
        world.settle()
        assert rows_on_main(world) == [-1, 1, 2, 3]


def test_a_preview_counts_only_what_main_lacks(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        world.send(*some(3))
        table = loaded(world)
        table.append(table.scan(row_filter="id = 1").to_arrow())
        world.broker.produce(TOPIC, some(4), 0)
        with pytest.raises(LedgerError, match="LC3060"):
            world.run()
        (found,) = shown(world, drop=True)
        assert (found.rows, found.snapshots, len(found.ranges)) == (1, 1, 1)


def test_a_suspended_landing_stays_suspended_when_its_windows_are_dropped(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1))
        refused(world, -1)
        with world.session() as session:
            suspend(session, replace(REASON, command="suspend"))
        decided(world, drop=True)
        world.run()
        with world.session() as session:
            state = ledger_state(session, world.landing.table)
        assert state is not None
        assert state.own("rows", "live").suspended
        assert rows_on_main(world) == [1]


def test_what_a_killed_commit_left_on_the_branch_is_published_although_nothing_can_be_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: Any) -> None:
        raise Killed

    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1))
        world.broker.produce(TOPIC, some(2), 0)
        with monkeypatch.context() as patched:
            patched.setattr("airflow_provider_lakecommit.cycle.commit.close.audit", killed)
            with pytest.raises(Killed):
                world.run()
        del world.broker.topics[TOPIC]
        with pytest.raises(SourceError) as error:
            world.open("without the topic")
        with world.session() as session:
            drained_after(session, world.run_identity("without the topic"), error.value)
        assert world.found("id") == [(1,), (2,)]


def test_an_approved_drop_loses_no_record_that_the_source_has_removed_since(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*some(1, 2))
        refused(world, -1, 10)
        drop = ResetBlocked(how="drop")
        with world.session() as session:
            agreed, lines = drop.propose(session)
        assert not any("LOSES" in line for line in lines)
        world.broker.remove_before(TOPIC, 0, 3)
        with world.session() as session:
            with pytest.raises(DecisionError, match="LC8320"):
                drop.apply_agreed(session, agreed, REASON)
            assert len(shown(world, drop=True)[0].ranges) == 2
            drop.apply_agreed(session, drop.propose(session)[0], REASON)
        assert rows_on_main(world) == [1, 2]


@pytest.mark.parametrize("sorting", [{}, {"sort_order": ["id"]}])
def test_a_file_without_live_rows_is_read_in_columns_that_were_added_since(
    tmp_path: Path, sorting: dict[str, Any]
) -> None:
    """Its window was written by a run that died, and all its rows were superseded when the next run published it."""
    checks = ["SELECT id FROM all_rows GROUP BY id HAVING count(*) > 1"]
    options = {**JSON, "create": {**JSON["create"], **sorting}, "branch": "audit", "checks": checks, "evolve": "add"}
    with memory_world(tmp_path, **options) as world:
        key = json.dumps({"id": 1})
        world.broker.produce(TOPIC, [(key, json.dumps({"name": "old"}))], 0)
        world.write(world.open("dead"))
        world.send((key, json.dumps({"name": "new", "more": 7})))
        assert world.found("id", "name", "more") == [(1, "new", 7)]
        with world.session() as session:
            (done,) = compact(session, write=True, tables=[world.landing.table])
        assert (done.error, done.numbers.files_in) == ("", 2)
        world.settle()
        assert world.found("id", "name", "more") == [(1, "new", 7)]
        check_verified(world)
