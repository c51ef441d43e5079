# SPDX-License-Identifier: Apache-2.0
"""Bounded reads on a real broker: finished by position, never by count; what is missing is an error, not a hole."""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.model import Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SourceCorruptError, SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka import partition_tail
from airflow_provider_lakecommit.kafka.admin import topic_id_text
from airflow_provider_lakecommit.spark import read as slice_read
from airflow_provider_lakecommit.spark.chunks import Chunk, PartitionReading
from airflow_provider_lakecommit.spark.read import SliceReader
from airflow_provider_lakecommit.spark.unreadable import Unreadable
from dev.servers.kafka import Broker
from tests.fixtures.kafka import Sender, create_topic, delete_topic
from tests.support.raw_records import batches, flip

pytestmark = pytest.mark.integration

MakeTopic = Callable[..., str]
Produce = Callable[..., list[tuple[int, int]]]


def span(topic: str, start: int, end: int, partition: int = 0, topic_id: str = "") -> Span:
    return Span(SourcePartition(topic, partition, topic_id), OffsetRange(start, end))


def read(bootstrap: str, *spans: Span, **options: Any) -> list[Chunk]:
    with SliceReader({"bootstrap.servers": bootstrap}, spans, **options) as reader:
        return list(reader.read())


def records(chunks: Sequence[Chunk], index: int) -> list[Message]:
    """The records of one span."""
    return [m for c in chunks for r in c.runs if r.span == index for m in c.messages[r.start : r.end]]


def offsets(chunks: Sequence[Chunk], index: int = 0) -> list[int | None]:
    return [m.offset() for m in records(chunks, index)]


def id_of(admin: AdminClient, topic: str) -> str:
    """Id of the topic, as the broker names it."""
    return topic_id_text(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)


def test_a_span_in_the_middle_of_the_log_is_cut_exactly(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, [f"v{i}" for i in range(1000)])

    chunks = read(bootstrap, span(topic, 137, 842))

    assert offsets(chunks) == list(range(137, 842))
    assert [m.value() for c in chunks for m in c.messages][:2] == [b"v137", b"v138"]


def test_many_spans_share_a_consumer_and_several_of_one_partition_are_kept_apart(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic, other = make_topic(40), make_topic(1)
    for p in range(40):
        produce(topic, [f"{p}/{i}" for i in range(20)], partition=p)
    produce(other, [f"other {i}" for i in range(30)])
    spans = [span(topic, 3, 17, p) for p in range(40)] + [span(other, 0, 5), span(other, 10, 12), span(other, 25, 30)]

    chunks = read(bootstrap, *spans)

    for i, s in enumerate(spans):
        assert offsets(chunks, i) == list(range(s.range.start, s.range.end)), s
    assert {m.partition() for m in records(chunks, 7)} == {7}
    assert {m.topic() for i in (40, 41, 42) for m in records(chunks, i)} == {other}


def test_a_later_round_of_a_partition_does_not_inherit_the_position_of_the_one_before(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(2)
    for p in (0, 1):
        produce(topic, [f"{p}/{i}" for i in range(3000)], p)
    # While the long span is read, the consumer's position in the other partition goes far beyond the short one.
    spans = [
        span(topic, 0, 5),
        span(topic, 0, 2900, 1),
        span(topic, 5, 9),
        span(topic, 1000, 1400),
        span(topic, 20, 22),
    ]

    chunks = read(bootstrap, *spans)

    for i, s in enumerate(spans):
        assert offsets(chunks, i) == list(range(s.range.start, s.range.end)), s


def test_partitions_that_end_with_markers_are_read_to_their_end_next_to_others(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic(3)
    produce(topic, ["a", "b"], 0, transactional=True)  # 0 1, marker 2
    produce(topic, ["x"], 1, transactional=True, outcome="abort")  # 0, marker 1
    produce(topic, ["c"] * 700, 2)

    chunks = read(bootstrap, span(topic, 0, 3), span(topic, 0, 2, 1), span(topic, 100, 700, 2))

    assert [offsets(chunks, i) for i in range(3)] == [[0, 1], [], list(range(100, 700))]


def test_the_collector_of_cycles_is_as_it_was_after_a_read(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic, before = make_topic(), gc.get_threshold()
    produce(topic, ["a"] * 3)

    with SliceReader({"bootstrap.servers": bootstrap}, [span(topic, 0, 3)]) as reader:
        assert gc.get_threshold()[0] > before[0]
        list(reader.read())

    assert gc.get_threshold() == before


def test_the_collector_is_as_it_was_after_reads_that_overlapped(bootstrap: str, make_topic: MakeTopic) -> None:
    topic, before = make_topic(), gc.get_threshold()
    first, second = (SliceReader({"bootstrap.servers": bootstrap}, [span(topic, 0, 0)]) for _ in range(2))

    first.__enter__()
    with second:
        first.__exit__(None, None, None)
        assert gc.get_threshold()[0] > before[0]

    assert gc.get_threshold() == before


def test_an_empty_span_needs_nothing(bootstrap: str, make_topic: MakeTopic) -> None:
    assert read(bootstrap, span(make_topic(), 0, 0)) == []


def test_aborted_transactions_and_markers_are_passed_by_position(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"], 0, transactional=True)  # 0 1, marker 2
    produce(topic, ["x", "y"], 0, transactional=True, outcome="abort")  # 3 4, marker 5
    produce(topic, ["c"], 0, transactional=True)  # 6, marker 7

    assert offsets(read(bootstrap, span(topic, 0, 8))) == [0, 1, 6]
    assert offsets(read(bootstrap, span(topic, 2, 6))) == []
    assert offsets(read(bootstrap, span(topic, 3, 7))) == [6]


def test_an_open_transaction_ends_the_readable_log(bootstrap: str, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"], 0)
    produce(topic, ["x"], 0, transactional=True, outcome="open")

    assert offsets(read(bootstrap, span(topic, 0, 2))) == [0, 1]
    with pytest.raises(SourceError, match=r"the partition ends at 2.*LC5030"):
        read(bootstrap, span(topic, 0, 3))


def test_a_log_shorter_than_planned_is_an_error_that_names_the_span(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 5)

    with pytest.raises(SourceError, match=rf"{topic}\[0\]\[2, 9\) .*5.*reset offsets.*LC5030"):
        read(bootstrap, span(topic, 2, 9))


def test_a_start_beyond_the_log_is_an_error(bootstrap: str, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 5)

    with pytest.raises(SourceError, match=r"\[7, 9\).*7:.*\[0, 5\).*LC5054"):
        read(bootstrap, span(topic, 7, 9))


def test_offsets_removed_by_retention_are_an_error(
    bootstrap: str, make_topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 10)
    admin.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0, 6)].result(30)

    with pytest.raises(SourceError, match=r"offsets 4 to 5.*6.*blocked SPEC --skip.*LC5053"):
        read(bootstrap, span(topic, 4, 9))
    assert offsets(read(bootstrap, span(topic, 6, 9))) == [6, 7, 8]


def test_a_topic_made_anew_is_not_the_one_that_was_planned(
    bootstrap: str, make_topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 3)
    planned = id_of(admin, topic)

    assert offsets(read(bootstrap, span(topic, 0, 3, topic_id=planned))) == [0, 1, 2]
    with pytest.raises(SourceError, match=r"another-id.*LC5045"):
        read(bootstrap, span(topic, 0, 3, topic_id="another-id"))


def test_a_topic_made_anew_while_it_is_read_is_noticed(
    bootstrap: str, make_topic: MakeTopic, produce: Produce, admin: AdminClient
) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 3)
    planned = id_of(admin, topic)

    with SliceReader({"bootstrap.servers": bootstrap}, [span(topic, 0, 3, topic_id=planned)]) as reader:
        chunks = reader.read()
        next(chunks)
        delete_topic(admin, topic)
        with pytest.raises(SourceError, match=topic):
            list(chunks)


@pytest.mark.parametrize(("partition", "message"), [(0, "check that the topics exist"), (3, "has only 1 partitions")])
def test_a_topic_or_partition_that_is_not_there_is_an_error(
    bootstrap: str, make_topic: MakeTopic, partition: int, message: str
) -> None:
    topic = make_topic() if partition else "never-made"
    with pytest.raises(SourceError, match=message):
        read(bootstrap, span(topic, 0, 3, partition))


def test_brokers_that_do_not_answer_are_unavailable_not_empty() -> None:
    with pytest.raises(SourceUnavailableError, match="LC5048"):
        read("127.0.0.1:1", span("orders", 0, 3), check_seconds=2.0)


def test_chunks_are_bounded_by_bytes_and_a_huge_record_is_alone(
    bootstrap: str, make_topic: MakeTopic, produce: Produce
) -> None:
    topic = make_topic()
    sizes = [10, 400, 400, 5000, 10, 300, 300, 300, 300]
    produce(topic, ["x" * n for n in sizes], partition=0)

    chunks = read(bootstrap, span(topic, 0, len(sizes)), batch_bytes=1000)

    assert [m.offset() for c in chunks for m in c.messages] == list(range(len(sizes)))
    held = [sum(len(m) for m in c.messages) for c in chunks]
    assert all(n <= 1000 for n in held if n != 5000)
    assert 5000 in held


@pytest.mark.heavy(but=("0-*",))
@pytest.mark.parametrize(
    ("other", "message"),
    [(0, r"the record at {topic}\[0\]@2, "), (3, r"one of the records at {topic}\[0\]@2, {topic}\[1\]@")],
)
def test_a_record_larger_than_the_client_takes_is_named_with_the_setting(
    bootstrap: str, make_topic: MakeTopic, produce: Produce, monkeypatch: pytest.MonkeyPatch, other: int, message: str
) -> None:
    monkeypatch.setattr(slice_read, "TOO_LARGE_SECONDS", 0.5)
    topic = make_topic(2)
    produce(topic, ["a", "b"], partition=0)
    produce(topic, ["x" * 300_000], partition=0)
    produce(topic, ["y" * 300_000] * other, partition=1)
    small = {"receive.message.max.bytes": 100_000, "fetch.max.bytes": 90_000, "message.max.bytes": 90_000}
    spans = [span(topic, 0, 3), *([span(topic, 0, other, 1)] if other else [])]

    with (
        SliceReader({"bootstrap.servers": bootstrap, **small}, spans) as reader,
        pytest.raises(SourceError, match=message.format(topic=topic) + r".*raise receive\.message\.max\.bytes"),
    ):
        list(reader.read())

    assert offsets(read(bootstrap, *spans)) == [0, 1, 2]


def test_the_proof_cannot_be_configured_away(bootstrap: str, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["x"], 0, transactional=True, outcome="abort")
    produce(topic, ["a"] * 2, 0)
    settings = {
        "bootstrap.servers": bootstrap,
        "isolation.level": "read_uncommitted",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": False,
        "enable.auto.commit": True,
        "fetch.max.bytes": 1_000_000,
    }

    with SliceReader(settings, [span(topic, 0, 4)]) as reader:
        assert offsets(list(reader.read())) == [2, 3]
    with SliceReader(settings, [span(topic, 6, 9)]) as reader, pytest.raises(SourceError, match=r" at 6.*LC5054"):
        list(reader.read())


def test_a_reader_stops_when_reported_and_reports_it(bootstrap: str, make_topic: MakeTopic, produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["a"] * 2000)
    answers = iter([False, True])

    with SliceReader(
        {"bootstrap.servers": bootstrap}, [span(topic, 0, 2000)], should_stop=lambda: next(answers)
    ) as reader:
        read_so_far = offsets(list(reader.read()))

    assert reader.stopped
    assert len(read_so_far) < 2000


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Broker]:
    """One that a test may stop for as long as it takes: its controller shuts a silent broker out after seconds."""
    with Broker(tmp_path / "kafka") as running:
        yield running


@pytest.mark.heavy
def test_a_broker_that_falls_silent_is_reported_after_the_read_timeout(own_broker: Broker) -> None:
    broker, topic, sender = own_broker, "silent", Sender(own_broker.bootstrap)
    create_topic(AdminClient({"bootstrap.servers": broker.bootstrap}), topic)
    sender.produce(topic, ["a" * 1000] * 3000)
    sender.close()
    narrow = {"bootstrap.servers": broker.bootstrap, "fetch.max.bytes": 20_000, "queued.min.messages": 20}
    narrow |= {"message.max.bytes": 10_000, "max.partition.fetch.bytes": 20_000}
    pid = broker.pid
    assert pid is not None

    with SliceReader(narrow, [span(topic, 0, 3000)], batch_records=10, read_timeout=3.0) as reader:
        chunks = reader.read()
        next(chunks)
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(SourceUnavailableError, match=r" 3 s at offset \d+.*LC5057"):
                list(chunks)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.heavy
@pytest.mark.parametrize("place", [pytest.param(8, id="longer than the log"), pytest.param(11, id="another length")])
def test_a_batch_of_another_length_is_corruption_long_before_the_read_timeout(
    own_broker: Broker, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """The brokers answer each request at once, and may give nothing, of which the client says nothing."""
    monkeypatch.setattr(slice_read, "WITHHELD_SECONDS", 1.0, raising=False)
    monkeypatch.setattr(partition_tail, "PROBE_SECONDS", 1.0)
    topic = "shorter"
    create_topic(AdminClient({"bootstrap.servers": own_broker.bootstrap}), topic)
    for _ in range(3):
        sender = Sender(own_broker.bootstrap)
        sender.produce(topic, ["v"] * 10)
        sender.close()
    at, first, _ = batches(own_broker.directory, topic)[1]
    flip(own_broker.directory, topic, at + place)
    began = time.monotonic()
    with pytest.raises(SourceCorruptError, match=rf"offsets {first} to .*LC5003"):
        read(own_broker.bootstrap, span(topic, 0, 30), read_timeout=60.0)
    assert time.monotonic() - began < 55.0


def test_a_client_that_a_quota_holds_back_is_not_reported_as_corruption() -> None:
    reading = PartitionReading(index=0, span=span("orders", 0, 10), position=5)
    trouble = Unreadable(1.0, 60.0)
    trouble.throttled(None)
    with Consumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "asks nobody"}) as asking:
        assert trouble.withheld(reading, asking) is None


@pytest.mark.heavy
def test_what_comes_late_is_read_on(bootstrap: str, make_topic: MakeTopic, produce: Produce) -> None:
    """A check for corruption in mid-read costs no record: it does not move the client's position."""
    topic = make_topic()
    produce(topic, [f"v{i}" for i in range(3000)])
    with SliceReader({"bootstrap.servers": bootstrap}, [span(topic, 0, 3000)], batch_records=100) as reader:
        chunks = []
        for chunk in reader.read():
            chunks.append(chunk)
            reading = PartitionReading(
                index=0, span=span(topic, 0, 3000), position=sum(len(c.messages) for c in chunks)
            )
            if not reading.done:
                reader._find_corruption([reading])
    assert offsets(chunks) == list(range(3000))
