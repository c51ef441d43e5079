# SPDX-License-Identifier: Apache-2.0
"""Decisions of users that meet backfills, replays, runs of the landing and each other: what is landed by any stream
counts for each of them, so that nothing is lost or doubled.

In memory: the plans, tasks and tables are the product's own.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from airflow_provider_lakecommit.core import LIVE, Coverage, Decision, LedgerSection, SourcePartition, Watermark
from airflow_provider_lakecommit.cycle.commit.close import close_cycle
from airflow_provider_lakecommit.cycle.plan.open import open_cycle
from airflow_provider_lakecommit.cycle.session.landing_session import RunIdentity
from airflow_provider_lakecommit.cycle.sets.expansion import landing_for
from airflow_provider_lakecommit.cycle.sets.former import landings_to_publish
from airflow_provider_lakecommit.cycle.sets.former_scan import former_landings, start_former
from airflow_provider_lakecommit.cycle.sets.shared_connections import SetConnections, found_landings
from airflow_provider_lakecommit.exceptions import DecisionError, LakecommitError, LedgerError, SourceError
from airflow_provider_lakecommit.iceberg.catalog import Tables
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.landing import LandingSet
from airflow_provider_lakecommit.operations.backfill.closing import close_lane
from airflow_provider_lakecommit.operations.backfill.opening import closed_lane
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions import delete_back as deleting
from airflow_provider_lakecommit.operations.decisions import migrate_preview as migrating
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_log, from_offsets
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.migrate import migrate_landing
from airflow_provider_lakecommit.operations.decisions.migrate_preview import migration_preview
from airflow_provider_lakecommit.operations.decisions.pause import resume, suspend
from airflow_provider_lakecommit.operations.decisions.requests import ResetHard
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Start, Way
from airflow_provider_lakecommit.stall.group_state import StallRules, State
from airflow_provider_lakecommit.stall.observe import observe
from airflow_provider_lakecommit.stall.observed_events import observed_record
from tests.fakes.broker import MemoryBroker
from tests.fakes.plugged import plugged_in
from tests.faults.test_attest import cut, remade
from tests.faults.test_failing_tables import refusing
from tests.faults.test_lanes import LaneWorld, lane
from tests.faults.test_replay import odd, replay
from tests.faults.test_routes import FIELDS, check, mixed
from tests.support.declared import changed_landing
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.steps import check_verified
from tests.support.world import SCHEMA, Killed, World, catalog_in, deaths, records

pytestmark = pytest.mark.faults

OPTIONS: dict[str, Any] = {"create": SCHEMA, "metadata_columns": True}
LATE: dict[str, Any] = {**OPTIONS, "window": {"start": "latest"}}
DECISION = Decision(command="test", actor="ana", host="here", at="2026-11-28T00:00:00+00:00", landing="rows")


def section(world: MemoryWorld, table: str = "shop.rows") -> LedgerSection:
    with world.session() as session:
        return read_ledger(session.tables.load(table).metadata).own("rows", LIVE)


def reset(world: MemoryWorld, start: Start, way: Way = PLAIN) -> None:
    with world.session() as session:
        ledger_init(session, start, way, agreed=init_preview(session, start, way), decision=DECISION)


def late(world: MemoryWorld) -> None:
    """A landing that began at offset 100 of 150."""
    world.broker.produce(TOPIC, records(0, 100), 0)
    world.settle()
    world.send(*records(100, 50))


# -- a run of the landing during `reset hard` -----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_run_lands_while_its_rows_are_deleted_is_not_landed_twice(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*records(0, 100))
        world.broker.produce(TOPIC, records(100, 10), 0)
        real = deleting.take_out

        def take_out(*args: Any, **options: Any) -> Any:
            if when == "before":
                world.settle()
            done = real(*args, **options)
            if when == "after":
                world.settle()
            return done

        with monkeypatch.context() as patch, world.session() as session:
            patch.setattr(deleting, "take_out", take_out)
            with pytest.raises(LedgerError, match=r"lakecommit pause SPEC.*LC7057"):
                delete_back(session, delete_preview(session, None), DECISION)
        world.settle()
        world.check(Counter(range(110)))
        check_verified(world)
        with world.session() as session:
            suspend(session, DECISION)
            delete_back(session, delete_preview(session, None), DECISION)
        world.check(Counter())
        check_verified(world)


def test_a_hard_reset_gives_up_no_more_than_was_previewed_where_the_landing_starts_over_at_the_end(
    tmp_path: Path,
) -> None:
    """Rows that are landed after the preview would be deleted, and not be read again."""
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        hard = ResetHard()
        with world.session() as session:
            agreed, lines = hard.propose(session)
        assert [line for line in lines if "GIVES UP" in line and f"{TOPIC}[0] [100, 150)" in line]
        world.send(*records(150, 10))
        with world.session() as session, pytest.raises(DecisionError, match=r"\[150, 160\).*LC8320"):
            hard.apply_agreed(session, agreed, DECISION)
        world.check(Counter(range(100, 160)))
        with world.session() as session:
            found = delete_preview(session, None)
            world.send(*records(160, 10))
            with pytest.raises(LedgerError, match=r"\[160, 170\).*LC7011"):
                delete_back(session, found, DECISION)
            delete_back(session, delete_preview(session, None), DECISION)
        world.send(*records(170, 10))
        world.check(Counter(range(170, 180)))
        check_verified(world)


# -- what closed backfills have landed ------------------------------------------------------------------------------


def test_rows_of_a_closed_backfill_that_a_user_deleted_are_read_again(tmp_path: Path) -> None:
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        lane(world, "0=0-100").finish()
        with world.session() as session:
            session.tables.load("shop.rows").delete("id >= 30")
            asserted = from_offsets(session, {(TOPIC, 0): 30}, ["shop.rows"])
            assert str(asserted.tables[0].again) == f"{TOPIC}[0] [30, 150)"
            assert not asserted.tables[0].never_read
            assert_tables(session, asserted, decision=DECISION)
        world.settle()
        world.check(Counter(range(150)))
        check_verified(world)


def test_an_assertion_waits_for_a_backfill_that_would_land_the_same(tmp_path: Path) -> None:
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        lane(world, "0=0-100", name="past").run()
        with world.session() as session:
            assert str(from_offsets(session, {(TOPIC, 0): 120}, ["shop.rows"]).tables[0].again).endswith("[120, 150)")
            with pytest.raises(LedgerError, match=r"--close past.*LC7058"):
                from_offsets(session, {(TOPIC, 0): 30}, ["shop.rows"])


def test_an_assertion_about_a_ledger_that_was_cut_does_not_wait_for_a_backfill(tmp_path: Path) -> None:
    """It could not be closed before."""
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        past = lane(world, "0=0-100", name="past")
        past.landing = past.landing.changed(window={"max_records": 50})
        past.run()
        with world.session() as session:
            session.tables.load("shop.rows").delete("id >= 30")
        cut(world)
        with world.session() as session:
            asserted = from_offsets(session, {(TOPIC, 0): 30}, ["shop.rows"])
            assert str(asserted.tables[0].again) == f"{TOPIC}[0] [30, 50) [100, 150)"
            assert_tables(session, asserted, decision=DECISION)
        world.settle()
        past.settle()
        world.check(Counter([*range(150), -1, -2]))


@pytest.mark.parametrize("how", ["hole", "replay", "late"])
def test_the_log_reports_what_backfills_landed(tmp_path: Path, how: str) -> None:
    with memory_world(tmp_path, **(LATE if how == "late" else OPTIONS)) as world:
        late(world)
        if how == "hole":
            world.broker.produce(TOPIC, records(150, 10), 0)
            reset(world, "latest", Way(fill="hole"))
            filling = {"kafka": world.kafka, "catalog": world.catalog, "request": lane_request(name="hole")}
            LaneWorld(landing=world.landing, **filling).finish()
        elif how == "replay":
            replay(world, "0=20-40").finish()
            world.broker.produce(TOPIC, records(150, 10), 0)
        else:
            lane(world, "0=0-100").finish()
            world.broker.produce(TOPIC, records(150, 10), 0)
        world.settle()
        remade(world)
        with world.session() as session:
            asserted = from_log(session)
            assert [(t.table, bool(t.again), bool(t.never_read)) for t in asserted.tables] == [
                ("shop.rows", False, False)
            ]
            assert_tables(session, asserted, decision=DECISION)
        world.send(*records(160, 10))
        world.check(Counter(range(170)))
        check_verified(world)


def test_a_copy_from_before_a_backfill_is_not_asserted_by_the_log(tmp_path: Path) -> None:
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        lane(world, "0=0-100").finish()
        with world.session() as session:
            session.tables.load("shop.rows").delete("id < 100")
        remade(world)
        with world.session() as session, pytest.raises(LedgerError, match=r"50 rows.*150 published.*LC7016"):
            from_log(session)


def test_a_table_that_joins_after_a_replay_begins_where_the_data_table_ends(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.landing = changed_landing(world.landing, dead_letter_table=None)
        world.send(*odd(0, 100))
        replay(world, "0=20-40").finish()
        world.landing = changed_landing(world.landing, dead_letter_table="shop.dead", unknown_fields="dead_letter")
        world.send(*odd(100, 5))
        world.check(Counter(range(100)))
        assert [offset for _, offset, _ in world.dead()] == [*range(100, 105)], "the others are rows"


def test_a_rollback_names_what_only_a_backfill_reads_again(tmp_path: Path) -> None:
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        with world.session() as session:
            before = session.tables.load("shop.rows").current_snapshot()
        lane(world, "0=0-100").finish()
        with world.session() as session:
            session.tables.load("shop.rows").manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        world.settle()
        assert any(f"shop.rows: {TOPIC}[0] [0, 100), which backfills had landed" in line for line in world.lines)
        lane(world, "0=0-100", name="once-more").finish()
        world.check(Counter(range(150)))
        check_verified(world)


def test_readings_that_a_rollback_took_away_are_of_no_later_generation(tmp_path: Path) -> None:
    """Although the clock says the same: a rollback and two decisions in one second, or a clock that was put back."""
    with memory_world(tmp_path, **OPTIONS) as world:
        now = world.now()
        world.now = lambda: now
        world.send(*records(0, 10))
        with world.session() as session:
            before = session.tables.load("shop.rows").current_snapshot()
        reset(world, {(TOPIC, 0): 10}, Way(again=True))
        world.send(*records(10, 10))
        undone = section(world).generation
        with world.session() as session:
            session.tables.load("shop.rows").manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        reset(world, {(TOPIC, 0): 20})
        assert section(world).generation > undone


@pytest.mark.parametrize("how", ["reset", "replay", "assert", "migrate"])
def test_a_reading_is_of_a_later_generation_than_those_of_all_tables(tmp_path: Path, how: str) -> None:
    """Reports have the greatest generation of a plan's tables, and a decision may reach these in different seconds."""
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*records(0, 10))
        seconds = count(1)
        world.now = lambda: datetime.now(UTC) + timedelta(seconds=next(seconds))
        reset(world, {(TOPIC, 0): 10}, Way(again=True))
        data, dead = section(world).generation, section(world, "shop.dead").generation
        assert data < dead
        world.now = lambda: datetime.fromtimestamp(data, UTC)
        if how == "reset":
            reset(world, {(TOPIC, 0): 10}, Way(again=True))
        elif how == "assert":
            with world.session() as session:
                assert_tables(session, from_offsets(session, {(TOPIC, 0): 5}, ["shop.rows"]), decision=DECISION)
        elif how == "migrate":
            with plugged_in(copy_of(world.broker)):
                migrate(world)
        else:
            again = replay(world, "0=0-10")
            again.now = world.now
            with again.session():
                pass
        with world.session() as session:
            found = read_ledger(session.tables.load("shop.rows").metadata).sections
        assert max(s.generation for s in found) > dead


# -- a log that lost its end behind an open backfill ----------------------------------------------------------------


def test_a_log_that_lost_its_end_is_read_again_where_an_open_backfill_was(tmp_path: Path) -> None:
    with memory_world(tmp_path, **LATE) as world:
        late(world)
        past = lane(world, "0=0-100", name="past")
        past.landing = past.landing.changed(window={"max_records": 50})
        past.run()
        world.broker.truncate(TOPIC, 0, 20)
        world.broker.produce(TOPIC, records(1000, 40), 0)
        with pytest.raises(SourceError, match=rf"--from {TOPIC}:0=20.*LC6016"):
            world.run()
        with pytest.raises(LedgerError, match=r"\[20, 100\).*--close past.*LC7058"):
            reset(world, {(TOPIC, 0): 20})
        with world.session() as session, closed_lane(session, "past") as own:
            close_lane(own, decision=DECISION)
        reset(world, {(TOPIC, 0): 20})
        world.settle()
        world.check(Counter([*range(50), *range(100, 150), *range(1000, 1040)]))
        check_verified(world)


# -- another cluster ------------------------------------------------------------------------------------------------


def copy_of(broker: MemoryBroker) -> MemoryBroker:
    other = MemoryBroker(cluster_id="other")
    other.create(TOPIC, 1)
    other.produce(TOPIC, [(r.key(), r.value()) for r in broker.topics[TOPIC].partitions[0].records], 0)
    return other


def migrate(world: MemoryWorld, start: Start = "same") -> str:
    with world.session() as session:
        found = migration_preview(session, start=start)
        migrate_landing(session, found, decision=DECISION)
        return "\n".join(found.lines())


def test_a_migration_continues_behind_what_a_replay_landed_on_both_clusters(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*records(0, 100))
        replay(world, "0=20-40").finish()
        other = copy_of(world.broker)
        with plugged_in(other):
            assert "at 100 of [0, 100), landed to 100 on the old cluster" in migrate(world)
            other.produce(TOPIC, records(100, 50), 0)
            world.settle()
            replay(world, "0=110-130").finish()
        world.broker.produce(TOPIC, records(100, 50), 0)
        migrate(world, {(TOPIC, 0): 150})
        with plugged_in(other), pytest.raises(LedgerError, match="LC7034"):
            migrate(world, {(TOPIC, 0): 120})
        world.send(*records(150, 10))
        world.check(Counter(range(160)))
        check_verified(world)


@pytest.mark.parametrize("broken", ["shop.rows", "shop.refunds", "shop.dead"])
def test_after_a_migration_each_table_continues_where_it_was(tmp_path: Path, broken: str) -> None:
    with memory_world(tmp_path, create=SCHEMA, **FIELDS) as world:
        world.send(*mixed(0, 40))
        world.broker.produce(TOPIC, mixed(40, 40), 0)
        with refusing(broken), pytest.raises(LakecommitError, match="LC3041"):
            world.run()
        with plugged_in(copy_of(world.broker)):
            assert "landed to 40" in migrate(world)
            world.settle()
        check(world, 0, 80)
        check_verified(world)


def test_a_table_that_rarely_has_rows_does_not_stop_a_migration_to_a_younger_copy(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        for first in range(0, 40, 10):
            world.send(*records(first, 10))
        other = copy_of(world.broker)
        other.remove_before(TOPIC, 0, 30)
        with plugged_in(other):
            assert f"shop.dead: {TOPIC}[0]: at 30 of [30, 40), landed to 0 on the old cluster" in migrate(world)
            other.produce(TOPIC, records(40, 10), 0)
            world.settle()
        world.check(Counter(range(50)))
        check_verified(world)


@dataclass(frozen=True, kw_only=True)
class Log:
    """A partition as a migration compares it: all of it is of one time."""

    kafka: Mapping[str, MemoryBroker]
    topics: object
    partition: SourcePartition
    mark: Watermark

    def records(self, start: int, end: int) -> list[Message]:
        found = self.kafka["broker"].log(self.partition).between(start, end)
        return [Message(r.key(), r.value(), r.offset()) for r in found]

    def first_since(self, _: int) -> int:
        return self.mark.start


class Message(NamedTuple):
    """A record without its time, which a copy in memory does not keep."""

    of_key: bytes | None
    of_value: bytes | None
    at: int

    def key(self) -> bytes | None:
        return self.of_key

    def value(self) -> bytes | None:
        return self.of_value

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, 0


@pytest.mark.parametrize("broken", ["shop.rows", "shop.refunds", "shop.dead"])
def test_each_table_continues_at_the_copy_of_its_own_next_record(
    tmp_path: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with memory_world(tmp_path, create=SCHEMA, **FIELDS) as world:
        world.send(*mixed(0, 40))
        world.broker.produce(TOPIC, mixed(40, 40), 0)
        with refusing(broken), pytest.raises(LakecommitError, match="LC3041"):
            world.run()
        other = MemoryBroker(cluster_id="other")
        other.create(TOPIC, 1)
        other.produce(TOPIC, mixed(3, 77), 0)
        monkeypatch.setattr(migrating, "SourceTopics", lambda kafka, topics: kafka["broker"].source(topics))
        monkeypatch.setattr(migrating, "PartitionLog", Log)
        world.kafka = {**world.kafka, "broker": other}
        with plugged_in(other):
            with world.session() as session:
                found = migration_preview(session, old={"broker": world.broker})
                migrate_landing(session, found, decision=DECISION)
            assert (
                sum("landed to 40 on the old cluster; exactly the next record" in line for line in found.lines()) == 1
            )
            world.settle()
        check(world, 0, 80)


def test_a_migration_to_stated_offsets_names_the_tables_that_have_landed_less(tmp_path: Path) -> None:
    with memory_world(tmp_path, create=SCHEMA, **FIELDS) as world:
        world.send(*mixed(0, 40))
        world.broker.produce(TOPIC, mixed(40, 40), 0)
        with refusing("shop.refunds"), pytest.raises(LakecommitError, match="LC3041"):
            world.run()
        with plugged_in(copy_of(world.broker)), world.session() as session:
            found = migration_preview(session, start="latest")
            named = f"shop.refunds: {TOPIC}[0]: at 80 of [0, 80), landed to 40 on the old cluster"
            assert any(named in line for line in found.lines())
            assert json.loads(json.dumps(found.to_dict()))["apart"].keys() == {"shop.refunds"}


def test_a_migration_that_was_killed_continues_where_its_first_table_began(tmp_path: Path) -> None:
    with memory_world(tmp_path, create=SCHEMA, **FIELDS) as world:
        world.send(*mixed(0, 40))
        other = copy_of(world.broker)
        with plugged_in(other):
            with deaths(1, "after"), pytest.raises(Killed):
                migrate(world, "latest")
            other.produce(TOPIC, mixed(40, 40), 0)
            migrate(world, "latest")
            world.settle()
        check(world, 0, 80)


def test_a_pause_stays_when_a_landing_returns_to_a_cluster(tmp_path: Path) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*records(0, 10))
        with plugged_in(copy_of(world.broker)):
            migrate(world)
            with world.session() as session:
                suspend(session, DECISION)
        migrate(world, "latest")
        assert section(world).suspended


@pytest.mark.parametrize(("ended", "resets"), [(False, False), (True, False), (False, True)])
def test_a_pause_and_its_end_stay_when_the_table_is_rolled_back(tmp_path: Path, ended: bool, resets: bool) -> None:
    with memory_world(tmp_path, **OPTIONS) as world:
        world.send(*records(0, 10))
        with world.session() as session:
            if ended:
                suspend(session, DECISION)
            before = session.tables.load("shop.rows").current_snapshot()
            (resume if ended else suspend)(session, DECISION)
            session.tables.load("shop.rows").manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
        reset(world, "earliest") if resets else world.broker.produce(TOPIC, records(10, 10), 0)
        assert bool(world.open("after").slices) is ended
        assert bool(section(world).suspended) is not ended


# -- what an observer of the control topic knows of a range that a decision passed -----------------------------------


def blocked(world: MemoryWorld) -> tuple[Coverage, ...]:
    """Return the ranges that an observer of the control topic calls blocked."""
    state, rules = State(), StallRules(landing=True)
    with world.session() as session:
        for r in session.control.read_all():
            if found := observed_record(r.value, key=r.key, headers=r.headers, at=r.timestamp.timestamp()):
                state = observe(state, found[1], rules)
    return tuple(coverage for coverage, _, _ in state.blocked)


@pytest.mark.parametrize("anew", [False, True])
def test_a_blocked_range_that_a_decision_passed_is_no_alarm_any_more(tmp_path: Path, anew: bool) -> None:
    with memory_world(tmp_path, partitions=2, dead_letter_max_records=0, **OPTIONS) as world:
        world.send(*records(0, 10))
        world.broker.produce(TOPIC, [("1", "no JSON")], 1)
        world.broker.produce(TOPIC, [("1", "no JSON")], 0)
        world.settle()
        assert {p.partition for c in blocked(world) for p in c.parts} == {0, 1}
        if anew:
            world.broker.create(TOPIC, 2)
            world.broker.produce(TOPIC, records(10, 1), 1)
            reset(world, "earliest")
        else:
            reset(world, {(TOPIC, 0): 11})
        world.send(*records(11, 5))
        world.check(Counter([*range(10), *([10] if anew else []), *range(11, 16)]))
        assert {p.partition for c in blocked(world) for p in c.parts} == (set() if anew else {1})


# -- a window with too many rejects that the source has no more -------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_a_window_over_its_budget_is_published_if_the_source_has_no_more_of_it(tmp_path: Path, there: bool) -> None:
    options, bad = {**OPTIONS, "dead_letter_max_ratio": 0.2, "slice_records": 10}, [("1", "no JSON")]
    with memory_world(tmp_path, **options) as world:
        # The writers read two slices that are over the ratio only together.
        world.broker.produce(TOPIC, [*bad * 6, *records(0, 4), *bad * 6, *records(4, 24)], 0)
        opened = world.open("reported before an outage of the catalog")
        world.write(opened)
        if not there:
            world.broker.remove_before(TOPIC, 0, 40)
        closed = world.close("reported before an outage of the catalog", opened)
        assert bool(closed.blocked) is there
        world.check(Counter(() if there else range(28)))
        assert len(world.dead()) == (0 if there else 12)


# -- a landing that left its set ------------------------------------------------------------------------------------

SHOP: dict[str, Any] = {
    "name": "shop",
    "topics_pattern": r"shop\..*",
    "table": "lake.{topic}",
    "missing_table": "create",
    "defaults": {
        "create": SCHEMA,
        "window": {"slice_records": 10},
        "maintain": {"compact": False},
        "connections": {"control_topic": "control"},
    },
}


def test_what_waits_for_records_of_a_deleted_topic_is_published_by_a_decision(tmp_path: Path) -> None:
    declared, broker, catalog = LandingSet.from_dict(SHOP), MemoryBroker(), catalog_in(tmp_path)
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    broker.create("shop.refunds", 1)
    broker.create("shop.orders", 1)
    broker.produce("shop.orders", records(0, 30), 0)
    tables = Tables(catalog)

    def connected() -> SetConnections:
        return SetConnections(declared, found_landings(declared, kafka), kafka, tables, deployment="test")

    def run(number: int) -> RunIdentity:
        return RunIdentity(deployment="test", dag_id="test", run_id=f"run-{number}")

    with plugged_in(broker):
        orders = landing_for(declared, "shop.orders")
        with connected() as connections:
            with connections.session(orders, print) as session:
                opened = open_cycle(session, run(0))
            # The first of three slices is not done.
            World(landing=orders, kafka=kafka, catalog=catalog).write(opened, bool)
        del broker.topics["shop.orders"]
        with connected() as connections:
            (former,) = landings_to_publish(former_landings(declared, connections, print)[0])
            with connections.session(former, print) as session:
                closed = close_cycle(session, run(1), start_former(session, run(1), lambda _: True).ticket)
                assert closed.waiting
                ((found,), _) = former_landings(declared, connections, print)
                assert f"`lakecommit reset offsets SPEC --landing {former.name} --from earliest`" in str(found)
                shown = init_preview(session, "earliest")
                assert str(shown.tables[0].given_up) == "shop.orders[0] [0, 10)"
                assert str(shown.tables[0].published) == "shop.orders[0] [10, 30)"
                ledger_init(session, "earliest", agreed=shown, decision=DECISION)
            assert not landings_to_publish(former_landings(declared, connections, print)[0])
        rows = tables.load(former.table).scan().to_arrow().to_pylist()
    assert sorted(r["id"] for r in rows) == [*range(10, 30)]
    tables.close()
