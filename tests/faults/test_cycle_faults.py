# SPDX-License-Identifier: Apache-2.0
"""What may go wrong around a cycle: races, rollback, retention, transactions, lost files, a catalog that is away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.types import StringType

from airflow_provider_lakecommit.core.accounting import total_of
from airflow_provider_lakecommit.cycle.plan.open import preview
from airflow_provider_lakecommit.exceptions import CatalogError, LedgerError, SourceError, TableError
from airflow_provider_lakecommit.iceberg.ledger.ledger import landing_snapshots
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from airflow_provider_lakecommit.status.status import read_status
from tests.fixtures.kafka import Sender, add_partitions
from tests.support.steps import check_verified
from tests.support.world import World, race, records

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]


def _table(world: World) -> Table:
    with world.session() as session:
        return session.tables.load(world.landing.table)


@pytest.mark.heavy
def test_two_runs_that_plan_at_once_share_what_is_missing(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 100))
    first = world.open("a", release=False)
    second = world.open("b", release=False)
    assert second.plan.slices == ()
    assert "claim" in str(second.plan.reason)
    world.write(first)
    world.close("b", second)
    world.close("a", first)
    world.check(Counter(range(100)))


def test_two_runs_and_two_committers_at_once_double_nothing(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 200))
    for turn in range(3):
        race(world, 2, name=f"turn-{turn}")
        produce(world.landing.topics, records(200 + 50 * turn, 50))
    world.settle()
    world.check(Counter(range(350)))


@pytest.mark.heavy
def test_the_older_slice_that_failed_is_done_again_alone_and_the_newer_ones_wait(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 120))
    opened = world.open("a")
    world.write(opened, only=lambda index: index != 0)
    closed = world.close("a", opened)
    assert closed.published == ()
    assert len(closed.waiting) == 2
    assert len(closed.missing) == 1
    again = world.open("b")
    assert [len(s) for s in again.slices] == [40]
    world.write(again)
    assert world.close("b", again).rows == 120
    world.check(Counter(range(120)))


def test_a_rollback_voids_what_was_pending_and_the_range_is_read_again(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 60))
    world.run()
    before = _table(world).current_snapshot()
    produce(world.landing.topics, records(60, 60))
    world.run()
    produce(world.landing.topics, records(120, 20))
    pending = world.open("pending")
    world.write(pending)
    table = _table(world)
    table.manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    closed = world.close("pending", pending)
    assert closed.published == ()
    world.settle()
    world.check(Counter(range(140)))


def test_offsets_that_retention_removed_are_an_error_until_a_user_decides(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, records(0, 50))
    world.run()
    produce(topic, records(50, 50))
    admin.delete_records([TopicPartition(topic, 0, 80)])[TopicPartition(topic, 0, 80)].result(30)
    with pytest.raises(SourceError, match=r"\[50, 80\).*LC1303"):
        world.open("a")
    with world.session() as session:
        with pytest.raises(SourceError, match=r"\[0\].*100,.*101.*LC7045"):
            ledger_init(session, {(topic, 0): 101})
        ledger_init(session, "earliest")
    world.settle()
    world.check(Counter([*range(50), *range(80, 100)]))


def test_open_and_aborted_transactions_are_neither_landed_nor_waited_for(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    topic = world.landing.topics
    produce(topic, records(0, 10), transactional=True)
    produce(topic, records(100, 10), transactional=True, outcome="abort")
    produce(topic, records(10, 10), transactional=True)
    produce(topic, records(200, 10), transactional=True, outcome="open")
    first = world.run()
    assert first.rows == 20
    assert first.published[0].counts.gaps == 13  # ten aborted records and three markers
    idle = world.run()
    assert idle.published == ()
    assert "open transaction" in str(idle.reason)
    world.check(Counter(range(20)))


@pytest.mark.heavy
def test_files_of_a_pending_slice_that_a_user_removed_are_read_again(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1)
    produce(world.landing.topics, records(0, 80))
    opened = world.open("a")
    world.write(opened)
    warehouse = Path(world.catalog["warehouse"].removeprefix("file://"))
    next(iter(sorted(warehouse.rglob("*.parquet")))).unlink()
    world.now = lambda: datetime.now(UTC) + timedelta(days=2)
    closed = world.close("a", opened)
    assert len(closed.voided) == 1
    assert "removed" in closed.voided[0]
    world.settle()
    world.check(Counter(range(80)))


def _away(*_: Any, **__: Any) -> Any:
    raise ConnectionError("the catalog is down")


def test_with_the_catalog_away_at_plan_a_cycle_opens_empty_and_reports_it(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 30))
    world.run()
    produce(world.landing.topics, records(30, 30))
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", _away)
        opened = world.open("dark")
        assert opened.slices == ()
        assert "catalog away" in str(opened.plan.reason)
        with pytest.raises(CatalogError):
            world.close("dark", opened)
    world.settle()
    world.check(Counter(range(60)))


def test_with_the_catalog_away_while_writing_the_slices_are_kept(
    make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 90))
    opened = world.open("a")
    with monkeypatch.context() as patch:
        patch.setattr(SqlCatalog, "load_table", _away)
        assert {r.status for r in world.write(opened)} == {"done"}
        with pytest.raises(CatalogError):
            world.close("a", opened)
    again = world.open("b")
    assert again.slices == ()
    assert world.close("b", again).rows == 90
    world.check(Counter(range(90)))


@pytest.mark.heavy
def test_a_dropped_and_remade_table_is_no_first_run_while_the_log_remembers(make_world: Make, produce: Produce) -> None:
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 30))
    world.run()
    with world.session() as session:
        session.tables.catalog.drop_table(world.landing.table)
    with pytest.raises(LedgerError, match="LC6015"):
        world.open("a")
    with world.session() as session:
        ledger_init(session, "earliest")
    world.settle()
    world.check(Counter(range(30)))


def test_a_range_over_its_budget_blocks_its_partition_only_until_it_is_unblocked(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(partitions=2, dead_letter_max_records=2)
    topic = world.landing.topics
    produce(topic, [("x", "no json")] * 5, partition=0)
    produce(topic, records(0, 10), partition=0)
    produce(topic, records(10, 10), partition=1)
    world.run()
    world.settle()
    blocked = world.run()
    assert len(blocked.blocked) == 1
    assert "dead_letters.max_records" in blocked.blocked[0]
    world.check(Counter(range(10, 20)))
    with world.session() as session:
        unblock(session, skip=True)
    world.settle()
    produce(topic, records(20, 5), partition=0)
    world.settle()
    world.check(Counter(range(10, 25)))


@pytest.mark.heavy
@pytest.mark.parametrize("dead", [None, "shop.dead"])
def test_only_the_bad_records_of_a_blocked_range_are_given_up(
    make_world: Make, produce: Produce, dead: str | None
) -> None:
    world = make_world(partitions=1, dead_letter_table=dead, dead_letter_max_records=1)
    topic = world.landing.topics
    produce(topic, [*records(0, 10), ("x", "no json"), ("x", "nor this"), *records(10, 10)])
    assert len(world.run().blocked) == 1
    with world.session() as session:
        done = unblock(session, skip=True, only_bad=True)
    assert done["read_again"] == {f"{topic}[0]": [[0, 22]]}
    world.settle()
    world.check(Counter(range(20)))
    with world.session() as session:
        record = next(landing_snapshots(session.tables.load(world.landing.table).metadata))
    newest = total_of(record.accounting.values())
    assert (newest.landed, newest.skipped, newest.rejected) == ((20, 2, 0) if dead is None else (20, 0, 2))
    assert dead is None or len(world.rows(dead)) == 2
    check_verified(world)


def test_a_preview_before_the_first_run_plans_without_making_a_table(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 50))
    with world.session() as session:
        previewed = preview(session)
        assert session.tables.find(world.landing.table) is None
    assert sum(len(s) for s in previewed.slices) == 50
    assert sum(" for shop.rows" in line for line in previewed.explain) == 2


@pytest.mark.heavy
def test_two_landings_of_one_topic_into_one_table_are_refused(make_world: Make, produce: Produce) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 10))
    world.run()
    other = World(landing=replace(world.landing, name="other"), kafka=world.kafka, catalog=world.catalog)
    with pytest.raises(TableError, match="LC3003"):
        other.open("a")


@pytest.mark.heavy
def test_the_claims_of_a_rolled_back_epoch_block_nothing(make_world: Make, produce: Produce) -> None:
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 60))
    world.run()
    before = _table(world).current_snapshot()
    produce(world.landing.topics, records(60, 60))
    world.run()
    produce(world.landing.topics, records(120, 20))
    world.open("dies")
    _table(world).manage_snapshots().rollback_to_snapshot(before.snapshot_id).commit()
    opened = world.open("next", release=False)
    assert sum(len(s) for s in opened.slices) == 80
    world.write(opened)
    world.close("next", opened)
    world.check(Counter(range(140)))


@pytest.mark.heavy
def test_offsets_that_a_user_gave_up_are_in_the_ledger_after_the_next_run(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_max_records=0)
    produce(world.landing.topics, ["no json"] * 3)
    world.run()
    with world.session() as session:
        unblock(session, skip=True)
    world.run()
    with world.session() as session:
        assert read_status(session).lag == 0
        records_of = landing_snapshots(session.tables.load(world.landing.table).metadata)
        assert total_of(next(records_of).accounting.values()).skipped == 3


@pytest.mark.heavy
def test_a_partition_spec_that_changes_between_write_and_commit_voids_and_the_range_is_read_again(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 80))
    opened = world.open("a")
    world.write(opened)
    with _table(world).update_spec() as spec:
        spec.add_identity("name")
    closed = world.close("a", opened)
    assert closed.published == ()
    assert len(closed.voided) == len(opened.slices)
    world.settle()
    world.check(Counter(range(80)))


@pytest.mark.heavy
def test_a_column_added_between_write_and_commit_is_no_reason_to_read_again(make_world: Make, produce: Produce) -> None:
    world = make_world(dead_letter_table=None)
    produce(world.landing.topics, records(0, 80))
    opened = world.open("a")
    world.write(opened)
    with _table(world).update_schema() as schema:
        schema.add_column("added", StringType())
    closed = world.close("a", opened)
    assert (closed.rows, closed.voided) == (80, ())
    assert {row["added"] for row in world.rows()} == {None}


@pytest.mark.heavy
def test_a_topic_that_is_added_to_a_landing_begins_at_its_own_start(
    make_world: Make, produce: Produce, make_topic: Callable[..., str]
) -> None:
    world = make_world()
    produce(world.landing.topics, records(0, 40))
    world.run()
    added = make_topic(3)
    produce(added, records(40, 60))
    world.landing = replace(world.landing, topics=(world.landing.topics, added))
    produce(world.landing.topics[0], records(100, 20))
    world.settle()
    world.check(Counter(range(120)))
    assert world.run().valid_through is not None


def test_partitions_that_are_added_to_a_topic_are_landed_from_their_first_record(
    make_world: Make, produce: Produce, admin: AdminClient
) -> None:
    world = make_world(partitions=1, start="latest")
    topic = world.landing.topics
    produce(topic, records(0, 10))
    world.run()
    add_partitions(admin, topic, 3)
    newcomer = Sender(world.kafka["bootstrap.servers"])  # one that has not seen the topic before
    newcomer.produce(topic, records(10, 10), partition=2)
    newcomer.produce(topic, records(20, 10), partition=0)
    world.settle()
    world.check(Counter(range(10, 30)))


@pytest.mark.heavy
def test_a_run_whose_slices_are_behind_voided_ones_reports_that_they_wait(make_world: Make, produce: Produce) -> None:
    world = make_world(partitions=1, dead_letter_table=None)
    produce(world.landing.topics, records(0, 40))
    world.write(world.open("dies"))
    with _table(world).update_spec() as spec:
        spec.add_identity("name")
    produce(world.landing.topics, records(40, 40))
    closed = world.run()
    assert (closed.published, len(closed.voided), len(closed.waiting)) == ((), 1, 1)
    assert closed.valid_through is None
    world.settle()
    world.check(Counter(range(80)))
