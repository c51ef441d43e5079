# SPDX-License-Identifier: Apache-2.0
"""Topics that were copied to another cluster, with other offsets: where a landing goes on, by the records or by a
word.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.commands import RESET_MIGRATE, spoken
from airflow_provider_lakecommit.core.log import Decision
from airflow_provider_lakecommit.core.model import FILLED, LedgerSection, filled_from, is_filled
from airflow_provider_lakecommit.exceptions import LedgerError, SourceError
from airflow_provider_lakecommit.operations.backfill.request import lane_request
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from airflow_provider_lakecommit.operations.decisions.migrate import migrate_landing
from airflow_provider_lakecommit.operations.decisions.migrate_preview import MigrationPreview, migration_preview
from airflow_provider_lakecommit.operations.decisions.starts import Way
from airflow_provider_lakecommit.operations.decisions.stated import parse_ranges
from airflow_provider_lakecommit.operators.landing_operation import LandingOperationOperator
from dev.servers.kafka import Broker
from tests.faults.test_lanes import LaneWorld
from tests.fixtures.kafka import Sender, create_topic
from tests.support.messes import CREATE, TABLE
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults

Make = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
PARTITIONS = 2
DECISION = Decision(
    command="rebind", actor="ann", host="here", at="2026-01-01T00:00:00", landing="rows", reason="moved"
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("elsewhere")) as broker:
        yield broker


@dataclass(frozen=True, kw_only=True)
class Copied:
    """A landing of two clusters: the second one's topic is a copy that begins later, and goes on."""

    old: World
    new: World

    def preview(self, **start: Any) -> MigrationPreview:
        with self.new.session() as session:
            return migration_preview(session, **start)

    def migrate(self, **start: Any) -> MigrationPreview:
        with self.new.session() as session:
            preview = migration_preview(session, **start)
            migrate_landing(session, preview, decision=DECISION)
        return preview

    @property
    def lanes(self) -> dict[str, int]:
        """How many offsets each stream has in the table."""
        with self.new.session() as session:
            from airflow_provider_lakecommit.cycle.plan.known import ledger_state

            state = ledger_state(session, TABLE)
            return {s.lane: len(s.covered) for s in state.sections} if state else {}


def copy_topic(topic: str, old: str, new: str, *, without: int, name: str) -> None:
    """Every record but the first of each partition, with its time, as a mirror does that began later."""
    consumer = Consumer({"bootstrap.servers": old, "group.id": "mirror", "enable.auto.commit": False})
    producer = Producer({"bootstrap.servers": new})
    for p in range(PARTITIONS):
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)
        consumer.assign([TopicPartition(topic, p, without)])
        at = without
        while at < end:
            for message in consumer.consume(100, timeout=5):
                at = int(message.offset() or 0) + 1
                when = message.timestamp()[1]
                producer.produce(name, message.value(), message.key(), partition=p, timestamp=when)
    producer.flush(30)
    consumer.close()


@pytest.fixture
def copied(make_world: Make, produce: Produce, bootstrap: str, elsewhere: Broker) -> Copied:
    """40 records are landed, 20 more are only copied, 10 more are written to the copy."""
    old = make_world(create=CREATE, table=TABLE, dead_letter_table=None)
    topic = str(old.landing.topics)
    produce(topic, records(0, 40))
    old.run()
    produce(topic, records(40, 20))
    admin = AdminClient({"bootstrap.servers": elsewhere.bootstrap})
    create_topic(admin, topic, PARTITIONS)
    create_topic(admin, old.landing.control_topic_name, 3)
    copy_topic(topic, bootstrap, elsewhere.bootstrap, without=3, name=topic)
    sender = Sender(elsewhere.bootstrap)
    sender.produce(topic, records(60, 10))
    sender.close()
    return Copied(old=old, new=replace(old, kafka={"bootstrap.servers": elsewhere.bootstrap}))


def test_by_the_records_of_the_old_cluster_nothing_is_skipped_or_read_twice(copied: Copied) -> None:
    with pytest.raises(SourceError, match=r"reset migrate SPEC --old.*LC6012"):
        copied.new.run()
    preview = copied.preview(old=copied.old.kafka)
    assert [len(r.skipped) + len(r.twice) for r in preview.partitions] == [0, 0]
    assert [r.next for r in preview.partitions] == [(r.landed or 0) - 3 for r in preview.partitions]
    with pytest.raises(SourceError, match="LC6012"):
        copied.new.run()
    copied.migrate(old=copied.old.kafka)
    copied.new.settle()
    copied.new.check(Counter(range(70)))
    check_verified(copied.new)
    lanes = copied.lanes
    assert (lanes.pop("live"), list(lanes.values())) == (30 + 34, [40]), "34 copies, and what the old cluster gave"
    with pytest.raises(LedgerError, match="LC7024"):
        copied.preview(old=copied.old.kafka)
    with pytest.raises(SourceError, match="LC6012"):
        copied.old.run()


@pytest.mark.heavy
@pytest.mark.parametrize("shift", [-2, 3], ids=["reads twice", "skips"])
def test_a_stated_offset_is_compared_with_the_records_and_does_what_was_previewed(copied: Copied, shift: int) -> None:
    exact = copied.preview(old=copied.old.kafka).next
    stated = {(p.topic, p.partition): offset + shift for p, offset in exact.items()}
    preview = copied.migrate(start=stated, old=copied.old.kafka)
    assert {len(r.skipped) for r in preview.partitions} == {max(shift, 0)}
    assert {len(r.twice) for r in preview.partitions} == {max(-shift, 0)}
    copied.new.settle()
    assert len(copied.new.rows()) == 70 - shift * PARTITIONS
    check_verified(copied.new)


@pytest.mark.heavy
def test_by_time(copied: Copied) -> None:
    """Nobody knows of the old cluster any more; what was landed is older than that."""
    late = copied.preview(start=datetime.now(UTC))
    assert late.next == {r.partition: r.mark.high for r in late.partitions}
    assert set(copied.preview(start=datetime(2020, 1, 1, tzinfo=UTC)).next.values()) == {0}


@pytest.mark.heavy
def test_what_is_there_twice_is_ambiguous(copied: Copied, produce: Produce, bootstrap: str, elsewhere: Broker) -> None:
    """The mirror was started twice, and copied all of it again."""
    topic = str(copied.old.landing.topics)
    copy_topic(topic, bootstrap, elsewhere.bootstrap, without=3, name=topic)
    with pytest.raises(SourceError, match=r"are in the copy 2 times; state it \(--from TOPIC:\d=OFFSET.*LC7030"):
        copied.preview(old=copied.old.kafka)


@pytest.mark.heavy
def test_a_copy_that_lacks_what_comes_next_is_refused(copied: Copied) -> None:
    topic = str(copied.old.landing.topics)
    with pytest.raises(SourceError, match=r"ends at \d+, not at 100000.*LC7045"):
        copied.preview(start={(topic, p): 100_000 for p in range(PARTITIONS)})
    with pytest.raises(SourceError, match="LC7028"):
        copied.preview(old=copied.new.kafka)
    with pytest.raises(SourceError, match="LC7029"):
        copied.preview(start={(topic, 0): 1})


@pytest.mark.heavy
def test_a_stream_that_is_open_ends_on_its_own_cluster(copied: Copied) -> None:
    with copied.old.session() as session:
        ledger_init(session, "latest", Way(fill="hole"))
    with pytest.raises(LedgerError, match=r"hole.*LC7026"):
        copied.preview(start="earliest")


@pytest.mark.heavy
def test_back_on_the_first_cluster_it_goes_on_where_its_stream_ended(copied: Copied, produce: Produce) -> None:
    copied.migrate(old=copied.old.kafka)
    copied.new.settle()
    back = Copied(old=copied.new, new=copied.old)
    topic = str(copied.old.landing.topics)
    with pytest.raises(LedgerError, match="LC7034"):
        back.migrate(start={(topic, p): 0 for p in range(PARTITIONS)})
    ends = {(r.partition.topic, r.partition.partition): r.mark.high for r in back.preview(start="latest").partitions}
    back.migrate(start=ends)
    produce(topic, records(70, 10))
    copied.old.settle()
    copied.old.check(Counter(range(80)))
    check_verified(copied.old)
    assert sum(back.lanes.values()) == 30 + 34 + 60 + 10, "34 copies, 40 landed from there, 20 passed over, 10 new"


@pytest.mark.heavy
def test_by_tasks_that_show_and_do_what_a_user_agreed_to(copied: Copied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LandingOperationOperator, "session", lambda _: copied.new.session())
    monkeypatch.setenv("AIRFLOW_CONN_OLD", json.dumps({"conn_type": "kafka", "extra": dict(copied.old.kafka)}))

    def task(**more: Any) -> dict[str, Any]:
        operator = LandingOperationOperator(
            task_id="t",
            landing=copied.new.landing,
            operation=spoken(RESET_MIGRATE),
            arguments={"old_kafka_config_id": "old"},
            **more,
        )
        context: Any = {"ti": SimpleNamespace(dag_id="moves", run_id="manual__1")}
        found: dict[str, Any] = json.loads(json.dumps(operator.execute(context)))
        return found

    shown = task()
    assert (shown["skipped"], shown["read_twice"], shown["not_compared"]) == ({}, {}, [])
    other = {**shown, "next": {p: offset + 1 for p, offset in shown["next"].items()}}
    with pytest.raises(AirflowFailException, match="LC8320"):
        task(agreed=other, decided_by="ann")
    task(agreed=shown, decided_by="ann")
    copied.new.settle()
    copied.new.check(Counter(range(70)))


@pytest.mark.heavy
def test_what_streams_have_landed_is_kept_by_cluster(copied: Copied) -> None:
    """Filled ranges of two clusters are never one section: each says of which cluster its offsets are."""
    with copied.old.session() as session:
        ledger_init(session, "latest", Way(fill="hole"))
    lane(copied.old, name="hole").finish()
    preview = copied.migrate(start="latest", old=copied.old.kafka)
    # What is a copy of a landed record is there; the rest can be landed.
    first, last = next((r.copied, r.next) for r in preview.partitions if r.partition.partition == 0)
    assert first < last
    lane(copied.new, f"0={first}-{last}", name="past").finish()
    check_verified(copied.new)
    found = sections_of(copied.new)
    (before,) = (s.cluster_id for name, s in found.items() if name.startswith("live@"))
    kept = {name: s.cluster_id for name, s in found.items() if is_filled(name)}
    assert kept == {FILLED: found["live"].cluster_id, filled_from(before): before}


def sections_of(world: World) -> dict[str, LedgerSection]:
    from airflow_provider_lakecommit.cycle.plan.known import ledger_state

    with world.session() as session:
        state = ledger_state(session, TABLE)
    return {s.lane: s for s in state.sections} if state else {}


def lane(world: World, *texts: str, name: str) -> LaneWorld:
    request = lane_request(ranges=parse_ranges([f"{world.landing.topics}:{text}" for text in texts]), name=name)
    return LaneWorld(
        landing=world.landing, kafka=world.kafka, catalog=world.catalog, request=request, lines=world.lines
    )
