# SPDX-License-Identifier: Apache-2.0
"""A source log that loses its end and grows again: other records stand where some were landed.

The broker is killed and its newest records are cut off its segment, as an unclean election does; it starts under
another leader epoch, and other records come. Nothing of them is passed over in silence.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from airflow_provider_lakecommit.core.model import LIVE, LedgerSection, ReadPosition
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.plan.known import ledger_state
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics
from airflow_provider_lakecommit.operations.decisions.ledger_init import ledger_init
from dev.servers.kafka import Broker
from tests.fixtures.kafka import Sender, create_topic, unique
from tests.support.declared import changed_landing
from tests.support.messes import CREATE, TABLE
from tests.support.steps import check_verified
from tests.support.waiting import until
from tests.support.world import World, records

pytestmark = pytest.mark.faults

BATCH = 10
DEAD = "shop.dead"


class Log:
    """One partition on a broker of its own, in a user's hands."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self.broker, self.topic = broker, topic
        self.sender = Sender(broker.bootstrap)

    def grow(self, first: int, count: int, **options: object) -> None:
        """In batches, at whose borders it can be cut."""
        for n in range(first, first + count, BATCH):
            self.sender.produce(self.topic, records(n, min(BATCH, first + count - n)), 0, **options)

    def shrink(self, to: int) -> None:
        """The records from this offset on are lost."""
        # A transaction without its end would hold readers up until it times out.
        until(self._is_settled, what="all transactions are over")
        self.broker.kill()
        folder = self.broker.directory / "data" / f"{self.topic}-0"
        segment = folder / f"{0:020}.log"
        data, at = segment.read_bytes(), 0
        while at < len(data):
            base, length = struct.unpack_from(">qi", data, at)
            if base >= to:
                break
            at += 12 + length
        segment.write_bytes(data[:at])
        for index in folder.glob("*index"):
            index.unlink()
        self.broker.start()
        self.sender = Sender(self.broker.bootstrap)

    def _is_settled(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        topics = admin.list_topics(timeout=30).topics.values()
        places = [TopicPartition(t.topic, p) for t in topics for p in t.partitions]
        ends = (
            {(p.topic, p.partition): f.result(30).offset for p, f in found.items()}
            for found in (
                admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
                for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
            )
        )
        return next(ends) == next(ends)

    def restart(self) -> None:
        self.broker.restart()
        self.sender = Sender(self.broker.bootstrap)


@pytest.fixture
def log(own_broker: Broker) -> Log:
    topic = unique("log")
    create_topic(AdminClient({"bootstrap.servers": own_broker.bootstrap}), topic, 1)
    return Log(own_broker, topic)


@pytest.fixture
def world(log: Log, make_world: Callable[..., World]) -> World:
    """The landing of a log. Its control topic is on the same broker, and is left alone."""
    made = make_world(topics=log.topic, create=CREATE, table=TABLE, dead_letter_table=DEAD, slice_records=100)
    landing = changed_landing(made.landing, control_topic=unique("control"))
    return replace(made, landing=landing, kafka={"bootstrap.servers": log.broker.bootstrap})


def section(world: World, table: str = TABLE) -> LedgerSection:
    with world.session() as session:
        state = ledger_state(session, table)
    found = state.section(world.landing.name, LIVE) if state else None
    assert found is not None
    return found


def position(world: World) -> ReadPosition:
    (found,) = section(world).positions.values()
    return found


def init(world: World, **stated: object) -> None:
    start = stated["start"] if "start" in stated else {(world.landing.topics, 0): stated["at"]}
    with world.session() as session:
        ledger_init(session, start)  # type: ignore[arg-type]


def refusal(world: World) -> str:
    with pytest.raises(SourceError) as refused:
        world.settle()
    return str(refused.value)


def test_a_log_that_shrank_and_grew_again_is_named_and_goes_on_from_where_it_differs(log: Log, world: World) -> None:
    log.grow(0, 100)
    world.run()
    assert position(world).offset == 100
    log.shrink(90)
    log.grow(200, 30)
    message = refusal(world)
    assert re.search(rf"{log.topic}\[0\] was read up to 100 under leader epoch \d+, but is another log from", message)
    assert "from offset 90 on" in message
    assert f"{TABLE} has rows of {log.topic}[0] [90, 100)" in message
    match = re.search(r"--from (\S+):0=(\d+)`", message)
    assert match is not None
    assert (match[1], int(match[2])) == (log.topic, 90)
    init(world, at=90)
    world.settle()
    world.check(Counter([*range(100), *range(200, 230)]))
    assert section(world).end(SourcePartition(log.topic, 0, _topic_id(world))) == 120
    check_verified(world)


def _topic_id(world: World) -> str:
    return next(iter(section(world).starts)).topic_id


@pytest.mark.heavy
@pytest.mark.parametrize("start", ["earliest", "below"])
def test_a_decision_leads_back_no_further_than_to_where_the_log_differs(log: Log, world: World, start: str) -> None:
    log.grow(0, 100)
    world.run()
    log.shrink(80)
    log.grow(200, 40)
    refusal(world)
    init(world, **({"start": "earliest"} if start == "earliest" else {"at": 30}))
    world.settle()
    world.check(Counter([*range(100), *range(200, 240)]))
    check_verified(world)


@pytest.mark.heavy
def test_a_decision_may_give_up_what_is_where_rows_were_landed(log: Log, world: World) -> None:
    log.grow(0, 100)
    world.run()
    log.shrink(90)
    log.grow(200, 30)
    refusal(world)
    init(world, start="latest")
    assert any("gives up" in line and "[90, 120)" in line for line in world.lines)
    log.grow(300, 10)
    world.settle()
    world.check(Counter([*range(100), *range(300, 310)]))
    check_verified(world)


@pytest.mark.heavy
def test_a_log_that_only_shrank_is_named_with_the_offset(log: Log, world: World) -> None:
    log.grow(0, 100)
    world.run()
    log.shrink(90)
    assert "from offset 90 on" in refusal(world)
    init(world, at=90)
    log.grow(200, 10)
    world.settle()
    world.check(Counter([*range(100), *range(200, 210)]))
    check_verified(world)


@pytest.mark.heavy
def test_another_leader_of_the_same_log_is_no_truncation(log: Log, world: World) -> None:
    log.grow(0, 100)
    world.run()
    before = position(world)
    log.restart()
    world.settle()
    log.grow(100, 20, transactional=True)
    world.settle()
    world.check(Counter(range(120)))
    after = position(world)
    assert after.leader_epoch > before.leader_epoch
    with SourceTopics(world.kafka, (log.topic,)) as source:
        (mark,) = source.watermarks().partitions.values()
    assert (after.offset, after.leader_epoch) == (mark.stable, mark.leader_epoch), "behind the transaction's mark"
    log.restart()
    log.grow(120, 10)
    world.settle()
    world.check(Counter(range(130)))
    check_verified(world)


@pytest.mark.heavy
def test_slices_that_wait_are_of_the_log_too(log: Log, world: World) -> None:
    log.grow(0, 50)
    world.run()
    log.grow(50, 50)
    world.write(world.open("pending"))
    log.shrink(90)
    log.grow(200, 30)
    message = refusal(world)
    assert "was read up to 100" in message
    assert "from offset 90 on" in message
    init(world, at=50)
    world.settle()
    world.check(Counter([*range(90), *range(200, 230)]))
    check_verified(world)


@pytest.mark.heavy
def test_a_log_that_differs_between_plan_and_read_is_not_read(log: Log, world: World) -> None:
    log.grow(0, 100)
    world.run()
    log.grow(100, 20)
    opened = world.open("planned")
    log.shrink(90)
    log.grow(200, 40)
    (result,) = world.write(opened)
    assert result.status == "failed"
    assert "differs from the one read up to 100" in result.detail
    refusal(world)
    init(world, at=90)
    world.settle()
    world.check(Counter([*range(100), *range(200, 240)]))
    check_verified(world)


@pytest.mark.heavy
def test_slices_of_two_logs_are_not_published_together(log: Log, world: World) -> None:
    """The log loses its end between two slices of one window."""
    world.landing = changed_landing(world.landing, slice_records=50)
    log.grow(0, 100)
    world.run()
    log.grow(100, 100)
    opened = world.open("halfway")
    world.write(opened, only=lambda index: index == 0)
    log.shrink(140)
    log.grow(300, 70)
    world.write(opened)
    closed = world.close("halfway", opened)
    assert ["from offset 140 on" in text for text in closed.voided] == [True]
    assert closed.rows == 0
    world.settle()
    world.check(Counter([*range(140), *range(300, 370)]))
    check_verified(world)


@pytest.mark.heavy
def test_a_ledger_of_an_earlier_release_is_read_on(log: Log, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_provider_lakecommit.spark import slices

    with monkeypatch.context() as earlier:
        earlier.setattr(slices, "position_behind", lambda *_: None)
        log.grow(0, 20)
        world.run()
    assert section(world).positions == {}
    log.restart()
    log.grow(20, 10)
    world.settle()
    assert position(world).offset == 30
    world.check(Counter(range(30)))
