# SPDX-License-Identifier: Apache-2.0
"""Records and batches that cannot be handled: each is blocked alone, by name; nothing else waits or is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.core.blocks import FAILURES_TO_BLOCK
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.exceptions import BlockedRangeError
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder
from airflow_provider_lakecommit.formats.decoder import Decoded
from airflow_provider_lakecommit.iceberg.parquet.fanout_writer import FanoutWriter
from airflow_provider_lakecommit.kafka import partition_tail
from airflow_provider_lakecommit.operations.decisions.unblock import blocked_parts, unblock
from airflow_provider_lakecommit.spark import read as slice_read
from airflow_provider_lakecommit.spark import slices as slice_work
from airflow_provider_lakecommit.spark.task import DEATHS_TO_REPORT, run_task
from airflow_provider_lakecommit.status.doctor.lake import headroom
from airflow_provider_lakecommit.status.status import read_status
from dev.servers.kafka import Broker
from tests.support import world as worlds
from tests.support.in_memory import TOPIC, memory_world
from tests.support.raw_records import alter, batches, flip
from tests.support.steps import check_verified
from tests.support.world import Killed, World, records

pytestmark = pytest.mark.faults

MakeWorld = Callable[..., World]
Produce = Callable[..., list[tuple[int, int]]]
POISON = b"poison"


def blocked(world: World) -> list[tuple[int, int, int]]:
    """Partition, first and last offset of what is blocked."""
    with world.session() as session:
        state = session.read_state(prepare_for_commit(session).ledgers).state
    return [(p.partition, r.start, r.end) for p, r in state.blocked_coverage.items()]


def skip(world: World) -> None:
    with world.session() as session:
        unblock(session, skip=True)


def send(world: World, ids: Sequence[int], *, partition: int = 0, codec: str = "none", name: str = "n") -> None:
    """One batch of records, compressed as told."""
    settings = {
        "bootstrap.servers": world.kafka["bootstrap.servers"],
        "compression.type": codec,
        "linger.ms": 10_000,
        "max.in.flight": 1,
    }
    producer = Producer({**settings, "batch.num.messages": max(1, len(ids))})
    for i in ids:
        value = json.dumps({"id": i, "name": f"{name}{i}"}).encode()
        producer.produce(str(world.landing.topics), value, partition=partition)
    assert producer.flush(60) == 0


@pytest.fixture
def spoilt(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Handling a record whose value has the word in it ends in an exception: while it is decoded, or written."""
    decode, write = JsonDecoder.decode, FanoutWriter.write

    def decoding(self: Any, values: Sequence[bytes]) -> Decoded:
        if any(POISON in v for v in values):
            raise OverflowError("date value out of range")
        return decode(self, values)

    def writing(self: Any, table: Any) -> None:
        if any(POISON.decode() in str(name) for name in table.column("name").to_pylist()):
            raise OverflowError("date value out of range")
        write(self, table)

    def spoil(where: str) -> None:
        if where == "decode":
            monkeypatch.setattr(JsonDecoder, "decode", decoding)
        else:
            monkeypatch.setattr(FanoutWriter, "write", writing)

    return spoil


@pytest.mark.heavy(but=("decode",))
@pytest.mark.parametrize("where", ["decode", "write"])
def test_a_record_that_brings_an_exception_is_blocked_alone(
    make_world: MakeWorld, produce: Produce, spoilt: Callable[[str], None], where: str
) -> None:
    """Four partitions share a slice; one record of one of them crashes its task each time."""
    world = make_world(partitions=4, slice_records=400, dead_letter_table=None)
    topic = str(world.landing.topics)
    for p in range(4):
        produce(topic, records(p * 100, 30), partition=p)
    produce(topic, [json.dumps({"id": 999, "name": "poison"})], partition=2)
    produce(topic, records(290, 10), partition=2)
    spoilt(where)

    world.run()
    good = Counter([*range(30), *range(100, 130), *range(200, 230), *range(300, 330)])
    world.check(good)
    for p in (0, 1, 3):
        produce(topic, records(p * 100 + 50, 5), partition=p)
        good.update(range(p * 100 + 50, p * 100 + 55))
    for _ in range(FAILURES_TO_BLOCK - 2):
        assert blocked(world) == []
        world.run()
        world.check(good)
    result = world.run()
    assert blocked(world) == [(2, 30, 31)]
    assert "OverflowError: date value out of range" in result.blocked[0]
    with world.session() as session:
        assert "[30, 31)" in read_status(session).blocked[0]
    produce(topic, records(400, 3), partition=0)
    good.update(range(400, 403))
    world.run()
    world.check(good)

    skip(world)
    world.settle()
    good.update(range(290, 300))
    world.check(good)
    check_verified(world)
    with pytest.raises(BlockedRangeError):
        skip(world)


@pytest.mark.heavy
def test_a_retry_of_the_same_cycle_does_only_what_failed(
    make_world: MakeWorld, produce: Produce, spoilt: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=2, slice_records=400, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, [*records(0, 10)], partition=0)
    produce(topic, [json.dumps({"id": 999, "name": "poison"})], partition=0)
    produce(topic, [*records(20, 10)], partition=1)
    with monkeypatch.context() as patch:
        patch.setattr(JsonDecoder, "decode", JsonDecoder.decode)
        spoilt("decode")
        opened = world.open("a")
        (first,) = world.write(opened)
        assert first.status == "failed"
        assert first.records == 20
    monkeypatch.undo()
    (second,) = world.write(opened)
    assert (second.status, second.records) == ("done", 1)
    assert world.write(opened) == []
    world.close("a", opened)
    world.check(Counter([*range(10), 999, *range(20, 30)]))
    check_verified(world)


DEADLY = """
import os
from airflow_provider_lakecommit.formats.decode_json import JsonDecoder

decode = JsonDecoder.decode

def decoding(self, values):
    if any(b"poison" in v for v in values):
        os.kill(os.getpid(), 9)
    return decode(self, values)

JsonDecoder.decode = decoding
"""


@pytest.mark.campaign
def test_a_record_that_kills_its_process_is_blocked_alone(
    make_world: MakeWorld, produce: Produce, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the system does to a process that takes too much memory; Spark has begun the task again."""
    (tmp_path / "deadly").mkdir()
    (tmp_path / "deadly" / "sitecustomize.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(str(tmp_path / "deadly"))
    monkeypatch.setattr(worlds, "run_task", partial(run_task, deaths=1))
    world = make_world(partitions=2, slice_records=400, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 3), partition=0)
    produce(topic, [*records(10, 1), json.dumps({"id": 999, "name": "poison"}), *records(12, 1)], partition=1)
    good = Counter([0, 1, 2, 10])
    for _ in range(FAILURES_TO_BLOCK):
        assert blocked(world) == []
        result = world.run()
        world.check(good)
    assert blocked(world) == [(1, 1, 2)]
    assert "was killed by signal 9" in result.blocked[0]
    skip(world)
    world.settle()
    world.check(good + Counter([12]))
    check_verified(world)


def test_slices_of_which_processes_die_whatever_is_tried_are_blocked_by_name(
    make_world: MakeWorld, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process apart, and the one that made it, and the next ones: an executor that is killed with all it holds."""
    world = make_world(partitions=2, slice_records=400, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 3), partition=0)
    produce(topic, records(10, 3), partition=1)

    def killed(*_: Any) -> None:
        raise Killed("with all around it")

    monkeypatch.setattr("airflow_provider_lakecommit.spark.slice_process.run_apart", killed)
    for n in range(FAILURES_TO_BLOCK):
        assert blocked(world) == []
        opened = world.open(str(n))
        with monkeypatch.context() as patch:
            patch.setattr(worlds, "run_task", partial(run_task, deaths=DEATHS_TO_REPORT))
            with pytest.raises(Killed):
                world.write(opened, only=lambda index: index == 0)
        # What several ranges died of together reports none of them: from then on each stands alone.
        assert len(opened.slices) == (2 if n == 1 else 1)
        world.write(opened, only=lambda index: index == 1)
        world.close(str(n), opened)
    assert blocked(world) == [(0, 0, 3)]
    world.check(Counter(range(10, 13)))
    with world.session() as session:
        assert f"{DEATHS_TO_REPORT} processes died at it" in read_status(session).blocked[0]


@pytest.mark.heavy
def test_a_process_that_died_once_counts_for_nothing_when_the_slice_is_done(
    make_world: MakeWorld, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor was taken away, more than once; what it had in hand is done by the next one."""
    monkeypatch.setattr("airflow_provider_lakecommit.spark.slice_process.run_apart", slice_work.run_slice)
    monkeypatch.setattr(worlds, "run_task", partial(run_task, deaths=DEATHS_TO_REPORT))
    world = make_world(partitions=1, dead_letter_table=None)
    for n in range(FAILURES_TO_BLOCK + 1):
        produce(str(world.landing.topics), records(n * 10, 10))
        world.run()
    world.check(Counter(range(10 * (FAILURES_TO_BLOCK + 1))))
    with world.session() as session:
        state = session.read_state(prepare_for_commit(session).ledgers).state
    assert (state.blocked, len(state.failed)) == ((), 0)


def test_storage_that_is_away_counts_for_nothing(
    make_world: MakeWorld, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(partitions=2)
    produce(str(world.landing.topics), records(0, 10), partition=0)

    def away(self: Any, table: Any) -> None:
        raise OSError("storage does not answer")

    with monkeypatch.context() as patch:
        patch.setattr(FanoutWriter, "write", away)
        for _ in range(FAILURES_TO_BLOCK + 1):
            world.run()
    assert blocked(world) == []
    world.settle()
    world.check(Counter(range(10)))


@pytest.mark.heavy(but=("True-none",))
@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
@pytest.mark.parametrize("last", [False, True])
def test_a_corrupt_batch_is_blocked_alone_and_can_be_stepped_over(
    make_world: MakeWorld, broker: Broker, codec: str, last: bool
) -> None:
    """A bit flips where the broker keeps the second of three batches, or the last of two."""
    world = make_world(partitions=2, slice_records=400)
    topic = str(world.landing.topics)
    send(world, range(10), codec=codec)
    send(world, range(10, 20), codec=codec)
    if not last:
        send(world, range(20, 30), codec=codec)
    send(world, range(100, 110), partition=1, codec=codec)
    at, first, end = batches(broker.directory, topic)[1]
    assert (first, end) == (10, 19)
    flip(broker.directory, topic, at + 61 + 30)

    good = Counter([*range(10), *range(100, 110)])
    for _ in range(FAILURES_TO_BLOCK):
        assert blocked(world) == []
        result = world.run()
        world.check(good)
    assert blocked(world) == [(0, 10, 20)]
    assert "SourceCorruptError" in result.blocked[0]
    assert f"{topic}[0]: offsets 10 to 19" in result.blocked[0]
    assert "restore" in result.blocked[0]
    assert "--skip" in result.blocked[0]
    skip(world)
    world.settle()
    world.check(good + Counter(() if last else range(20, 30)))
    check_verified(world)


@pytest.mark.heavy
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_that_are_larger_than_the_client_takes_are_blocked_alone(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    monkeypatch.setattr(slice_read, "TOO_LARGE_SECONDS", 0.5)
    monkeypatch.setattr(partition_tail, "PROBE_SECONDS", 1.0)
    world = make_world(partitions=2, slice_records=400)
    send(world, range(10), codec=codec)
    send(world, range(10, 13), codec=codec, name="".join(map(chr, range(0x4E00, 0x9000))) * 3)
    send(world, range(20, 30), codec=codec)
    send(world, range(100, 110), partition=1, codec=codec)
    whole = world.kafka
    small = {"receive.message.max.bytes": 100_000, "fetch.max.bytes": 90_000, "message.max.bytes": 90_000}
    world.kafka = {**whole, **small}

    good = Counter([*range(10), *range(100, 110)])
    for _ in range(FAILURES_TO_BLOCK):
        assert blocked(world) == []
        result = world.run()
        world.check(good)
    assert blocked(world) == [(0, 10, 13)]
    assert "receive.message.max.bytes" in result.blocked[0]
    skip(world)
    world.settle()
    world.check(good + Counter(range(20, 30)))
    check_verified(world)


@pytest.mark.heavy
def test_a_corrupt_batch_between_transactions_is_blocked_alone(
    make_world: MakeWorld, broker: Broker, produce: Produce
) -> None:
    world = make_world(partitions=2, slice_records=400)
    topic = str(world.landing.topics)
    for first in (0, 10, 20):
        produce(topic, records(first, 10), 0, transactional=True)
    at, first, end = batches(broker.directory, topic)[2]
    assert (first, end) == (11, 20)
    flip(broker.directory, topic, at + 61 + 30)
    for _ in range(FAILURES_TO_BLOCK):
        world.run()
        world.check(Counter(range(10)))
    assert blocked(world) == [(0, 11, 21)]
    skip(world)
    world.settle()
    world.check(Counter([*range(10), *range(20, 30)]))
    check_verified(world)


def test_corruption_that_is_fixed_is_read_again(make_world: MakeWorld, broker: Broker) -> None:
    world = make_world(partitions=2, slice_records=400)
    topic = str(world.landing.topics)
    for first in (0, 10, 20):
        send(world, range(first, first + 10))
    at, _, _ = batches(broker.directory, topic)[1]
    flip(broker.directory, topic, at + 61 + 30)
    world.run()
    world.check(Counter(range(10)))
    flip(broker.directory, topic, at + 61 + 30)
    world.settle()
    world.check(Counter(range(30)))
    check_verified(world)


def test_a_changed_byte_never_lands_as_another_value(make_world: MakeWorld, broker: Broker) -> None:
    world = make_world(partitions=2, slice_records=400)
    send(world, [12345])
    alter(broker.directory, str(world.landing.topics), b"12345", b"12344")
    world.run()
    world.check(Counter())


@pytest.mark.heavy(but=("0",))
@pytest.mark.parametrize("place", [0, 4, 8, 10, 11, 15, 16, 17, 22, 26, 60])
def test_any_byte_of_a_batchs_head(
    make_world: MakeWorld, broker: Broker, monkeypatch: pytest.MonkeyPatch, place: int
) -> None:
    """Offset, length, epoch, form, checksum, attributes, last offset, count: whatever a flipped bit makes of the middle
    batch, nothing lands that was not sent, nothing twice, and the table holds what it says. Where the broker itself
    loses a batch by it (an offset that becomes less) no client can tell.
    """
    monkeypatch.setattr(slice_read, "READ_TIMEOUT", 3.0)
    monkeypatch.setattr(
        slice_work, "SliceReader", lambda *a, **k: slice_read.SliceReader(*a, **{**k, "read_timeout": 3.0})
    )
    monkeypatch.setattr(partition_tail, "PROBE_SECONDS", 1.0)
    world = make_world(partitions=2, slice_records=400)
    topic = str(world.landing.topics)
    for first in (0, 10, 20):
        send(world, range(first, first + 10))
    send(world, range(100, 110), partition=1)
    at, _, _ = batches(broker.directory, topic)[1]
    flip(broker.directory, topic, at + place)
    for _ in range(FAILURES_TO_BLOCK):
        world.run()
    found = Counter(row["id"] for row in world.rows())
    assert found <= Counter([*range(30), *range(100, 110)])
    assert all(found[i] for i in range(100, 110))
    assert len(found) == 40 or blocked(world)
    check_verified(world)


def test_the_doctor_names_every_way_out_of_a_blocked_range(tmp_path: Path) -> None:
    schema = {"schema": [{"name": "id", "type": "long"}]}
    with memory_world(tmp_path, create=schema, dead_letter_table=None, dead_letter_max_ratio=0.0) as world:
        world.broker.produce(TOPIC, [*records(0, 3), ("k", "no json")], 0)
        for _ in range(FAILURES_TO_BLOCK + 1):
            world.run()
        with world.session() as session:
            (found,) = (each for each in headroom(session, None) if each.check == "blocked")
        for way in ("--retry", "--raise N", "--skip"):
            assert way in found.remedy


def test_deletes_of_an_upserting_landing_are_good_records(tmp_path: Path) -> None:
    """A range whose window has too many rejects, and in which the source deletes keys: to skip its bad records gives
    up none of the deletes.
    """
    columns = [{"name": "id", "type": "long", "required": True}, {"name": "name", "type": "string"}]
    upsert = {"upsert_key": ["id"], "upsert_deletes": "hard", "key": {"columns": ["id"], "format": "json"}}
    options = {"create": {"schema": columns}, "dead_letter_max_ratio": 0.25, "slice_records": 10}

    def changes(value: str | None, *ids: int) -> list[tuple[str, str | None]]:
        return [(json.dumps({"id": n}), value) for n in ids]

    good, bad = '{"name": "n"}', '{"name": 5}'
    with memory_world(tmp_path, **upsert, **options) as world:
        world.send(*changes(good, *range(6)))
        records = [*changes(bad, 10, 11), *changes(good, *range(12, 20)), *changes(bad, 20, 21, 22, 23)]
        world.broker.produce(TOPIC, [*records, *changes(None, *range(6))], 0)
        world.run()
        assert blocked(world) == [(0, 16, 26)]
        with world.session() as session:
            assert [(p.bad, p.good) for p in blocked_parts(session)] == [(4, 6)]
            unblock(session, skip=True, only_bad=True)
        world.settle()
        assert {row["id"] for row in world.rows()} == {*range(12, 20)}
        assert len(world.dead()) == 6
