# SPDX-License-Identifier: Apache-2.0
"""The reader of slices reads the same from brokers and from the cluster in memory that tests use in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.model import ReadPosition, Span
from airflow_provider_lakecommit.core.offsets import OffsetRange, SourcePartition
from airflow_provider_lakecommit.exceptions import SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics
from airflow_provider_lakecommit.spark.read import SliceReader
from tests.fakes.broker import MemoryBroker, MemoryReader
from tests.fixtures.kafka import Sender, unique
from tests.support.campaign.real import RealCluster

pytestmark = pytest.mark.integration

Read = Callable[..., list[tuple[int, bytes | None, bytes | None]]]


@pytest.fixture
def cluster(bootstrap: str, admin: AdminClient) -> Iterator[RealCluster]:
    sender = Sender(bootstrap)
    yield RealCluster(admin, sender, MemoryBroker())
    sender.close()


@pytest.fixture
def topic(cluster: RealCluster, admin: AdminClient) -> Iterator[str]:
    """Two records, three of an aborted transaction, and two more."""
    name = unique("alike")
    cluster.create(name, 1)
    cluster.produce(name, [("a", "1"), ("b", "2")], 0)
    cluster.produce(name, [("x", "0")] * 3, 0, aborted=True)
    cluster.produce(name, [("c", "3"), ("d", "4")], 0)
    yield name
    admin.delete_topics([name])


@pytest.fixture
def ids(bootstrap: str, cluster: RealCluster, topic: str) -> tuple[str, str]:
    """The topic's id on the brokers, and in memory."""
    with SourceTopics({"bootstrap.servers": bootstrap}, (topic,)) as source:
        return source.watermarks().topic_ids[topic], cluster.logs.topics[topic].topic_id


@pytest.fixture(params=["memory", "real"])
def read(
    request: pytest.FixtureRequest, bootstrap: str, cluster: RealCluster, topic: str, ids: tuple[str, str]
) -> Read:
    def records(start: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
        spans = [Span(SourcePartition(topic, 0, ids[request.param == "memory"]), OffsetRange(start, end))]
        kafka = {"bootstrap.servers": bootstrap}
        reader = MemoryReader(cluster.logs, spans) if request.param == "memory" else SliceReader(kafka, spans)
        with reader:
            found = [m for chunk in reader.read() for m in chunk.messages]
        assert (reader.stopped, dict(reader.reached)) == (False, {0: end})
        # What an aborted transaction leaves behind the last record tells no epoch.
        behind = ReadPosition(offset=found[-1].offset() + 1, leader_epoch=0) if found else None
        assert reader.observed.get(0) == behind
        return [(m.offset(), m.key(), m.value()) for m in found]

    return records


def test_records_are_read_without_those_of_aborted_transactions(read: Read) -> None:
    everything = [(0, b"a", b"1"), (1, b"b", b"2"), (6, b"c", b"3"), (7, b"d", b"4")]
    assert read(0, 8) == everything
    assert read(1, 7) == everything[1:3]
    assert read(2, 6) == []
    assert read(0, 5) == read(0, 6) == everything[:2]


def test_offsets_that_retention_removed_are_named(read: Read, cluster: RealCluster, topic: str) -> None:
    cluster.remove_before(topic, 0, 2)
    with pytest.raises(SourceError) as refused:
        read(0, 8)
    assert [s.range for s in refused.value.spans] == [OffsetRange(0, 2)]
    assert len(read(2, 8)) == 2


def test_a_span_beyond_the_end_of_the_log_is_refused(read: Read) -> None:
    with pytest.raises(SourceError):
        read(6, 9)


def test_a_topic_that_was_made_anew_is_another_one(read: Read, cluster: RealCluster, topic: str) -> None:
    cluster.create(topic, 1)
    cluster.produce(topic, [("e", "5")] * 8, 0)
    with pytest.raises(SourceError, match="LC5045"):
        read(0, 8)
