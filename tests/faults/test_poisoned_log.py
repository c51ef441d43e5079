# SPDX-License-Identifier: Apache-2.0
"""Records on the control topic that nobody can read, or that contradict themselves: they are passed over by name, and
cost what they were about to be read again. No reader of the topic stops.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.cli.control_log import control_log
from airflow_provider_lakecommit.cli.status import _text
from airflow_provider_lakecommit.cli.terminal.output import Output
from airflow_provider_lakecommit.cli.watch import GroupVerdicts, stall
from airflow_provider_lakecommit.control.backlog_reader import BacklogWatch
from airflow_provider_lakecommit.control.control_topic import ControlTopic
from airflow_provider_lakecommit.control.control_writer import ControlWriter
from airflow_provider_lakecommit.control.events import decode, encode, head
from airflow_provider_lakecommit.control.headers import HEADER, find
from airflow_provider_lakecommit.control.payloads import DataWritten
from airflow_provider_lakecommit.control.records import Outgoing
from airflow_provider_lakecommit.stall.group_state import StallRules
from airflow_provider_lakecommit.stall.guard import Guard
from airflow_provider_lakecommit.stall.watch import CommitWatch, WatchedTopic, commits_of
from airflow_provider_lakecommit.status.doctor.lake import headroom
from airflow_provider_lakecommit.status.status import Status, read_status
from tests.support import hostile
from tests.support.raw_records import Raw, send_raw
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = pytest.mark.faults

MakeWorld = Callable[..., World]
Produce = Callable[..., object]


def poison(world: World, values: Sequence[tuple[bytes | None, Sequence[tuple[str, bytes]]]]) -> list[str]:
    """Send records as anybody may who can write to the topic; returns their places."""
    landing = world.landing
    with ControlTopic(landing.control_topic_name, world.kafka) as control:
        partition = control.partition_for(landing.group_id)
    places: list[str] = []
    producer = Producer({**world.kafka, "message.max.bytes": 2_000_000})
    for value, headers in values:
        producer.produce(
            landing.control_topic_name,
            value=value,
            headers=list(headers),
            partition=partition,
            on_delivery=lambda error, message: places.append(
                f"{partition}@{message.offset()}" if not error else "lost"
            ),
        )
        producer.poll(0)
    assert producer.flush(60) == 0
    assert "lost" not in places
    return places


def status_of(world: World) -> Status:
    with world.session() as session:
        return read_status(session)


def own_records(world: World) -> list[Any]:
    with ControlTopic(world.landing.control_topic_name, world.kafka) as control:
        return [r for r in control.read_all() if any(name == HEADER for name, _ in r.headers)]


@contextmanager
def sent_otherwise(change: Callable[[Outgoing, dict[str, Any]], Outgoing]) -> Iterator[list[str]]:
    """The first record that ``change`` takes to something else goes out so; whether it did is in the list."""
    real, done = ControlWriter.send, list[str]()

    def send(self: ControlWriter, batch: Sequence[Outgoing]) -> Any:
        out = []
        for record in batch:
            header = find(record[2]) or {}
            changed = record if done else change(record, header)
            if changed is not record:
                done.append(str(header["kind"]))
            out.append(changed)
        return real(self, out)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ControlWriter, "send", send)
        yield done


@pytest.mark.heavy
def test_every_reader_passes_over_what_was_made_to_stop_it(make_world: MakeWorld, produce: Produce) -> None:
    world = make_world(partitions=2)
    group = world.landing.group_id
    produce(world.landing.topics, records(0, 30))
    world.run()
    (event,) = [r for r in own_records(world) if (find(r.headers) or {})["kind"] == "closed"]

    small = {name: make() for name, make in hostile.events(group).items() if name != "sixteen megabytes"}
    forged: list[tuple[bytes | None, Sequence[tuple[str, bytes]]]] = [
        *((value, event.headers) for value in small.values() if len(value) < 900_000),
        *((value, ()) for value in small.values() if len(value) < 900_000),
        *((event.value, ((HEADER, make()),)) for make in hostile.headers().values() if len(make()) < 900_000),
        (None, event.headers),
        (b"junk", ((HEADER, b"\xff\xfe"),)),
        (b"", ()),
    ]
    places = poison(world, forged)
    partition = int(places[0].partition("@")[0])
    for value in (event.value, b"junk"):
        raw = Raw(value=value, headers=[(b"\xff\xc0", b"x")])
        broker, topic = world.kafka["bootstrap.servers"], world.landing.control_topic_name
        send_raw(broker, topic, [raw], partition=partition, milliseconds=round(time.time() * 1000))

    produce(world.landing.topics, records(30, 30))
    world.settle()
    world.check(Counter(range(60)))
    check_verified(world)

    status = status_of(world)
    assert status.lag == 0
    assert status.quarantined_count >= len(hostile.headers())
    assert set(places) & {text.partition(": ")[0] for text in status.quarantined}
    assert any("headers cannot be read" in text for text in status.quarantined)
    assert any("are ignored" in line for line in _text(status))
    assert any("are skipped" in line and f"{partition}@" in line for line in world.lines)
    with world.session() as session:
        assert any(f.check == "control records" for f in headroom(session, None))

    place = WatchedTopic(topic=world.landing.control_topic_name, completion_timeout=3600)
    guard = Guard(rules=StallRules(landing=True))
    ruling = commits_of(world.kafka, place, group).ruling(group, guard)
    assert ruling.verdict in ("healthy", "unknown"), ruling
    with closing(CommitWatch(place, lambda: world.kafka)) as watch:
        while (commits := watch.read()) is None or commits.groups is None:
            pass
        assert group in commits.groups
    with closing(
        BacklogWatch(world.landing.name, world.landing.topic_names, world.landing.control_topic_name, world.kafka)
    ) as backlog:
        assert backlog.read().rows == 0

    for events_clock in (True, False):
        output = StringIO()
        groups = GroupVerdicts(
            group=None, rules=StallRules(), events_clock=events_clock, until=None, completion_timeout=3600
        )
        stall(world.kafka, world.landing.control_topic_name, Output(as_json=True, out=output), groups, follow=False)
        assert {json.loads(line)["group"] for line in output.getvalue().splitlines()} >= {group}

    shown = StringIO()
    control_log(world.kafka, world.landing.control_topic_name, Output(as_json=True, out=shown), group=None)
    lines = [json.loads(line) for line in shown.getvalue().splitlines()]
    aside = {f"{line['partition']}@{line['offset']}" for line in lines if "quarantined" in line}
    assert {text.partition(": ")[0] for text in status.quarantined} <= aside


def cut_body(record: Outgoing, header: dict[str, Any]) -> Outgoing:
    return (record[0], record[1][:-9], record[2]) if header.get("kind") == "files" else record


def without_a_path(record: Outgoing, header: dict[str, Any]) -> Outgoing:
    return rewritten(record, header, file_path="")


def negative_rows(record: Outgoing, header: dict[str, Any]) -> Outgoing:
    return rewritten(record, header, record_count=-1)


def column_of_no_table(record: Outgoing, header: dict[str, Any]) -> Outgoing:
    return rewritten(record, header, value_counts={1 << 40: 1})


def rewritten(record: Outgoing, header: dict[str, Any], **changes: Any) -> Outgoing:
    """An event with its first file changed."""
    if header.get("kind") != "files":
        return record
    event = decode(record[1])
    payload = event.payload
    assert isinstance(payload, DataWritten)
    if not payload.data_files:
        return record
    files = (replace(payload.data_files[0], **changes), *payload.data_files[1:])
    return record[0], encode(replace(event, payload=replace(payload, data_files=files))), record[2]


def retold(change: Callable[[dict[str, Any]], None]) -> Callable[[Outgoing, dict[str, Any]], Outgoing]:
    """A report that says something else."""

    def changed(record: Outgoing, header: dict[str, Any]) -> Outgoing:
        if header.get("kind") != "report":
            return record
        change(header["report"])
        return record[0], record[1], [(HEADER, json.dumps(header).encode())]

    return changed


def _counts(report: dict[str, Any]) -> None:
    report["counts"][0] = [n + 1 for n in report["counts"][0]]


def _negative(report: dict[str, Any]) -> None:
    landed, *others = report["counts"][0]
    report["counts"][0] = [landed + 5, -5, *others[1:]]


def _upside_down(report: dict[str, Any]) -> None:
    parts = report["spans"][0][2]
    for p in parts:
        parts[p] = list(reversed(parts[p]))


def _strange_partition(report: dict[str, Any]) -> None:
    parts = report["spans"][0][2]
    report["spans"][0][2] = {"77": next(iter(parts.values()))}
    report["counts"] = report["counts"][:1]


def _no_rows(report: dict[str, Any]) -> None:
    report["tables"][0][-1] += 1


@pytest.mark.heavy(but=("a body that is cut", "rows that no file has"))
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(cut_body, id="a body that is cut"),
        pytest.param(without_a_path, id="a file without a path"),
        pytest.param(negative_rows, id="a file of less than no rows"),
        pytest.param(column_of_no_table, id="statistics of a column that no table has"),
        pytest.param(retold(_counts), id="counts that do not add up"),
        pytest.param(retold(_negative), id="a negative count"),
        pytest.param(retold(_upside_down), id="a range upside down"),
        pytest.param(retold(_strange_partition), id="a partition that is not there"),
        pytest.param(retold(_no_rows), id="rows that no file has"),
    ],
)
def test_a_report_that_cannot_be_is_read_again_and_the_others_go_on(
    make_world: MakeWorld, produce: Produce, change: Callable[[Outgoing, dict[str, Any]], Outgoing]
) -> None:
    world = make_world(partitions=2, slice_records=10)
    produce(world.landing.topics, records(0, 25), 0)
    produce(world.landing.topics, records(25, 25), 1)
    opened = world.open("poisoned")
    with sent_otherwise(change) as done:
        world.write(opened)
    assert done
    world.close("poisoned", opened)
    assert world.rows(), "the slices before it and of the other partition are published"
    world.settle()
    world.check(Counter(range(50)))
    check_verified(world)
    assert head(own_records(world)[0].value).group_id == world.landing.group_id
