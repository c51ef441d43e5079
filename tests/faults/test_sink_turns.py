# SPDX-License-Identifier: Apache-2.0
"""Turns of a Kafka Connect sink and of a landing in one table, where the sink announced files and did not commit them,
was started again, rescued or rolled back: each record is in the table once.

In memory: the sink is played by its events, its snapshots and the offsets of its group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_lakecommit.control.events import Event, encode
from airflow_provider_lakecommit.control.payloads import DataComplete, TopicPartitionOffset
from airflow_provider_lakecommit.core import LIVE, Decision
from airflow_provider_lakecommit.exceptions import ConnectorError, LedgerError
from airflow_provider_lakecommit.iceberg.ledger.ledger import read_ledger
from airflow_provider_lakecommit.operations.decisions.assertion import assert_tables, from_offsets
from airflow_provider_lakecommit.operations.decisions.delete_back import delete_back, delete_preview
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.pause import resume
from airflow_provider_lakecommit.operations.kafka_connect import hand_back as handing
from airflow_provider_lakecommit.operations.kafka_connect import rescue as rescuing
from airflow_provider_lakecommit.operations.kafka_connect.connector import KnownConnector, known_connector, rescue_of
from airflow_provider_lakecommit.operations.kafka_connect.hand_back import hand_back
from airflow_provider_lakecommit.operations.kafka_connect.rescue import RescueReport
from airflow_provider_lakecommit.operations.kafka_connect.rest import ConnectorStatus, ConnectRest, Part
from airflow_provider_lakecommit.operations.kafka_connect.sink_offsets import By
from airflow_provider_lakecommit.operations.kafka_connect.sink_preview import AdoptionPreview, adoption_preview
from airflow_provider_lakecommit.operations.kafka_connect.take_over import adopt
from tests.support.campaign.sink import CONTROL, GROUP, NAME, land_by_sink, make_table
from tests.support.in_memory import TOPIC, MemoryWorld, memory_world
from tests.support.world import Killed, deaths, records

pytestmark = pytest.mark.faults

DECISION = Decision(command="test", actor="ana", host="here", at="2026-11-28T00:00:00+00:00", landing="rows")


@dataclass
class Turns:
    """A table of a sink and of a landing. ``rest`` is the sink's Kafka Connect, if that still exists."""

    world: MemoryWorld
    rest: ConnectRest | None = None

    @contextmanager
    def catalog(self) -> Iterator[SqlCatalog]:
        """As another writer has it."""
        catalog = SqlCatalog("default", **{k: v for k, v in self.world.catalog.items() if k != "type"})
        yield catalog
        catalog.close()

    @property
    def group(self) -> dict[tuple[str, int], int]:
        return self.world.broker.groups[GROUP]

    def send(self, first: int, count: int, partition: int = 0) -> None:
        self.world.broker.produce(TOPIC, records(first, count), partition)

    def sink(self, **options: Any) -> None:
        """The sink lands what it has not read."""
        with self.catalog() as catalog:
            land_by_sink(catalog, self.world.broker, TOPIC, **options)

    def sink_reads_again(self, start: int, end: int, **options: Any) -> None:
        """The sink is resumed before its offsets are set, and reads a range that the landing has."""
        log = self.world.broker.topics[TOPIC].partitions[0]
        self.group[TOPIC, 0], log.end, whole = start, end, log.end
        self.sink(**options)
        log.end = whole

    def connector(self, by: By = By.BOTH) -> KnownConnector:
        return known_connector(self.world.kafka, NAME, self.rest, by=by)

    def preview(self) -> AdoptionPreview:
        with self.world.session() as session:
            return adoption_preview(session, self.connector())

    def adopt(self, by: By = By.BOTH, **options: Any) -> None:
        with self.world.session() as session:
            adopt(session, self.connector(by), decision=DECISION, **options)

    def back(self) -> None:
        with self.world.session() as session:
            hand_back(session, self.connector(), decision=DECISION)

    def back_killed(self) -> None:
        """The table is the sink's, and its offsets are not set."""

        def die(*_: Any, **__: Any) -> None:
            raise Killed

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handing, "_set_offsets", die)
            with pytest.raises(Killed):
                self.back()

    def rescue(self) -> tuple[RescueReport, ...]:
        parts = {"control_topic": CONTROL, "connector": NAME, "group": None, "branch": "main", "names": None}
        return rescuing.rescue(self.world.kafka, self.world.catalog, **parts, commit=True)  # type: ignore[arg-type]

    @property
    def head(self) -> int:
        with self.catalog() as catalog:
            found = catalog.load_table("shop.rows").metadata.current_snapshot_id
        assert found is not None
        return found

    def roll_to(self, snapshot_id: int) -> None:
        with self.catalog() as catalog:
            catalog.load_table("shop.rows").manage_snapshots().set_current_snapshot(snapshot_id).commit()

    def check(self, count: int) -> None:
        """All that was sent is landed once, by the landing if anything is left."""
        self.world.settle()
        self.world.check(Counter(range(count)))


@pytest.fixture
def sunk(tmp_path: Path) -> Iterator[Turns]:
    """The sink has landed 10 records."""
    with memory_world(tmp_path, metadata_columns=True) as world:
        world.broker.create(CONTROL, 1)
        turns = Turns(world)
        with turns.catalog() as catalog:
            make_table(catalog)
        turns.send(0, 10)
        turns.sink()
        yield turns


@pytest.fixture
def turns(sunk: Turns) -> Turns:
    """The landing has taken over, and landed 10 more."""
    sunk.adopt()
    sunk.send(10, 10)
    sunk.world.settle()
    return sunk


@pytest.fixture
def handed(turns: Turns) -> Turns:
    """The table was handed back to the sink, which has landed nothing yet."""
    turns.back()
    turns.send(20, 5)
    return turns


# -- files that a rescue committed ----------------------------------------------------------------------------------


def test_rows_that_a_rescue_committed_in_the_sinks_turn_are_not_read_again(handed: Turns) -> None:
    handed.sink(commits=False)
    (report,) = handed.rescue()
    assert sum(j.file.rows for j in report.committed) == 5
    handed.adopt()
    handed.check(25)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("at", range(1, 6))
def test_a_takeover_killed_at_any_step_lands_what_waited_once(
    handed: Turns, at: int, when: Literal["before", "after"]
) -> None:
    handed.sink(commits=False)
    with deaths(at, when), suppress(Killed):
        handed.adopt()
    handed.adopt()
    handed.check(25)


def test_a_table_that_a_landing_took_over_is_not_rescued(turns: Turns) -> None:
    """The sink was started again by mistake, and has read what the landing reads."""
    turns.send(20, 5)
    turns.sink(commits=False)
    (report,) = turns.rescue()
    assert report.refusal is not None
    assert "landing rows has taken it over" in report.refusal
    turns.adopt()
    (report,) = turns.rescue()
    assert report.refusal is None
    turns.check(25)


# -- a sink that was started again ----------------------------------------------------------------------------------


class Stopped(ConnectRest):
    """A Kafka Connect in which the sink is stopped."""

    def connectors(self) -> list[str]:
        return [NAME]

    def config(self, _: str) -> dict[str, str]:
        return {"connector.class": "IcebergSinkConnector", "topics": TOPIC, "iceberg.tables": "shop.rows"}

    def status(self, _: str) -> ConnectorStatus:
        return ConnectorStatus(connector=Part(name=NAME, state="STOPPED"))

    def stop(self, _: str) -> None: ...


def test_a_sink_that_read_on_and_committed_nothing_is_put_back(turns: Turns) -> None:
    turns.rest = Stopped(url="http://127.0.0.1:1")
    turns.send(20, 5)
    turns.sink(commits=False)
    assert turns.preview().done
    turns.adopt()
    assert turns.group[TOPIC, 0] == 10
    turns.check(25)


def test_what_it_read_of_a_later_partition_is_put_back_too(turns: Turns) -> None:
    turns.world.broker.grow(TOPIC, 2)
    turns.send(20, 5, 1)
    turns.sink(partitions=[1], commits=False)
    turns.adopt()
    assert turns.group[TOPIC, 1] == 0
    turns.check(25)
    turns.back()
    assert turns.group == {(TOPIC, 0): 20, (TOPIC, 1): 5}


def test_what_a_hand_back_left_out_stays_out_when_the_sink_has_read_on(turns: Turns) -> None:
    """Its offsets were put back, and do not show it any more."""
    turns.send(20, 5)
    turns.sink(commits=False)
    turns.back()
    turns.send(25, 5)
    turns.sink()
    (report,) = turns.rescue()
    assert not report.committed
    turns.adopt()
    turns.check(30)


def test_offsets_that_expired_do_not_make_rows_wait_that_are_read_again(handed: Turns) -> None:
    start = handed.head
    handed.sink()
    handed.send(25, 5)
    handed.sink(commits=False)
    handed.roll_to(start)
    handed.group.clear()
    handed.adopt()
    handed.check(30)


# -- rollbacks ------------------------------------------------------------------------------------------------------


def test_a_branch_rolled_back_to_before_the_hand_back_is_the_landings_again(turns: Turns) -> None:
    before = turns.head
    turns.back()
    turns.send(20, 5)
    turns.sink()
    turns.roll_to(before)
    assert turns.preview().reads_again
    turns.adopt()
    assert turns.preview().done
    turns.check(25)


def test_a_sink_that_lands_on_after_a_rollback_to_before_the_hand_back_is_named(turns: Turns) -> None:
    """Its offsets are those of the hand-back, and the table no longer has what the landing had landed before."""
    before = turns.head
    turns.send(20, 5)
    turns.world.settle()
    turns.back()
    turns.roll_to(before)
    turns.send(25, 5)
    turns.sink()
    with turns.world.session() as session, pytest.raises(LedgerError, match=r"connect adopt SPEC.*LC7041"):
        resume(session, DECISION)
    with pytest.raises(ConnectorError, match=rf"roll the branch back to snapshot {before}.*LC7526"):
        turns.adopt(doubled_stay=True)
    turns.roll_to(before)
    turns.adopt()
    turns.check(30)


def test_a_later_partition_is_put_back_with_the_others_after_a_rollback(handed: Turns) -> None:
    start = handed.head
    handed.sink()
    handed.world.broker.grow(TOPIC, 2)
    handed.send(25, 5, 1)
    handed.sink(commits=False)
    handed.roll_to(start)
    handed.adopt()
    handed.check(30)


def test_offsets_that_a_user_set_to_the_end_of_the_table_are_believed(handed: Turns) -> None:
    handed.sink()
    good = handed.head
    handed.send(25, 5)
    handed.sink()
    handed.roll_to(good)
    with pytest.raises(ConnectorError, match=r"--by offsets.*LC7526"):
        handed.adopt()
    handed.group[TOPIC, 0] = 25
    handed.adopt(By.OFFSETS)
    handed.check(30)


def test_rows_that_were_rolled_back_before_the_first_takeover_are_named(sunk: Turns) -> None:
    good = sunk.head
    sunk.send(10, 10)
    sunk.sink()
    sunk.roll_to(good)
    with pytest.raises(ConnectorError, match=r"was rolled back.*--by offsets.*LC7526"):
        sunk.adopt()
    sunk.group[TOPIC, 0] = 10
    sunk.adopt(By.OFFSETS)
    sunk.check(20)


def test_rows_of_a_sink_that_was_started_again_and_rolled_back_in_part_are_named(sunk: Turns) -> None:
    sunk.adopt()
    good = sunk.head
    sunk.send(10, 10)
    sunk.sink()
    sunk.roll_to(good)
    sunk.send(20, 5)
    sunk.sink()
    with pytest.raises(ConnectorError, match=rf"roll the branch back to snapshot {good}.*LC7526"):
        sunk.adopt()
    sunk.roll_to(good)
    sunk.adopt()
    sunk.check(25)


# -- readings -------------------------------------------------------------------------------------------------------


def test_a_turn_is_of_a_later_generation_than_the_readings_of_all_tables(handed: Turns) -> None:
    """Rejects of an earlier reading are of the dead-letter table alone, and the clock may have been put back."""
    world, now = handed.world, handed.world.now()
    world.now = lambda: now + timedelta(days=1)
    with world.session() as session:
        assert_tables(session, from_offsets(session, {(TOPIC, 0): 20}, ["shop.dead"]), decision=DECISION)
        dead = read_ledger(session.tables.load("shop.dead").metadata).own("rows", LIVE).generation
    world.now = lambda: now
    handed.adopt()
    with world.session() as session:
        assert read_ledger(session.tables.load("shop.rows").metadata).own("rows", LIVE).generation > dead


# -- a hand-back that was killed ------------------------------------------------------------------------------------


def test_a_hand_back_ends_once_what_a_sink_read_again_is_rolled_back(turns: Turns) -> None:
    turns.back_killed()
    good = turns.head
    turns.sink_reads_again(12, 15)
    with pytest.raises(ConnectorError, match="LC7516"):
        turns.back()
    turns.roll_to(good)
    turns.back()
    turns.send(20, 5)
    turns.sink()
    turns.world.check(Counter(range(25)))


def test_a_hand_back_leaves_out_what_a_sink_read_again_and_did_not_commit(turns: Turns) -> None:
    turns.back_killed()
    turns.sink_reads_again(12, 15, commits=False)
    turns.back()
    turns.send(20, 5)
    turns.sink()
    turns.world.check(Counter(range(25)))


def test_a_partition_that_the_landing_has_not_read_yet_is_handed_over_too(turns: Turns) -> None:
    """A sink that begins at the end of a partition without an offset would leave its records out."""
    turns.world.broker.grow(TOPIC, 2)
    turns.send(20, 5, 1)
    turns.back()
    assert turns.group == {(TOPIC, 0): 20, (TOPIC, 1): 0}
    turns.world.broker.grow(TOPIC, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(handing, "settled", lambda *_: pytest.fail("the sink runs, and is left alone"))
        turns.back()


# -- events that cannot be read -------------------------------------------------------------------------------------


def test_a_sink_of_which_no_event_can_be_read_is_neither_rescued_nor_taken_over(sunk: Turns) -> None:
    read = TopicPartitionOffset(topic=TOPIC, partition=0, offset=10, timestamp=datetime.now(UTC))
    event = DataComplete(commit_id=uuid4(), assignments=(read,))
    value = encode(Event(id=uuid4(), timestamp=datetime.now(UTC), group_id=GROUP, payload=event))[:-3]
    del sunk.world.broker.controls[CONTROL]
    sunk.world.broker.control(CONTROL).writer("worker", 0).send([(b"worker", value, ())])
    with pytest.raises(ConnectorError, match="LC7529"):
        sunk.rescue()
    with pytest.raises(ConnectorError, match=r"1 of its events cannot be read.*LC7526"):
        sunk.adopt()


# -- a topic that was recreated in the sink's turn ---------------------------------------------------------------------


def restart(turns: Turns, start: str | dict[tuple[str, int], int] = "earliest") -> None:
    with turns.world.session() as session:
        ledger_init(session, start, decision=DECISION)


@pytest.fixture
def recreated(handed: Turns) -> Turns:
    """The sink has landed records of the former topic, and of the one that was made anew."""
    handed.sink()
    handed.world.broker.create(TOPIC, 1)
    handed.send(25, 5)
    handed.sink()
    handed.send(30, 5)
    return handed


def test_what_a_sink_landed_of_a_recreated_topic_is_not_read_again(recreated: Turns) -> None:
    for start in ("earliest", {(TOPIC, 0): 2}):
        with pytest.raises(LedgerError, match=r"commits since the hand-back.*connect adopt SPEC.*--by offsets.*LC7059"):
            restart(recreated, start)
    with pytest.raises(ConnectorError, match=r"recreated.*--by offsets.*LC7526"):
        recreated.adopt()
    recreated.sink(commits=False)
    recreated.adopt(By.OFFSETS)
    recreated.check(35)
    recreated.back()
    assert recreated.group == {(TOPIC, 0): 10}


def test_a_recreated_topic_is_read_from_its_beginning_if_the_sinks_turn_is_rolled_back(handed: Turns) -> None:
    start = handed.head
    handed.world.broker.create(TOPIC, 1)
    handed.send(20, 5)
    handed.sink()
    with pytest.raises(LedgerError, match=rf"roll the branch back to snapshot {start}.*LC7059"):
        restart(handed)
    handed.roll_to(start)
    restart(handed)
    handed.check(25)


@pytest.mark.parametrize("group", [GROUP, f"{GROUP}-coord"])
def test_a_recreated_topic_is_not_read_while_its_sink_runs(handed: Turns, group: str) -> None:
    handed.world.broker.create(TOPIC, 1)
    handed.send(20, 5)
    handed.world.broker.members[group] = ("connector-consumer-rows-0",)
    before = handed.head
    with pytest.raises(ConnectorError, match=rf"group {group} has 1 members.*LC7524"):
        restart(handed)
    assert handed.head == before
    del handed.world.broker.members[group]
    restart(handed)
    handed.check(25)


def test_a_recreated_topic_is_not_read_while_its_sink_runs_if_the_ledger_was_rolled_back(sunk: Turns) -> None:
    first = sunk.head
    sunk.adopt()
    sunk.world.settle()
    sunk.back()
    sunk.roll_to(first)
    sunk.world.broker.create(TOPIC, 1)
    sunk.send(10, 5)
    sunk.world.broker.members[GROUP] = ("connector-consumer-rows-0",)
    with pytest.raises(ConnectorError, match="LC7524"):
        restart(sunk)


def test_a_sink_that_goes_on_after_its_topic_was_recreated_is_detected(handed: Turns) -> None:
    handed.world.broker.create(TOPIC, 1)
    handed.send(20, 5)
    handed.sink(commits=False)
    restart(handed)
    (report,) = handed.rescue()
    assert "landing rows has taken it over" in str(report.refusal)
    handed.adopt()
    handed.check(25)
    handed.send(25, 5)
    handed.sink()
    with pytest.raises(LedgerError, match="LC3001"):
        handed.world.settle()


@pytest.mark.parametrize("turn", ["first", "later"])
def test_a_topic_recreated_with_fewer_partitions_has_one_objection_whose_remedy_helps(sunk: Turns, turn: str) -> None:
    if turn == "later":
        sunk.adopt()
        sunk.world.settle()
        sunk.back()
    sunk.world.broker.grow(TOPIC, 2)
    sunk.send(10, 5, 1)
    sunk.sink()
    sunk.world.broker.create(TOPIC, 1)
    sunk.send(15, 5)
    with pytest.raises(ConnectorError, match="LC7526") as refused:
        sunk.adopt()
    assert "has no offset" not in str(refused.value)
    assert str(refused.value).count("was recreated") == 1
    sunk.adopt(By.OFFSETS)
    sunk.check(20)


# -- dead letters ---------------------------------------------------------------------------------------------------


def test_a_table_that_was_rolled_back_alone_is_handed_back_once_it_has_what_the_dead_letters_have(turns: Turns) -> None:
    good = turns.head
    turns.world.broker.produce(TOPIC, [(b"k", b'{"id": "no number"}'), *records(20, 1)], 0)
    turns.world.settle()
    turns.roll_to(good)
    with pytest.raises(LedgerError, match=r"shop.dead has records of changes\[0\] \[20, 22\).*land SPEC.*LC7530"):
        turns.back()
    turns.world.settle()
    turns.back()
    assert turns.group == {(TOPIC, 0): 22}
    turns.world.check(Counter(range(21)))


def test_what_a_sink_landed_can_be_replaced_in_the_dead_letter_table(turns: Turns) -> None:
    """It has no dead letters, which a reset would have to find."""
    good = turns.head
    turns.back()
    turns.send(20, 5)
    turns.sink()
    turns.adopt()
    turns.roll_to(good)
    with turns.world.session() as session:
        start = {(TOPIC, 0): 20}
        delete_back(session, delete_preview(session, start), DECISION)
    turns.check(25)


@pytest.mark.parametrize("files", ["waiting", "unknown"])
def test_files_that_keep_a_table_from_being_handed_back_are_named_with_a_remedy(turns: Turns, files: str) -> None:
    turns.back_killed()
    turns.sink_reads_again(20, 20)
    turns.send(20, 5)
    turns.sink()
    turns.send(25, 5)
    turns.sink(commits=False)
    with turns.world.session() as session:
        log = rescue_of(session, turns.connector())
        if files == "waiting":
            with pytest.raises(ConnectorError, match=r"connect adopt SPEC.*then this command again.*LC7517"):
                log.end_turn("shop.rows")
            turns.adopt()
            log = rescue_of(session, turns.connector())
            log.end_turn("shop.rows")
            return
        table = session.tables.load("shop.rows")
        with table.update_spec() as change:
            change.add_identity("name")
        with pytest.raises(ConnectorError, match=r"let the connector run until.*LC7517"):
            log.end_turn("shop.rows")
