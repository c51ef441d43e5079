# SPDX-License-Identifier: Apache-2.0
"""The control topic on a real broker: what is read, what is written, who is shut out, what a restart costs."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from airflow_provider_lakecommit.control import control_topic as control_topic_module
from airflow_provider_lakecommit.control import control_writer
from airflow_provider_lakecommit.control.control_log import ControlLog
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.control_topic_settings import TOPIC_SETTINGS
from airflow_provider_lakecommit.control.control_watch import ControlWatch
from airflow_provider_lakecommit.control.headers import CORRUPT_BATCH
from airflow_provider_lakecommit.control.records import Outgoing, entry_of
from airflow_provider_lakecommit.core.log import Unreadable
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError, WireError
from airflow_provider_lakecommit.kafka.partition_tail import PartitionTail
from dev.servers.kafka import Broker
from dev.servers.server import free_port
from tests.fixtures.kafka import create_topic, delete_topic, unique
from tests.support.raw_records import batches, flip
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.integration

KEPT: list[BaseException | None] = []

Produce = Callable[..., list[tuple[int, int]]]


def records(*values: str) -> list[Outgoing]:
    return [Outgoing(b"key", value.encode(), [("v", b"1"), ("v", b"2")]) for value in values]


def values(log: ControlLog) -> list[str]:
    return [(record.value or b"").decode() for record in log.records]


@pytest.fixture
def control(bootstrap: str, control_topic: str) -> Iterator[ControlTopic]:
    with ControlTopic(control_topic, {"bootstrap.servers": bootstrap}) as opened:
        yield opened


@pytest.fixture
def fragile(own_broker: Broker) -> Iterator[ControlTopic]:
    """A control topic on the broker that is stopped and killed."""
    with ControlTopic(unique("fragile"), {"bootstrap.servers": own_broker.bootstrap}, timeout=240) as opened:
        opened.ensure(1)
        yield opened


# -- the topic --------------------------------------------------------------------------------------------------------


def test_the_topic_is_made_once_with_its_settings_by_all_who_try_at_once(bootstrap: str, admin: AdminClient) -> None:
    name = unique("ensure")

    def ensure(_: int) -> tuple[str, int]:
        with ControlTopic(name, {"bootstrap.servers": bootstrap}) as control:
            info = control.ensure(partitions=4)
            return info.topic_id, info.partitions

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(ensure, range(4)))
    assert [partitions for _, partitions in answers] == [4]
    resource = ConfigResource(ResourceType.TOPIC, name)
    settings = admin.describe_configs([resource])[resource].result(30)
    assert {key: settings[key].value for key in TOPIC_SETTINGS} == dict(TOPIC_SETTINGS)


def test_an_existing_topic_is_taken_as_it_is(control: ControlTopic) -> None:
    assert control.ensure(partitions=12) == control.describe()
    assert control.describe().partitions == 3


def test_a_compacted_topic_is_refused_with_the_command_that_repairs_it(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    name = make_topic(1, cleanup_policy="compact,delete")
    with (
        ControlTopic(name, {"bootstrap.servers": bootstrap}) as control,
        pytest.raises(ControlTopicError, match=f"kafka-configs .*--entity-name {name} .*cleanup.policy=delete.*LC2329"),
    ):
        control.ensure()


def test_a_topic_that_cannot_be_made_is_an_error_with_the_exact_command(bootstrap: str) -> None:
    name = unique("refused")
    command = (
        f"`kafka-topics --bootstrap-server {bootstrap} --create --topic {name} --partitions 2 --replication-factor 3 "
        "--config cleanup.policy=delete --config retention.ms=2592000000 "
        "--config message.timestamp.type=LogAppendTime --config compression.type=uncompressed`"
    )
    with ControlTopic(name, {"bootstrap.servers": bootstrap}) as control:
        with pytest.raises(ControlTopicError) as raised:
            control.ensure(partitions=2, replication=3)
        assert command in str(raised.value)
        with pytest.raises(ControlTopicError, match=f"{name}'.*kafka-topics .*--create.*LC2323"):
            control.read(0)


def test_a_partition_that_the_topic_does_not_have_is_an_error(control: ControlTopic) -> None:
    with pytest.raises(ControlTopicError, match=r"has 3 partitions, so no partition 3.*LC2325"):
        control.read(3)


# -- reading ----------------------------------------------------------------------------------------------------------


def test_what_was_sent_is_read_back_complete(control: ControlTopic) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    with control.writer("whole-" + control.name, 1) as writer:
        offsets = writer.send(records("a", "b"))
    log = control.read(1, until=offsets[-1])
    assert offsets == (0, 1)
    assert [(r.partition, r.offset, r.key, r.value) for r in log.records] == [
        (1, 0, b"key", b"a"),
        (1, 1, b"key", b"b"),
    ]
    assert {r.headers for r in log.records} == {(("v", b"1"), ("v", b"2"))}
    assert all(before <= r.timestamp <= datetime.now(UTC) for r in log.records)
    info = control.describe()
    assert (log.begin, log.end, log.high, log.partition, log.partitions) == (0, 3, 3, 1, 3)
    assert (log.cluster_id, log.topic_id) == (info.cluster_id, info.topic_id)


def test_an_empty_partition_is_read_as_empty(control: ControlTopic) -> None:
    log = control.read(0)
    assert (log.records, log.begin, log.end) == ((), 0, 0)


@pytest.mark.heavy
def test_aborted_records_are_passed_over_and_open_ones_not_reached(control: ControlTopic, produce: Produce) -> None:
    topic = control.name
    produce(topic, ["a", "b"], 0, transactional=True)
    produce(topic, ["c", "d"], 0, transactional=True, outcome="abort")
    first = control.read(0)
    assert (values(first), first.end, first.high) == (["a", "b"], 6, 6)
    produce(topic, ["e"], 0, transactional=True, outcome="open")
    produce(topic, ["f"], 0)
    second = control.read(0, first.end)
    assert (values(second), second.end, second.high) == ([], 6, 8)


def test_a_read_goes_on_where_the_last_one_ended_on_one_connection(
    control: ControlTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []

    class Counted(PartitionTail):
        def __init__(self, config: dict[str, str], topic: str, partition: int, **options: object) -> None:
            made.append(partition)
            super().__init__(config, topic, partition, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(control_topic_module, "PartitionTail", Counted)
    with control.writer("increments-" + control.name, 2) as writer:
        end, observed, seconds = 0, [], []
        for n in range(20):
            sent = writer.send(records(f"{n}-a", f"{n}-b"))
            began = time.monotonic()
            log = control.read(2, end, until=sent[-1])
            seconds.append(time.monotonic() - began)
            observed += values(log)
            end = log.end
    assert observed == [f"{n}-{letter}" for n in range(20) for letter in "ab"]
    assert values(control.read(2, end)) == []
    assert made == [2]
    # The fastest: any of them may be held up by a busy machine, none of them waits for the broker's half a second.
    assert min(seconds) < 0.25


def test_a_record_met_behind_the_end_is_kept_for_the_next_read(
    bootstrap: str, control: ControlTopic, produce: Produce
) -> None:
    produce(control.name, ["a", "b"], 0)
    produce(control.name, ["c", "d"], 0, transactional=True, outcome="abort")
    [(_, behind)] = produce(control.name, ["e"], 0)
    tail = PartitionTail({"bootstrap.servers": bootstrap}, control.name, 0, timeout=10, away=ControlTopicError)
    try:
        assert [message.value() for message in tail.read(0, behind)] == [b"a", b"b"]
        assert [message.value() for message in tail.read(behind, behind + 1)] == [b"e"]
    finally:
        tail.close()


def test_a_read_may_start_anywhere_and_go_back(control: ControlTopic, produce: Produce) -> None:
    produce(control.name, ["a", "b", "c", "d"], 0)
    assert values(control.read(0)) == ["a", "b", "c", "d"]
    assert values(control.read(0, 2)) == ["c", "d"]
    assert values(control.read(0, 0)) == ["a", "b", "c", "d"]
    produce(control.name, ["x"], 1)
    assert values(control.read(1)) == ["x"]
    assert values(control.read(0, 3)) == ["d"]


def test_a_deleted_head_is_printed_by_where_the_log_begins(
    control: ControlTopic, admin: AdminClient, produce: Produce
) -> None:
    produce(control.name, ["a", "b", "c"], 0)
    assert values(control.read(0)) == ["a", "b", "c"]
    partition = TopicPartition(control.name, 0, 2)
    admin.delete_records([partition])[partition].result(30)
    log = control.read(0, 1)
    assert (values(log), log.begin, log.end) == (["c"], 2, 3)


@pytest.mark.heavy
@pytest.mark.parametrize("times", [1, 300], ids=["ours", "plain"])
@pytest.mark.parametrize("spoilt", [61 + 10, 17, 16], ids=["record", "checksum", "form"])
@pytest.mark.parametrize("at", [0, 1, 3], ids=["first", "middle", "last"])
def test_a_batch_that_is_corrupt_on_the_brokers_disk_is_passed_over_and_named(
    control: ControlTopic, broker: Broker, produce: Produce, at: int, spoilt: int, times: int
) -> None:
    """Of our own writer, or a large one without compression: there the client takes some of the bytes for a batch."""
    written = [[f"{n}-{letter}" * times for letter in "ab"] for n in range(4)]
    for both in written:
        if times > 1:
            produce(control.name, both, 1, transactional=True)
        else:
            with control.writer("damage-" + control.name, 1) as writer:
                writer.send(records(*both))
    # Each transaction is a batch and its marker.
    found = [(place, first) for place, first, last in batches(broker.directory, control.name, 1) if last > first]
    flip(broker.directory, control.name, found[at][0] + spoilt, partition=1)
    good = [value for n, both in enumerate(written) if n != at for value in both]

    log = control.read(1)
    replaced = [r for r in log.records if any(name == CORRUPT_BATCH for name, _ in r.headers)]
    assert [r.offset for r in replaced] == [found[at][1]]
    assert [r.offset for r in log.records] == sorted(r.offset for r in log.records)
    assert [(r.value or b"").decode() for r in log.records if r not in replaced] == good
    assert isinstance(entry_of(replaced[0], "orders", "live"), Unreadable)
    assert {(r.offset, r.value) for r in control.read_all()} == {(r.offset, r.value) for r in log.records}

    observed: list[str] = []
    with ControlWatch(control.name, {"bootstrap.servers": broker.bootstrap}) as watch:
        until(lambda: observed.extend((r.value or b"").decode() for r in watch.poll()) or watch.caught_up)
        assert observed == good
        produce(control.name, ["later"], 1)
        until(lambda: observed.extend((r.value or b"").decode() for r in watch.poll()) or "later" in observed)
    assert observed == [*good, "later"]
    assert values(control.read(1, log.end)) == ["later"]


def test_a_topic_recreated_is_printed_by_its_id_and_its_end(
    control: ControlTopic, admin: AdminClient, produce: Produce
) -> None:
    produce(control.name, ["a", "b", "c"], 0)
    before = control.read(0)
    delete_topic(admin, control.name)
    create_topic(admin, control.name)
    after = control.read(0, before.end)
    assert (after.records, after.begin, after.end, after.partitions) == ((), 0, 0, 1)
    assert after.topic_id != before.topic_id
    produce(control.name, ["x", "y", "z", "w"], 0)
    assert values(control.read(0, before.end)) == ["w"]


def test_all_partitions_are_read_in_order_of_time(control: ControlTopic, produce: Produce) -> None:
    # Not in 1970: records older than the topic's retention are missing within a second.
    first = int(time.time() * 1000) - 60_000
    for partition, later in ((2, 0), (0, 1000), (1, 2000), (0, 3000)):
        produce(control.name, [f"{partition}+{later}"], partition, timestamp=first + later)
    produce(control.name, ["never"], 1, transactional=True, outcome="abort")
    assert [r.value for r in control.read_all()] == [b"2+0", b"0+1000", b"1+2000", b"0+3000"]


# -- writing ----------------------------------------------------------------------------------------------------------


def test_a_later_writer_shuts_out_an_earlier_one_of_the_same_id(control: ControlTopic) -> None:
    name = "slot-" + control.name
    with control.writer(name, 0) as zombie, control.writer(name, 0) as heir:
        zombie.send(records("a"))
        heir.open()
        with pytest.raises(FencedError, match=f"{name}'.*LC2333"):
            zombie.send(records("zombie"))
        sent = heir.send(records("b"))
    assert values(control.read(0, until=sent[-1])) == ["a", "b"]


def test_who_keeps_what_a_client_raised_does_not_keep_the_client(control: ControlTopic) -> None:
    """Else it asks brokers for its coordinator until the process ends. The check for leftovers sees it."""
    name = "slot-" + control.name
    with control.writer(name, 0) as zombie, control.writer(name, 0) as heir:
        zombie.open()
        heir.open()
        with pytest.raises(FencedError) as raised:
            zombie.send(records("zombie"))
    KEPT.append(raised.value.__context__)


def test_a_later_writer_ends_what_an_earlier_process_left_open(bootstrap: str, control: ControlTopic) -> None:
    name = "left-" + control.name
    dead = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 600_000})
    dead.init_transactions(30)
    dead.begin_transaction()
    dead.produce(control.name, b"half", partition=0)
    assert dead.flush(30) == 0
    assert control.read(0).high == 1
    with control.writer(name, 0) as heir:
        sent = heir.send(records("whole"))
    assert values(control.read(0, until=sent[-1])) == ["whole"]


def test_writers_of_two_ids_interleave_and_neither_loses_a_record(control: ControlTopic) -> None:
    def write(run_identity: str) -> list[int]:
        with control.writer(f"{run_identity}-{control.name}", 0) as writer:
            return [
                offset
                for n in range(25)
                for offset in writer.send(records(f"{run_identity}{n}a", f"{run_identity}{n}b"))
            ]

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(write, ("left", "right"))
    log = control.read(0, until=max(left + right))
    by_offset = {r.offset: (r.value or b"").decode() for r in log.records}
    assert len(by_offset) == 100
    for run_identity, offsets in (("left", left), ("right", right)):
        assert [by_offset[offset] for offset in offsets] == [f"{run_identity}{n}{x}" for n in range(25) for x in "ab"]


def test_a_record_larger_than_the_topic_takes_is_refused_and_the_writer_goes_on(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    name = make_topic(1, max_message_bytes=2000)
    noise = random.Random(1).randbytes(5000)
    with ControlTopic(name, {"bootstrap.servers": bootstrap}) as control, control.writer("large-" + name, 0) as writer:
        with pytest.raises(WireError, match="LC2332"):
            writer.send([(b"k", b"small", []), (b"k", noise, [])])
        sent = writer.send(records("after"))
        assert values(control.read(0, until=sent[-1])) == ["after"]


def test_a_missing_topic_is_an_error_of_the_writer_too(bootstrap: str) -> None:
    control = ControlTopic(
        unique("missing"), {"bootstrap.servers": bootstrap, "topic.metadata.propagation.max.ms": 500}
    )
    with control.writer("x-" + control.name, 0) as writer, pytest.raises(ControlTopicError, match="LC2336"):
        writer.send(records("a"))


def test_a_transaction_that_the_broker_timed_out_ends_the_attempt(
    control: ControlTopic, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Dawdling(Producer):
        """Commits only when the broker has lost its patience."""

        def commit_transaction(self, *timeout: float) -> None:
            self.flush(PATIENCE)
            until(lambda: control.read(0).end > 0)
            super().commit_transaction(*timeout)

    monkeypatch.setattr(control_writer, "Producer", Dawdling)
    with control.writer("slow-" + control.name, 0, transaction_timeout=1) as writer:
        with pytest.raises(FencedError, match=r" 1 s.*LC2333"):
            writer.send(records("late"))
        monkeypatch.undo()
        # A busy machine may need more than the one second itself.
        monkeypatch.setattr(writer, "_transaction_timeout", 60.0)
        sent = writer.send(records("again"))
    assert values(control.read(0, until=sent[-1])) == ["again"]


def test_an_interrupted_send_does_not_hold_up_readers(control: ControlTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(Producer):
        def commit_transaction(self, *timeout: float) -> None:
            self.flush(30)
            raise KeyboardInterrupt

    monkeypatch.setattr(control_writer, "Producer", Interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        control.writer("interrupted-" + control.name, 0, transaction_timeout=600) as writer,
    ):
        writer.send(records("half"))
    log = control.read(0, until=1)
    assert (values(log), log.end) == ([], 2)


def test_a_broker_that_is_away_is_an_error_within_the_timeout() -> None:
    servers = f"127.0.0.1:{free_port()}"
    control = ControlTopic("control", {"bootstrap.servers": servers}, timeout=2)
    began = time.monotonic()
    with pytest.raises(ControlTopicError, match=rf"no answer from Kafka at {servers} within 2 s: .*refused.*LC2011"):
        control.describe()
    with (
        control.writer("tx", 0) as writer,
        pytest.raises(ControlTopicError, match=rf"opening .*{servers}.*refused.*LC2011"),
    ):
        writer.open()
    assert time.monotonic() - began < 60, "the client's own patience was waited for"


# -- a broker that stops ----------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_reader_and_writer_go_on_after_a_restart(fragile: ControlTopic, own_broker: Broker) -> None:
    with fragile.writer("restart-" + fragile.name, 0) as writer:
        first = fragile.read(0, until=writer.send(records("a"))[-1])
        own_broker.restart()
        second = fragile.read(0, first.end, until=writer.send(records("b"))[-1])
    assert (values(first), values(second)) == (["a"], ["b"])
    assert values(fragile.read(0)) == ["a", "b"]


def test_a_send_waits_for_a_broker_that_was_killed(fragile: ControlTopic, own_broker: Broker) -> None:
    with fragile.writer("killed-" + fragile.name, 0) as writer, ThreadPoolExecutor(1) as pool:
        writer.send(records("a"))
        own_broker.kill()
        sending = pool.submit(writer.send, records("b", "c"))
        own_broker.start()
        sent = sending.result(PATIENCE)
    assert values(fragile.read(0, until=sent[-1])) == ["a", "b", "c"]


@pytest.mark.heavy
def test_a_commit_without_an_answer_is_an_unknown_outcome_that_the_next_writer_settles(
    fragile: ControlTopic, own_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cut(Producer):
        """Its broker dies between the last record and the commit."""

        def commit_transaction(self, *timeout: float) -> None:
            if own_broker.pid is not None:
                self.flush(PATIENCE)
                own_broker.kill()
            super().commit_transaction(*timeout)

    with monkeypatch.context() as patched, fragile.writer("cut-" + fragile.name, 0, transaction_timeout=600) as writer:
        writer.send(records("a"))
        patched.setattr(control_writer, "Producer", Cut)
        with fragile.writer("cut-" + fragile.name, 0, transaction_timeout=600) as doomed:
            doomed.open()
            patched.setattr(doomed, "_timeout", 2.0)
            with pytest.raises(ControlTopicError, match="LC2334"):
                doomed.send(records("b"))
    own_broker.start()
    with fragile.writer("cut-" + fragile.name, 0) as heir:
        sent = heir.send(records("c"))
    log = fragile.read(0, until=sent[-1])
    assert values(log) == ["a", "c"]
    assert log.end == log.high
