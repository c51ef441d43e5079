# SPDX-License-Identifier: Apache-2.0
"""The control topic of a set: each landing reads its own records only, and many send in one transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from uuid import UUID

import pytest

from airflow_provider_lakecommit.control.control_log import ControlLog
from airflow_provider_lakecommit.control.records import Outgoing, Sender
from airflow_provider_lakecommit.cycle.session.landing_session import BEYOND
from airflow_provider_lakecommit.cycle.session.ports import ControlPort
from airflow_provider_lakecommit.cycle.sets import shared_control
from airflow_provider_lakecommit.cycle.sets.shared_control import WRITERS, SharedControl
from airflow_provider_lakecommit.exceptions import ControlTopicError, FencedError, WireError
from tests.fakes.kafka import NOON, FakeControl

NUMBERS = count(1)


@dataclass
class CountedControl(FakeControl):
    """``asked`` has the starts of every request; ``hold`` is waited for before a request is answered."""

    requests: list[Mapping[int, int]] = field(default_factory=list)
    hold: Callable[[], object] = lambda: None

    def read_together(self, starts: Mapping[int, int]) -> dict[int, ControlLog]:
        self.requests.append(dict(starts))
        self.hold()
        return super().read_together(starts)


@pytest.fixture
def topic() -> CountedControl:
    return CountedControl(partitions=2)


@pytest.fixture
def shared(topic: CountedControl) -> Iterator[SharedControl]:
    made = SharedControl(topic, "lake", "")  # type: ignore[arg-type]  # the fake has what is used of it
    yield made
    made.close()


def record_of(landing: str) -> Outgoing:
    """A record that only its landing can use."""
    sender = Sender(landing=landing, lane="live", role="plan", commit_id=UUID(int=1))
    out = sender.end_request(UUID(int=next(NUMBERS)), NOON, job=None, reason="test")
    return out.key, out.value, out.headers


def send(port: ControlPort, *records: Outgoing, partition: int = 0) -> tuple[int, ...]:
    with port.writer("of the landing", partition) as writer:
        return writer.send(records)


def offsets(port: ControlPort, start: int = 0, partition: int = 0) -> list[int]:
    return [r.offset for r in port.read(partition, start).records]


def test_a_landing_reads_its_own_records_and_unreadable_ones(shared: SharedControl) -> None:
    one, two = shared.of("one"), shared.of("two")
    send(one, record_of("one"), record_of("two"), (b"k", b"no event", ()), record_of("one"))
    assert (offsets(one), offsets(two)) == ([0, 2, 3], [1, 2])
    assert (offsets(one, 1), offsets(one, 3), offsets(one, 4)) == ([2, 3], [3], [])


def test_only_what_is_new_is_kept_of_a_second_read(shared: SharedControl) -> None:
    one = shared.of("one")
    send(one, record_of("one"))
    assert offsets(one) == [0]
    send(one, record_of("one"))
    assert offsets(one) == [0, 2]
    assert offsets(one) == [0, 2]


def test_a_read_from_before_what_is_kept_has_the_records_before_it_too(shared: SharedControl) -> None:
    one = shared.of("one")
    send(one, *[record_of("one") for _ in range(5)])
    assert offsets(one, 3) == [3, 4]
    assert offsets(one) == [0, 1, 2, 3, 4]


def test_a_read_of_the_borders_alone_hides_no_record_from_the_next(shared: SharedControl) -> None:
    one = shared.of("one")
    send(one, record_of("one"))
    log = one.read(0, BEYOND)
    assert (log.records, log.end) == ((), 2)
    assert offsets(one) == [0]


def test_a_topic_that_was_made_anew_has_none_of_the_former_records(
    topic: CountedControl, shared: SharedControl
) -> None:
    one = shared.of("one")
    send(one, record_of("one"), record_of("one"))
    assert offsets(one) == [0, 1]
    topic.logs, topic.topic_id, topic.writers = {}, "control-2", {}
    assert offsets(one) == []
    other = SharedControl(topic, "lake", "")  # type: ignore[arg-type]
    send(other.of("one"), record_of("one"))
    assert offsets(one) == [0]


def test_a_log_that_lost_its_end_is_read_again(topic: CountedControl, shared: SharedControl) -> None:
    one = shared.of("one")
    send(one, record_of("one"), record_of("one"), record_of("one"))
    assert offsets(one) == [0, 1, 2]
    del topic.logs[0][1:]
    assert offsets(one) == [0]


def test_records_that_retention_removed_are_not_read_again(topic: CountedControl, shared: SharedControl) -> None:
    one = shared.of("one")
    send(one, *[record_of("one") for _ in range(4)])
    topic.cut(0, 2)
    assert offsets(one) == [2, 3]


def test_a_partition_with_more_records_than_are_kept_is_read_complete(
    shared: SharedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_control, "MOST_RECORDS", 3)
    one = shared.of("one")
    for n in range(6):
        send(one, record_of("one"))
        assert offsets(one) == [2 * k for k in range(n + 1)]


def test_those_who_read_at_the_same_time_share_a_request_that_begins_after_each_of_them(
    topic: CountedControl, shared: SharedControl
) -> None:
    began, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        began.set()
        assert go_on.wait(30)

    topic.hold = hold
    names = [f"l{n}" for n in range(8)]
    send(shared.of("any"), *[record_of(name) for name in names], partition=1)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(offsets, shared.of("l0"), 0, 1)
        assert began.wait(30)
        late = topic.logs[1][0]
        assert late is not None
        others = [pool.submit(offsets, shared.of(name), 0, 1) for name in names]
        while len(shared._reads._waiting) < len(names):
            threading.Event().wait(0.005)
        go_on.set()
        assert first.result() == [0]
        assert [other.result() for other in others] == [[n] for n in range(8)]
    assert topic.requests == [{1: 0}, {1: 0}]


def test_records_of_many_go_out_in_one_transaction_and_each_is_reported_its_offsets(
    topic: CountedControl, shared: SharedControl
) -> None:
    sent: list[str] = []
    topic.before_send = sent.append
    barrier = threading.Barrier(8)

    def send_one(name: str) -> tuple[str, tuple[int, ...]]:
        barrier.wait(30)
        return name, send(shared.of(name), record_of(name), record_of(name))

    with ThreadPoolExecutor(8) as pool:
        offsets_of = dict(pool.map(send_one, [f"l{n}" for n in range(8)]))
    assert len(sent) < 8, "fewer transactions than landings"
    for name, at in offsets_of.items():
        assert offsets(shared.of(name)) == list(at)
    assert sorted(o for at in offsets_of.values() for o in at) == [r.offset for r in topic.logs[0] if r is not None]


def test_a_record_that_cannot_be_sent_fails_its_own_landing_only(topic: CountedControl, shared: SharedControl) -> None:
    big = (b"k", b"too large", ())
    writer = topic.writer

    class Limited:
        def __init__(self, number: int) -> None:
            self._inner = writer(f"id-{number}", 0)

        def send(self, records: list[Outgoing]) -> tuple[int, ...]:
            if big in records:
                raise WireError("LC9999", "a record is larger than the client takes")
            return self._inner.send(records)

        def close(self) -> None: ...

    shared._writer = lambda partition, number: Limited(number)  # type: ignore[assignment,method-assign,return-value]
    barrier = threading.Barrier(3)

    def send_one(record: Outgoing) -> object:
        barrier.wait(30)
        try:
            return send(shared.of("one"), record)
        except WireError as e:
            return e

    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(send_one, [record_of("one"), big, record_of("two")]))
    assert isinstance(answers[1], WireError)
    assert all(isinstance(a, tuple) and len(a) == 1 for a in (answers[0], answers[2]))


def test_a_process_of_the_set_that_takes_an_id_over_costs_no_record(
    topic: CountedControl, shared: SharedControl
) -> None:
    other = SharedControl(topic, "lake", "")  # type: ignore[arg-type]
    for _ in range(3):
        send(shared.of("one"), record_of("one"))
        send(other.of("two"), record_of("two"))
    assert (len(offsets(shared.of("one"))), len(offsets(other.of("two")))) == (3, 3)
    assert 1 < len(topic.writers) <= WRITERS


def test_a_writer_that_loses_every_id_reports_it_and_the_next_record_is_sent(
    topic: CountedControl, shared: SharedControl
) -> None:
    stolen: list[str] = []

    def steal(own: str) -> None:
        if len(stolen) < WRITERS:
            stolen.append(own)
            topic.writers[own] = object()

    topic.before_send = steal
    with pytest.raises(FencedError):
        send(shared.of("one"), record_of("one"))
    assert len(set(stolen)) == WRITERS
    assert send(shared.of("one"), record_of("one")) == (0,)


def test_after_a_failed_transaction_the_next_one_has_a_writer_of_its_own(
    topic: CountedControl, shared: SharedControl
) -> None:
    send(shared.of("one"), record_of("one"))
    (before,) = topic.writers.values()
    topic.away = ControlTopicError("LC9999", "the outcome is unknown")
    with pytest.raises(ControlTopicError):
        send(shared.of("one"), record_of("one"))
    topic.away = None
    assert send(shared.of("one"), record_of("one")) == (2,)
    (after,) = topic.writers.values()
    assert after is not before


def test_one_that_waits_for_its_own_record_reads_until_it_is_there(
    topic: CountedControl, shared: SharedControl
) -> None:
    one = shared.of("one")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: one.read(0, 0, until=0))
        while not topic.requests:
            threading.Event().wait(0.005)
        send(shared.of("two"), record_of("one"))
        assert [r.offset for r in waiting.result(30).records] == [0]


def test_one_that_waits_in_vain_is_reported_how_far_the_log_can_be_read(
    shared: SharedControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_control, "OWN_SECONDS", 0.0)
    with pytest.raises(ControlTopicError):
        shared.of("one").read(0, 0, until=5)


def test_the_newest_records_of_landings_are_found_by_the_beginning_of_their_names(
    topic: CountedControl, shared: SharedControl
) -> None:
    send(shared.of("any"), record_of("shop.a"), record_of("shop.b"), record_of("mail.a"), partition=1)
    send(shared.of("any"), record_of("shop.a"), partition=0)
    found = shared.recent("shop.")
    assert sorted(found) == ["shop.a", "shop.b"]
    assert found == topic.recent("shop."), "as a landing that reads the topic alone finds them"
    assert len(found["shop.a"]) == 2, "one in each partition"


def test_a_failure_to_read_reaches_all_who_requested_and_the_next_read_is_made(
    topic: CountedControl, shared: SharedControl
) -> None:
    one = shared.of("one")
    send(one, record_of("one"))
    shared.info()
    topic.away = ControlTopicError("LC9999", "away")
    with pytest.raises(ControlTopicError):
        offsets(one)
    topic.away = None
    assert offsets(one) == [0]
