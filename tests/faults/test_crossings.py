# SPDX-License-Identifier: Apache-2.0
"""Features that meet: replay, deletion and dead letters on topics made anew, logs that lost their end, expired history,
tables of other writers and other clusters. Nothing is lost or doubled, and each refusal names its ranges.

Each sequence was once a loss or a doubling with `verify` at exit 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.offsets import Coverage
from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.exceptions import LakecommitError, LedgerError, SourceError
from airflow_provider_lakecommit.operations.backfill.preview import lane_preview
from airflow_provider_lakecommit.operations.dead_letters.dead_letter import Selection
from airflow_provider_lakecommit.operations.dead_letters.open_set import State
from airflow_provider_lakecommit.operations.dead_letters.replay import replay as replay_letters
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets, from_snapshot
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.init_preview import init_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.starts import PLAIN, Way
from airflow_provider_lakecommit.spark import report
from airflow_provider_lakecommit.status.history import read_history
from airflow_provider_lakecommit.status.record_rows import check_rows
from airflow_provider_lakecommit.status.table_history import Severity
from dev.servers.kafka import Broker
from tests.faults.test_lanes import lane
from tests.faults.test_replay import odd, replay
from tests.faults.test_truncation import Log
from tests.fixtures.kafka import create_topic, delete_topic, unique
from tests.support import messes
from tests.support.declared import changed_landing
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
DECISION = Decision(command="test", actor="ann", host="here", at="2026-01-01T00:00:00+00:00", landing="rows")


@pytest.fixture
def anew(bootstrap: str) -> Callable[[World, int], None]:
    """Delete the topic of a world and make it again."""

    def act(world: World, partitions: int) -> None:
        admin, topic = AdminClient({"bootstrap.servers": bootstrap}), str(world.landing.topics)
        delete_topic(admin, topic)
        create_topic(admin, topic, partitions)

    return act


def go_on(world: World, start: Any, way: Way = PLAIN) -> None:
    with world.session() as session:
        ledger_init(session, start, way, agreed=init_preview(session, start, way), decision=DECISION)


def expire(world: World) -> None:
    """Keep the newest snapshot of each table only."""
    messes.expire(world)


def check(world: World, expected: Counter[int]) -> None:
    """The rows, and that both kinds of `verify` agree."""
    world.check(expected)
    check_verified(world)
    with world.session() as session:
        tables = session.tables
        histories = [read_history(tables, t, "main", progress=lambda _: None) for t in world.landing.tables]
        found = check_rows(world.landing, histories, tables, lambda _: None)
    assert [str(f) for f in found if f.level is Severity.WRONG] == []


@pytest.fixture
def landed(make_world: Make, produce: Produce) -> World:
    world = make_world(1)
    produce(str(world.landing.topics), records(0, 100), partition=0)
    world.settle()
    return world


@pytest.mark.heavy
def test_tables_that_landings_make_report_which_record_each_row_is_of(landed: World) -> None:
    rows = landed.rows()
    assert {(r["kafka_topic"], r["kafka_partition"]) for r in rows} == {(str(landed.landing.topics), 0)}
    assert [r["kafka_offset"] for r in sorted(rows, key=lambda r: r["id"])] == list(range(100))
    assert len({r["kafka_generation"] for r in rows}) == 1


@pytest.mark.heavy
@pytest.mark.parametrize("span", ["0-100", "20-60", "90-140"])
@pytest.mark.parametrize("expired", [True, False])
def test_a_replay_after_a_topic_was_made_anew_leaves_the_rows_of_the_former_topic(
    landed: World, produce: Produce, anew: Callable[[World, int], None], span: str, expired: bool
) -> None:
    anew(landed, 1)
    produce(str(landed.landing.topics), records(1000, 140), partition=0)
    with pytest.raises(SourceError):
        landed.run()
    go_on(landed, "earliest")
    landed.settle()
    if expired:
        expire(landed)
    replay(landed, f"0={span}").finish()
    check(landed, Counter([*range(100), *range(1000, 1140)]))


@pytest.mark.heavy
def test_a_reset_that_deletes_after_a_topic_was_made_anew_takes_its_own_rows_only(
    landed: World, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    anew(landed, 1)
    topic = str(landed.landing.topics)
    produce(topic, records(1000, 50), partition=0)
    go_on(landed, "earliest")
    landed.settle()
    expire(landed)
    with landed.session() as session:
        found = delete_preview(session, {(topic, 0): 20})
        assert sum(t.replaced.rows for t in found.tables) == 30
        delete_back(session, found, DECISION)
    landed.settle()
    check(landed, Counter([*range(100), *range(1000, 1050)]))


@pytest.mark.heavy
def test_a_hard_reset_counts_and_takes_what_the_former_topic_left(
    landed: World, produce: Produce, anew: Callable[[World, int], None]
) -> None:
    anew(landed, 1)
    produce(str(landed.landing.topics), records(1000, 50), partition=0)
    go_on(landed, "earliest")
    landed.settle()
    with landed.session() as session:
        found = delete_preview(session, None)
        assert sum(t.replaced.rows for t in found.tables) == 150
        assert len(found.removed) == 100
        delete_back(session, found, DECISION)
    landed.check(Counter())
    landed.settle()
    check(landed, Counter(range(1000, 1050)))


@pytest.mark.heavy
def test_a_hard_reset_begins_where_the_landing_states(landed: World, produce: Produce) -> None:
    """Also where the live stream began behind a range that a stream landed."""
    world = replace(
        landed,
        landing=changed_landing(
            landed.landing, name="second", table="shop.second", dead_letter_table="shop.second_dead", start="latest"
        ),
    )
    world.run()
    produce(str(world.landing.topics), records(100, 20), partition=0)
    world.settle()
    lane(world, "0=0-60").finish()
    world.landing = world.landing.changed(window={"start": "earliest"})
    with world.session() as session:
        found = delete_preview(session, None)
        assert sum(t.replaced.rows for t in found.tables) == 80
        delete_back(session, found, DECISION)
    world.settle()
    check(world, Counter(range(120)))


@pytest.mark.heavy
def test_a_replay_over_the_end_that_a_log_lost_leaves_the_rows_that_only_the_table_has(
    fragile: tuple[Log, World],
) -> None:
    log, world = fragile
    log.grow(0, 30)
    world.settle()
    log.shrink(20)
    log.grow(200, 30)
    with pytest.raises(SourceError):
        world.run()
    go_on(world, {(log.topic, 0): 20})
    world.settle()
    expire(world)
    replay(world, "0=10-40").finish()
    check(world, Counter([*range(30), *range(200, 230)]))


@pytest.mark.heavy
def test_ranges_that_were_landed_before_rows_reported_it_are_refused_by_name(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(1, metadata_columns=False)
    topic = str(world.landing.topics)
    produce(topic, records(0, 50), partition=0)
    world.settle()
    with world.session() as session, session.tables.load(world.landing.table).update_schema() as update:
        from pyiceberg.types import IntegerType, LongType, StringType

        for name, kind in (
            *(("kafka_topic", StringType()), ("kafka_partition", IntegerType())),
            *(("kafka_generation", LongType()), ("kafka_offset", LongType())),
        ):
            update.add_column(name, kind)
    world.landing = changed_landing(world.landing, metadata_columns=True)
    produce(topic, records(50, 50), partition=0)
    world.settle()
    expire(world)
    refused(lambda: replay(world, "0=20-80").finish(), "[0] [20, 50)")
    with world.session() as session:
        refused(lambda: delete_preview(session, {(topic, 0): 40}), "[0] [40, 50)")
        refused(lambda: delete_preview(session, None), "[0] [0, 50)")
    replay(world, "0=60-80").finish()
    check(world, Counter(range(100)))


def refused(act: Callable[[], object], ranges: str) -> None:
    with pytest.raises(LedgerError) as error:
        act()
    assert ranges in str(error.value)


@pytest.mark.heavy
def test_columns_that_records_fill_are_no_marks(make_world: Make, produce: Produce) -> None:
    """Records of a copy carry the coordinates of their originals."""
    names = {"kafka_topic": "string", "kafka_partition": "int", "kafka_generation": "long", "kafka_offset": "long"}
    columns = [{"name": "id", "type": "long"}, *({"name": n, "type": t} for n, t in names.items())]
    world = make_world(1, create={"schema": columns})
    topic = str(world.landing.topics)
    marked = f'"kafka_topic": "{topic}", "kafka_partition": 0, "kafka_generation": 1'
    produce(topic, [(str(n), f'{{"id": {n}, {marked}, "kafka_offset": {(n + 40) % 100}}}') for n in range(100)])
    world.settle()
    assert {r["id"]: r["kafka_offset"] for r in world.rows()} == {n: (n + 40) % 100 for n in range(100)}
    refused(lambda: replay(world, "0=0-50").finish(), "[0] [0, 50)")
    world.check(Counter(range(100)))


@pytest.mark.heavy
def test_a_table_of_others_with_such_columns_needs_a_declaration(make_world: Make, produce: Produce) -> None:
    world = make_world(1)
    columns = [*world.landing.create["schema"], {"name": "kafka_offset", "type": "long"}]
    made = changed_landing(world.landing, name="other", create={"schema": columns}, metadata_columns=False)
    with replace(world, landing=made).session() as session:
        from airflow_provider_lakecommit.cycle.session.tables import table_of

        table_of(session, world.landing.table)
    produce(str(world.landing.topics), records(0, 10), partition=0)
    with pytest.raises(LakecommitError, match=r"columns\.metadata.*LC6227"):
        world.run()
    world.landing = changed_landing(world.landing, metadata_columns=False)
    world.settle()
    world.check(Counter(range(10)))


@pytest.mark.heavy
def test_what_an_operator_asserts_is_covered_and_not_replaced(landed: World, produce: Produce) -> None:
    topic = str(landed.landing.topics)
    produce(topic, records(100, 50), partition=0)
    with landed.session() as session:
        asserted = from_offsets(session, {(topic, 0): 150}, [landed.landing.table])
        assert_tables(session, asserted, decision=DECISION)
        assert lane_preview(session, lane(landed, "0=100-150").request).done
    refused(lambda: replay(landed, "0=90-150").finish(), "[0] [100, 150)")
    replay(landed, "0=50-100").finish()
    landed.check(Counter(range(100)))


@pytest.mark.heavy
def test_a_snapshot_off_the_branch_does_not_report_what_the_table_holds(landed: World, produce: Produce) -> None:
    produce(str(landed.landing.topics), records(100, 50), partition=0)
    with landed.session() as session:
        table = session.tables.load(landed.landing.table)
        before = table.current_snapshot().snapshot_id
    landed.settle()
    with landed.session() as session:
        table = session.tables.load(landed.landing.table)
        newest = table.current_snapshot().snapshot_id
        table.manage_snapshots().rollback_to_snapshot(before).commit()
        refused(lambda: from_snapshot(session, newest), "LC7003")
    landed.settle()
    check(landed, Counter(range(150)))


@pytest.mark.heavy
def test_dead_letters_of_a_former_table_are_closed_by_a_replay_of_their_range(
    make_world: Make, produce: Produce
) -> None:
    world = make_world(1, unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    topic = str(world.landing.topics)
    produce(topic, [*records(0, 20), *odd(20, 20), *records(40, 20)], partition=0)
    world.settle()
    world.landing = replace(world.landing, dead_letter_table="shop.newer")
    world.settle()
    world.landing = changed_landing(world.landing, unknown_fields="ignore")
    replay(world, "0=0-60").finish()
    expire(world)
    with world.session() as session:
        done = replay_letters(session, Selection(), table="shop.dead", decision=DECISION)
    assert (done.dead_letters, done.others[State.REPLAYED.value]) == (0, 20)
    check(world, Counter(range(60)))


@pytest.mark.heavy
def test_replayed_dead_letters_are_counted_when_their_range_is_replayed(make_world: Make, produce: Produce) -> None:
    world = make_world(1, unknown_fields="dead_letter", dead_letter_max_ratio=1.0)
    produce(str(world.landing.topics), [*records(0, 20), *odd(20, 20), *records(40, 20)], partition=0)
    world.settle()
    world.landing = changed_landing(world.landing, unknown_fields="ignore")
    with world.session() as session:
        assert replay_letters(session, Selection(), decision=DECISION).dead_letters == 20
    expire(world)
    check(world, Counter(range(60)))
    replay(world, "0=10-50").finish()
    check(world, Counter(range(60)))


def test_rows_that_another_writer_doubles_are_refused(landed: World) -> None:
    expire(landed)
    with landed.session() as session:
        table = session.tables.load(landed.landing.table)
        table.append(table.scan(row_filter="id < 5").to_arrow())
    with pytest.raises(LedgerError, match=r"105.*LC7229"):
        replay(landed, "0=0-100").finish()
    replay(landed, "0=5-100").finish()
    landed.check(Counter([*range(100), *range(5)]))


@pytest.mark.heavy
def test_a_range_read_again_next_to_its_rows_is_replaced_by_itself(landed: World) -> None:
    """`--again` doubles rows by an operator's word; a later replay replaces the newer ones alone."""
    topic = str(landed.landing.topics)
    go_on(landed, {(topic, 0): 60}, Way(again=True))
    landed.settle()
    check(landed, Counter([*range(100), *range(60, 100)]))
    expire(landed)
    replay(landed, "0=50-100").finish()
    check(landed, Counter([*range(100), *range(60, 100)]))
    with landed.session() as session:
        found = delete_preview(session, None)
        assert sum(t.replaced.rows for t in found.tables) == 140
        delete_back(session, found, DECISION)
    landed.settle()
    check(landed, Counter(range(100)))


@pytest.mark.heavy
def test_parts_of_ranges_with_filtered_records_are_replaced_after_expiry(make_world: Make, produce: Produce) -> None:
    """Of the rest of such a range the rows are counted, so that fewer and more are noticed all the same."""
    world = make_world(1, slice_records=50)
    topic = str(world.landing.topics)
    produce(topic, [(k, None if n % 7 == 0 else v) for n, (k, v) in enumerate(records(0, 100))], partition=0)
    world.settle()
    expire(world)
    expected = Counter(n for n in range(100) if n % 7)
    replay(world, "0=20-70").finish()
    check(world, expected)
    with world.session() as session:
        session.tables.load(world.landing.table).delete("id = 33")
    with pytest.raises(LedgerError, match="LC7230"):
        replay(world, "0=30-40").finish()
    world.check(expected - Counter([33]))


@pytest.fixture
def moved(landed: World, own_broker: Broker) -> World:
    """The landing's topic on another cluster, with the same records and ten more."""
    topic = str(landed.landing.topics)
    admin = AdminClient({"bootstrap.servers": own_broker.bootstrap})
    create_topic(admin, topic, 1)
    create_topic(admin, landed.landing.control_topic_name, 3)
    Log(own_broker, topic).grow(0, 110)
    return replace(landed, kafka={"bootstrap.servers": own_broker.bootstrap})


def migrated(world: World) -> None:
    from airflow_provider_lakecommit.operations.decisions.migrate import migrate_landing
    from airflow_provider_lakecommit.operations.decisions.migrate_preview import migration_preview

    with world.session() as session:
        migrate_landing(session, migration_preview(session, start="same"), decision=DECISION)


@pytest.mark.heavy
def test_a_reset_on_another_cluster_is_refused(moved: World) -> None:
    with moved.session() as session, pytest.raises(SourceError):
        init_preview(session, "earliest")
    moved.check(Counter(range(100)))


@pytest.mark.heavy
def test_a_backfill_on_a_copied_topic_knows_what_the_old_cluster_landed(moved: World) -> None:
    migrated(moved)
    moved.settle()
    with moved.session() as session:
        found = lane_preview(session, lane(moved, "0=20-50").request)
        assert found.done
        assert len(found.there) == 30
    refused(lambda: replay(moved, "0=90-110").finish(), "[0] [90, 100)")
    replay(moved, "0=100-110").finish()
    check(moved, Counter(range(110)))


@pytest.mark.heavy
def test_a_hard_reset_after_a_move_counts_what_the_new_cluster_lacks(moved: World) -> None:
    migrated(moved)
    moved.settle()
    admin = AdminClient({"bootstrap.servers": moved.kafka["bootstrap.servers"]})
    for answer in admin.delete_records([TopicPartition(str(moved.landing.topics), 0, 40)]).values():
        answer.result(PATIENCE)
    with moved.session() as session:
        found = delete_preview(session, None)
        assert sum(t.replaced.rows for t in found.tables) == 110
        assert isinstance(found.removed, Coverage)
        assert len(found.removed) == 100, "of the old cluster nothing can be read again as such"
        delete_back(session, found, DECISION)
    moved.settle()
    check(moved, Counter(range(40, 110)))


def test_a_report_cannot_declare_marks(make_world: Make, produce: Produce, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may write to an unsigned control topic can name any columns: only the landing says which are marks."""
    world = make_world(1, metadata_columns=False)
    produce(str(world.landing.topics), records(0, 50), partition=0)
    monkeypatch.setattr(report, "marks_of", lambda *_: (1, 2, 3, 1))
    world.settle()
    with world.session() as session:
        state = ledger_state(session, world.landing.table)
    assert state is not None
    assert {e.columns for s in state.sections for e in s.provenance} == {()}
    refused(lambda: replay(world, "0=0-50").finish(), "[0] [0, 50)")


@pytest.fixture
def fragile(own_broker: Broker, make_world: Make) -> tuple[Log, World]:
    """A landing of one partition on a broker that can lose the end of its log."""
    topic = unique("log")
    create_topic(AdminClient({"bootstrap.servers": own_broker.bootstrap}), topic, 1)
    world = make_world(topics=topic, control_topic=unique("control"))
    return Log(own_broker, topic), replace(world, kafka={"bootstrap.servers": own_broker.bootstrap})


@pytest.mark.heavy
def test_a_log_that_loses_its_end_before_the_first_record_is_read_is_noticed(fragile: tuple[Log, World]) -> None:
    """A landing that starts with the latest record knows the log that it begins in, though it has read nothing."""
    log, world = fragile
    world.landing = world.landing.changed(window={"start": "latest"})
    log.grow(0, 30)
    world.run()
    log.shrink(20)
    log.grow(200, 20)
    with pytest.raises(SourceError):
        world.run()
    go_on(world, {(log.topic, 0): 20})
    world.settle()
    check(world, Counter(range(200, 220)))


@pytest.mark.heavy
def test_a_log_that_loses_its_end_behind_a_reset_is_noticed(fragile: tuple[Log, World]) -> None:
    log, world = fragile
    log.grow(0, 30)
    world.settle()
    log.grow(30, 20)
    go_on(world, "latest")
    log.shrink(40)
    log.grow(200, 20)
    with pytest.raises(SourceError):
        world.run()
    go_on(world, {(log.topic, 0): 40})
    world.settle()
    check(world, Counter([*range(30), *range(200, 220)]))


@pytest.mark.heavy
def test_a_hole_that_is_left_to_a_stream_has_what_the_log_has_by_now(fragile: tuple[Log, World]) -> None:
    log, world = fragile
    log.grow(0, 30)
    world.settle()
    log.shrink(20)
    log.grow(200, 10)
    go_on(world, "latest", Way(fill="hole"))
    lane(world, name="hole").finish()
    world.settle()
    check(world, Counter([*range(30), *range(200, 210)]))
