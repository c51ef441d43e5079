# SPDX-License-Identifier: Apache-2.0
"""Retention headroom, asked of a real broker while a cycle is opened and for `status`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.cycle.plan.headroom_watch import Watch, request
from airflow_provider_lakecommit.kafka.admin import ClusterAdmin
from airflow_provider_lakecommit.status.status import Status, read_status, to_dict
from tests.support.declared import landing_of
from tests.support.waiting import until
from tests.support.world import SCHEMA, World, catalog_in, records

pytestmark = pytest.mark.integration

Produce = Callable[..., list[tuple[int, int]]]
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked has its answer in time: a plan waits for 50 ms, which a busy broker may exceed."""
    monkeypatch.setattr(Watch.found, "__defaults__", (60.0,))
    monkeypatch.setattr(request, "__kwdefaults__", {"timeout": 60.0})
    monkeypatch.setattr("airflow_provider_lakecommit.status.status.HEADROOM_SECONDS", 60.0)


@pytest.fixture
def world(tmp_path: Path, bootstrap: str, make_topic: Callable[..., str], control_topic: str) -> World:
    """A landing of a topic that keeps records for a week; what is landed is landed."""
    topic = make_topic(2, retention_ms=7 * 86_400_000)
    landing = landing_of(name="rows", table="shop.rows", topics=topic, create=SCHEMA, control_topic=control_topic)
    return World(landing=landing, kafka={"bootstrap.servers": bootstrap}, catalog=catalog_in(tmp_path))


def ago(time: timedelta) -> int:
    return int((datetime.now(UTC) - time).timestamp() * 1000)


def status(world: World, every: timedelta | None = None) -> Status:
    with world.session() as session:
        return read_status(session, every)


def set_topic(admin: AdminClient, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)
    # The controller has it then; the broker that is asked hears of it a moment later.
    topic_settings = ConfigResource(ResourceType.TOPIC, topic)
    until(lambda: admin.describe_configs([topic_settings])[topic_settings].result(30)[key].value == value)


def test_the_oldest_unread_offset_expires_a_retention_after_its_timestamp(world: World, produce: Produce) -> None:
    topic = str(world.landing.topics)
    produce(topic, records(0, 5), partition=0, timestamp=ago(6 * DAY))
    world.run()
    produce(topic, records(5, 1), partition=0, timestamp=ago(3 * DAY))
    produce(topic, records(6, 5), partition=0)
    found = status(world)
    (unread, idle) = (p.headroom for p in found.partitions)
    assert idle is None
    assert unread is not None
    assert unread.offset == 5
    assert unread.left is not None
    assert 4 * DAY - HOUR * 2 < unread.left <= 4 * DAY
    assert found.warnings == ()
    answer = json.loads(json.dumps(to_dict(found)))["partitions"][0]["headroom"]
    assert answer["oldest_unread"] == 5
    assert answer["known"]
    assert answer["expires_at"] == unread.expires_at.isoformat()  # type: ignore[union-attr]
    assert status(world, every=3 * DAY).warnings[0].startswith(f"{topic}[0]: the oldest unread offset 5 expires in 3 d")


def test_a_plan_reports_it_in_its_log_and_warns_when_it_is_short(world: World, produce: Produce) -> None:
    topic = str(world.landing.topics)
    produce(topic, records(0, 5), partition=0)
    explain = world.open("a", release=False).explain
    assert "oldest unread offset 0 expires in 6 d 2" in explain[-1]
    assert not any("WARNING" in line for line in world.lines)
    produce(topic, records(5, 5), partition=1, timestamp=ago(7 * DAY - HOUR / 2))
    (short,) = [line for line in world.open("b").explain if "oldest unread" in line]
    assert short.startswith(f"{topic}[1]: the oldest unread offset 0 may expire within ")
    assert "less than 1 h (window.completion_timeout, or two runs)" in short
    assert f"WARNING: {short}" in world.lines


def test_what_is_never_removed_and_what_goes_by_size_is_reported(
    world: World, produce: Produce, admin: AdminClient
) -> None:
    topic = str(world.landing.topics)
    produce(topic, records(0, 5), partition=0)
    world.open("a")
    set_topic(admin, topic, "retention.ms", "-1")
    set_topic(admin, topic, "retention.bytes", "1000000")
    assert "never removed for its age" in str(status(world).shortest)
    assert "by size: unknown (retention.bytes=1000000)" in str(status(world).shortest)
    set_topic(admin, topic, "cleanup.policy", "compact")
    assert "compacted" in str(status(world).shortest)


def test_settings_that_may_not_be_read_make_it_unknown_and_stop_nothing(
    world: World, produce: Produce, monkeypatch: pytest.MonkeyPatch
) -> None:
    produce(str(world.landing.topics), records(0, 5), partition=0)
    real = ClusterAdmin.request_settings
    monkeypatch.setattr(
        ClusterAdmin, "request_settings", lambda self, topics: real(self, [f"{t}-none" for t in topics])
    )
    explain = world.open("a").explain
    assert "unknown time (the topic's settings were not readable" in explain[-1]
    found = status(world)
    assert found.shortest is not None
    assert not to_dict(found)["partitions"][0]["headroom"]["known"]
    assert found.warnings == ()


def test_asking_does_not_wait(world: World, produce: Produce) -> None:
    """What has no answer in time is unknown, and no error."""
    produce(str(world.landing.topics), records(0, 5), partition=0)
    world.open("a", release=False)
    with world.session() as session:
        session.source.request_retention()
        source = session.source.watermarks()
        watch = request(session, session.read_state(prepare_for_commit(session).ledgers).state, source, HOUR)
        (unknown,) = watch.found(-1000.0)
    assert unknown.offset == 0
    assert unknown.retention is not None
