# SPDX-License-Identifier: Apache-2.0
"""How far the source topics reach, asked of a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.core.planning.missing import Watermark
from airflow_provider_lakecommit.exceptions import SourceError, SourceUnavailableError
from airflow_provider_lakecommit.kafka.source_topic import SourceState, SourceTopics
from dev.servers.server import free_port
from tests.fixtures.kafka import add_partitions, create_topic, delete_topic

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]


def state_of(bootstrap: str, *topics: str) -> SourceState:
    # The settings of an ordinary consumer, none of which may change what is seen.
    config = {"bootstrap.servers": bootstrap, "group.id": "x", "isolation.level": "read_uncommitted"}
    with SourceTopics(config, topics) as source:
        return source.watermarks()


def marks_of(bootstrap: str, topic: str) -> list[Watermark]:
    state = state_of(bootstrap, topic)
    return [state.partitions[place] for place in sorted(state.partitions)]


def test_every_partition_of_every_topic_is_there_with_its_topics_id(
    bootstrap: str, admin: AdminClient, make_topic: Callable[..., str], produce: Produce
) -> None:
    first, second = make_topic(3), make_topic(1)
    produce(first, ["a", "b"], partition=1)
    before = datetime.now(UTC)
    state = state_of(bootstrap, first, second)
    assert before <= state.requested_at <= datetime.now(UTC)
    assert state.cluster_id == admin.describe_cluster().result(30).cluster_id
    assert {(p.topic, p.partition): (m.start, m.stable, m.high) for p, m in state.partitions.items()} == {
        (first, 0): (0, 0, 0),
        (first, 1): (0, 2, 2),
        (first, 2): (0, 0, 0),
        (second, 0): (0, 0, 0),
    }
    assert set(state.topic_ids) == {first, second}
    assert state.topic_ids[first] != state.topic_ids[second]


def test_a_topic_that_is_not_there_is_reported_with_the_one_that_may_be_meant(
    bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic()
    with pytest.raises(SourceError, match=rf"topic '{topic}s' \(did you mean '{topic}'\?\).*LC2006"):
        state_of(bootstrap, f"{topic}s")


def test_an_open_transaction_holds_the_stable_end_below_the_high_watermark(
    bootstrap: str, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"], transactional=True)
    produce(topic, ["c"], transactional=True, outcome="open")
    produce(topic, ["d"])
    assert marks_of(bootstrap, topic) == [Watermark(start=0, stable=3, high=5)]


def test_aborted_records_count_as_offsets(bootstrap: str, make_topic: Callable[..., str], produce: Produce) -> None:
    topic = make_topic()
    produce(topic, ["a", "b"], transactional=True, outcome="abort")
    assert marks_of(bootstrap, topic) == [Watermark(start=0, stable=3, high=3)]


def test_a_deleted_head_moves_the_start(
    bootstrap: str, admin: AdminClient, make_topic: Callable[..., str], produce: Produce
) -> None:
    topic = make_topic()
    produce(topic, ["a", "b", "c"])
    admin.delete_records([TopicPartition(topic, 0, 2)])[TopicPartition(topic, 0)].result(30)
    assert marks_of(bootstrap, topic) == [Watermark(start=2, stable=3, high=3)]


def test_a_topic_made_anew_has_another_id(bootstrap: str, admin: AdminClient, make_topic: Callable[..., str]) -> None:
    topic = make_topic()
    [before] = state_of(bootstrap, topic).partitions
    delete_topic(admin, topic)
    create_topic(admin, topic)
    [after] = state_of(bootstrap, topic).partitions
    assert (after.topic, after.partition) == (before.topic, before.partition)
    assert after.topic_id != before.topic_id


def test_added_partitions_are_observed_at_the_next_check(
    bootstrap: str, admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    with SourceTopics({"bootstrap.servers": bootstrap}, (topic,)) as source:
        [only] = source.watermarks().partitions
        add_partitions(admin, topic, 3)
        assert set(source.watermarks().partitions) == {SourcePartition(topic, n, only.topic_id) for n in range(3)}


def test_a_missing_topic_is_named_with_a_remedy(bootstrap: str, make_topic: Callable[..., str]) -> None:
    there = make_topic()
    with pytest.raises(SourceError, match=r"no-such-topic.*`topics`.*LC2006") as raised:
        state_of(bootstrap, there, "no-such-topic")
    assert bootstrap in str(raised.value)
    with SourceTopics({"bootstrap.servers": bootstrap}, (there, "no-such-topic")) as source:
        state = source.watermarks(missing_ok=True)
    assert state.missing_topics == ("no-such-topic",)
    assert [p.topic for p in state.partitions] == [there]


def test_a_name_that_kafka_does_not_take_is_an_error_at_once(bootstrap: str) -> None:
    with pytest.raises(SourceError, match=r"no/such.*LC2012"):
        state_of(bootstrap, "no/such")


def test_a_broker_that_is_away_is_reported_within_the_timeout_with_the_cause() -> None:
    servers = f"127.0.0.1:{free_port()}"
    began = time.monotonic()
    with (
        SourceTopics({"bootstrap.servers": servers}, ("t",), timeout=2) as source,
        pytest.raises(SourceUnavailableError, match=rf"{servers} within 2 s: .*refused.*LC2011"),
    ):
        source.watermarks()
    assert time.monotonic() - began < 60, "the client's own patience was waited for"


def test_an_unknown_name_is_distinguished_from_a_dead_broker() -> None:
    # Longer than a name may be: no name server is asked, which may take its time to say no.
    servers = f"{'kafka' * 13}.invalid:9092"
    with (
        SourceTopics({"bootstrap.servers": servers}, ("t",), timeout=2) as source,
        pytest.raises(SourceUnavailableError, match=rf"{servers}.*resolve.*LC2011"),
    ):
        source.watermarks()


def test_a_refused_login_is_reported_at_once_and_without_the_password(bootstrap: str) -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "jane",
        "sasl.password": "hunter2",
    }
    began = time.monotonic()
    with (
        SourceTopics(config, ("t",), timeout=240) as source,
        pytest.raises(SourceUnavailableError, match=r"SASL.*security\.protocol.*LC2010") as raised,
    ):
        source.watermarks()
    assert time.monotonic() - began < 200, "it was tried again"
    assert "hunter2" not in str(raised.value)
