# SPDX-License-Identifier: Apache-2.0
"""The parts that all other integration tests stand on behave as those tests assume."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyiceberg.catalog import Catalog

from dev.servers.kafka import Broker, BrokerError
from dev.servers.server import PortTakenError, free_port
from tests.fixtures.kafka import Sender, create_topic

pytestmark = [pytest.mark.integration, pytest.mark.long]


def values_of(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    """The first *count* committed values of partition 0."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    try:
        return [message.value() for message in consumer.consume(count, timeout=120)]
    finally:
        consumer.close()


def end_of(admin: AdminClient, topic: str, level: IsolationLevel) -> int:
    partition = TopicPartition(topic, 0)
    return admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition].result(30).offset


@pytest.mark.heavy
def test_a_killed_broker_comes_back_on_its_port_with_its_records(tmp_path: Path) -> None:
    with Broker(tmp_path / "kafka") as broker:
        before, first = broker.bootstrap, broker.pid
        admin = AdminClient({"bootstrap.servers": before})
        create_topic(admin, "kept")
        Sender(before).produce("kept", ["a", "b"])
        broker.kill()
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap == before
        assert broker.pid not in (None, first)
        assert values_of(before, "kept", 2) == [b"a", b"b"]
    assert broker.pid is None


def test_a_broker_is_found_again_by_its_directory_and_only_its_own_process_is_stopped(broker: Broker) -> None:
    same = Broker(broker.directory)
    assert same.pid == broker.pid
    stale = Broker(broker.directory.parent / "stale")
    stale.directory.mkdir()
    # The id that it recorded has been given to another process since.
    (stale.directory / "processes.json").write_text(json.dumps({"broker": [broker.pid, time.time() - 3600]}))
    assert stale.pid is None
    stale.stop()
    assert broker.pid is not None


def test_a_broker_that_cannot_start_reports_why(tmp_path: Path) -> None:
    broken = Broker(tmp_path / "kafka", port=free_port(), properties={"node.id": "no number"})
    with pytest.raises(BrokerError, match="no number"):
        broken.start()
    assert broken.pid is None


def test_a_port_given_and_taken_is_an_error(broker: Broker, tmp_path: Path) -> None:
    with pytest.raises(PortTakenError, match="Address already in use"):
        Broker(tmp_path / "second", port=broker.port).start()


def test_records_carry_key_value_and_position(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., list[tuple[int, int]]]
) -> None:
    topic = make_topic()
    assert produce(topic, [("k", {"id": 1}), b"raw", None]) == [(0, 0), (0, 1), (0, 2)]
    assert values_of(bootstrap, topic, 3) == [b'{"id":1}', b"raw", None]


@pytest.mark.parametrize(("outcome", "stable"), [("commit", 3), ("abort", 3), ("open", 0)])
def test_transactions_end_as_requested(
    outcome: str,
    stable: int,
    admin: AdminClient,
    make_topic: Callable[..., str],
    produce: Callable[..., list[tuple[int, int]]],
) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"], transactional=True, outcome=outcome)
    assert end_of(admin, topic, IsolationLevel.READ_COMMITTED) == stable
    assert end_of(admin, topic, IsolationLevel.READ_UNCOMMITTED) == (2 if outcome == "open" else 3)


def test_an_unknown_topic_is_refused(bootstrap: str) -> None:
    with pytest.raises((KafkaException, RuntimeError)):
        Sender(bootstrap, unknown_topic_ms=1000).produce("nobody-made-this", ["x"])


def test_every_test_has_a_catalog_of_its_own(catalog: Catalog) -> None:
    assert catalog.list_namespaces() == [("shop",)]
    assert catalog.list_tables("shop") == []


@pytest.mark.heavy
def test_spark_moves_arrow_batches_through_python(spark: object) -> None:
    def double(batches: object) -> object:
        import pyarrow as pa

        for batch in batches:  # type: ignore[attr-defined]
            yield pa.RecordBatch.from_arrays([pa.array([value.as_py() * 2 for value in batch.column(0)])], ["id"])

    rows = spark.range(0, 4, 1, 2).mapInArrow(double, "id long").collect()  # type: ignore[attr-defined]
    assert sorted(row.id for row in rows) == [0, 2, 4, 6]


def test_sigterm_ends_pytest_as_an_interrupt() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
