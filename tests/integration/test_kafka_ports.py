# SPDX-License-Identifier: Apache-2.0
"""One contract for the real control topic and source, and for the fakes that unit tests use in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.core.model import ReadPosition
from airflow_provider_lakecommit.core.offsets import SourcePartition
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND
from airflow_provider_lakecommit.cycle.session.ports import ControlPort, SourcePort
from airflow_provider_lakecommit.cycle.sets.shared_control import SharedControl
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError, SourceError
from airflow_provider_lakecommit.kafka.source_topic import SourceTopics
from tests.fakes.broker import MemoryBroker
from tests.fakes.kafka import FakeControl, FakeSource
from tests.support.waiting import until

# Named here, as the broker and its clients are to run before a test that requests it while it runs: they outlive it.
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("make_topic", "produce")]

ONE, TWO = (b"k", b"one", (("v", b"1"), ("v", b"2"))), (b"k", b"two", ())


@pytest.fixture(params=["fake", "real", "shared"])
def control(request: pytest.FixtureRequest) -> Iterator[ControlPort]:
    if request.param == "fake":
        yield FakeControl(partitions=3)
        return
    name, bootstrap = request.getfixturevalue("control_topic"), request.getfixturevalue("bootstrap")
    with ControlTopic(name, {"bootstrap.servers": bootstrap}, timeout=60) as opened:
        if request.param == "real":
            yield opened
            return
        shared = SharedControl(opened, "a-set", "")
        yield shared.of("rows")
        shared.close()


@pytest.fixture(params=["fake", "memory", "real"])
def source(request: pytest.FixtureRequest) -> Iterator[SourcePort]:
    """A topic of two partitions with three records in the first."""
    if request.param == "memory":
        broker = MemoryBroker()
        broker.create("orders", 2)
        broker.produce("orders", [("k", text) for text in "abc"], 0)
        yield broker.source(("orders",))
        return
    if request.param == "fake":
        yield FakeSource({SourcePartition("orders", 0, "id"): 3, SourcePartition("orders", 1, "id"): 0})
        return
    topic = request.getfixturevalue("make_topic")(2)
    produce: Callable[..., Any] = request.getfixturevalue("produce")
    produce(topic, ["a", "b", "c"], 0)
    with SourceTopics({"bootstrap.servers": request.getfixturevalue("bootstrap")}, (topic,)) as opened:
        yield opened


def test_a_position_holds_if_the_log_has_its_leader_epoch_up_to_there(source: SourcePort) -> None:
    (one, mark), _ = sorted(source.watermarks().partitions.items())
    assert (mark.high, mark.leader_epoch) == (3, 0)

    def ends(*positions: tuple[int, int]) -> list[tuple[int, int | None]]:
        found = source.diverged([(one, ReadPosition(offset=o, leader_epoch=epoch)) for o, epoch in positions])
        return [(t.position.offset, t.end) for t in found]

    assert ends() == []
    assert ends((3, 0)) == ends((2, 0)) == []
    assert ends((5, 0)) == [(5, 3)]
    assert ends((3, 7)) == [(3, None)]
    assert ends((5, 0), (3, 0), (4, 7)) == [(5, 3), (4, None)]


def test_a_transaction_is_read_back_complete_and_its_marker_has_an_offset(control: ControlPort) -> None:
    id_ = f"port-{control.name}"
    with control.writer(id_, 1) as writer:
        assert writer.send([ONE, TWO]) == (0, 1)
        assert writer.send([ONE]) == (3,)
    log = control.read(1, until=3)
    assert [(r.offset, r.key, r.value, r.headers) for r in log.records] == [
        (0, b"k", b"one", (("v", b"1"), ("v", b"2"))),
        (1, b"k", b"two", ()),
        (3, b"k", b"one", (("v", b"1"), ("v", b"2"))),
    ]
    assert log.begin == 0
    assert log.end in (4, 5)
    assert [r.offset for r in control.read(1, 1).records] == [1, 3]
    assert [r.value for r in control.read_all()] == [b"one", b"two", b"one"]


def test_the_first_record_since_a_time_is_found_by_the_records_own_times(control: ControlPort) -> None:
    with control.writer(f"since-{control.name}", 1) as writer:
        writer.send([ONE])
        before = control.read(1).records[-1].timestamp
        # Brokers know of milliseconds, and the fake's clock stands still.
        if isinstance(control, FakeControl):
            control.clock = lambda: before + timedelta(seconds=1)
        else:
            until(lambda: datetime.now(UTC) > before + timedelta(milliseconds=2), what="another millisecond")
        writer.send([TWO])
    assert control.first_since(1, before - timedelta(hours=1)) == 0
    # A transaction ends with a marker, which has an offset and a time too.
    assert control.first_since(1, before + timedelta(milliseconds=1)) in (1, 2)
    assert control.first_since(1, before + timedelta(hours=1)) is None
    assert control.first_since(0, before) is None, "an empty partition"


def test_another_topic_of_the_cluster_is_there_or_not(control: ControlPort, request: pytest.FixtureRequest) -> None:
    assert control.exists()
    absent = control.other("no-such-control-topic")
    assert (absent.name, absent.exists()) == ("no-such-control-topic", False)
    absent.close()
    if isinstance(control, FakeControl):
        control.others["another"] = FakeControl(name="another", partitions=2, topic_id="control-2")
    name = "another" if isinstance(control, FakeControl) else request.getfixturevalue("make_topic")(2)
    other = control.other(name)
    with other.writer(f"other-{name}", 1) as writer:
        writer.send([ONE])
    assert (other.name, other.exists(), other.describe().partitions) == (name, True, 2)
    assert [r.value for r in other.read(1).records] == [b"one"]
    assert (other.describe().cluster_id, other.describe().topic_id != control.describe().topic_id) == (
        control.describe().cluster_id,
        True,
    )
    other.close()
    assert control.read(1).records == (), "the first one is another topic, and still open"


def test_from_beyond_its_end_a_log_reports_its_borders_only(control: ControlPort) -> None:
    log = control.read(0, BEYOND)
    assert (log.records, log.begin, log.end, log.partition, log.partitions) == ((), 0, 0, 0, 3)
    info = control.describe()
    assert (log.cluster_id, log.topic_id) == (info.cluster_id, info.topic_id)
    assert control.ensure() == info


@pytest.mark.parametrize("control", ["fake", "real"], indirect=True)
def test_the_writer_that_was_opened_last_is_the_only_one_that_can_send(control: ControlPort) -> None:
    id_ = f"fence-{control.name}"
    with control.writer(id_, 0) as old, control.writer(id_, 0) as new:
        old.send([ONE])
        new.send([TWO])
        with pytest.raises(FencedError):
            old.send([ONE])
    assert [r.value for r in control.read(0).records] == [b"one", b"two"]


def test_a_group_has_its_partition_and_another_topic_has_no_such_one(control: ControlPort) -> None:
    assert control.partition_for("lakecommit-rows") == FakeControl(partitions=3).partition_for("lakecommit-rows")
    with pytest.raises(ControlTopicError, match=r"has 3 partitions, so no partition 3.*(LC2325|LC9999)"):
        control.read(3)


def test_a_source_reports_how_far_each_partition_reaches(source: SourcePort) -> None:
    source.request_retention()
    state = source.watermarks()
    found = sorted((p.partition, w.start, w.stable, w.high) for p, w in state.partitions.items())
    assert found == [(0, 0, 3, 3), (1, 0, 0, 0)]
    assert set(state.topic_ids.values()) == {p.topic_id for p in state.partitions}
    (p, *_) = sorted(state.partitions)
    [(partition, at, first)] = source.request_first_since([(p, state.requested_at.replace(year=2999))])(30.0)
    assert (partition, at.year, first) == (p, 2999, None)


def test_other_topics_of_the_cluster_are_a_source_of_their_own(source: SourcePort) -> None:
    first = source.watermarks()
    (topic,) = first.topic_ids
    same = source.of((topic,))
    assert (same.watermarks().cluster_id, same.watermarks().partitions) == (first.cluster_id, first.partitions)
    same.close()
    absent = source.of(("no-such-topic",))
    found = absent.watermarks(missing_ok=True)
    assert (found.partitions, found.missing_topics) == ({}, ("no-such-topic",))
    with pytest.raises(SourceError, match=r"no-such-topic.*(LC2006|LC9999)"):
        absent.watermarks()
    absent.close()
    assert source.watermarks().partitions == first.partitions, "who asked for others is still open"
