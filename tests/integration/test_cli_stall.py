# SPDX-License-Identifier: Apache-2.0
"""`lakecommit connect watch` and the watch under it, on the real broker, with recordings of real connectors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from airflow_provider_lakecommit.control.control_watch import AHEAD, ControlWatch
from airflow_provider_lakecommit.exceptions import ControlTopicError
from dev.servers.kafka import Broker
from tests.fixtures.traces import Line, Trace, read_trace
from tests.support.cli import COMMAND, run
from tests.support.waiting import until
from tests.unit.stall.test_traces import replay

pytestmark = pytest.mark.integration

COMMON = ("--json", "--clock", "event")


# Recordings are older than a broker keeps records by default, so the topics here have no retention.


def play(bootstrap: str, topic: str, lines: tuple[Line, ...], partitions: int = 1) -> None:
    """Put a recording on a topic: what one sender said stays in one partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "max.in.flight": 1})
    keys = sorted({line.key or b"" for line in lines})
    for line in lines:
        place = keys.index(line.key or b"") % partitions
        at = int(line.at * 1000)
        producer.produce(topic, line.value, line.key, place, timestamp=at, headers=list(line.headers))
    assert producer.flush(30) == 0


def stall(bootstrap: str, topic: str, trace: Trace, *more: str) -> list[dict[str, Any]]:
    where = ("--bootstrap", bootstrap, "--control-topic", topic, "--group", trace.group)
    answer = run("connect", "watch", *where, *COMMON, *more)
    assert answer.code == 0, answer.err
    return answer.lines


@pytest.mark.heavy(but=("3",))
@pytest.mark.parametrize("partitions", [1, 3])
def test_one_line_for_each_event_with_the_verdict_after_it(
    bootstrap: str, make_topic: Callable[..., str], partitions: int
) -> None:
    topic, trace, other = make_topic(partitions, retention_ms=-1), read_trace("outage_with_retries"), read_trace("idle")
    play(bootstrap, topic, trace.lines, partitions)
    play(bootstrap, topic, other.lines, partitions)
    lines = stall(bootstrap, topic, trace)
    steps = replay(trace)
    verdicts = [(line["event"], line["commit_id"].replace("-", ""), line["verdict"], line["before"]) for line in lines]
    assert verdicts == [(s.seen.kind.value, s.seen.commit.hex(), s.after.value, s.before.value) for s in steps]
    places = [(line["partition"], line["offset"]) for line in lines]
    assert len(set(places)) == len(places)
    assert {partition for partition, _ in places} == set(range(partitions))
    stalled = next(line for line in lines if line["verdict"] == "stalled")
    assert stalled["evidence"]["cycles"] == 3
    assert stalled["clears"] == "a COMMIT_COMPLETE"


@pytest.mark.heavy
def test_the_event_clock_stalls_and_until_moves_it(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("outage_at_defaults")
    play(bootstrap, topic, tuple(line for line in trace.lines if line.at < trace.at("restarted")))
    lines = stall(bootstrap, topic, trace)
    assert [line["event"] for line in lines].count("NOW") == 0
    assert lines[-1]["verdict"] == "slowing"
    moved = datetime.fromtimestamp(trace.at("restarted"), UTC).isoformat()
    *_, last = stall(bootstrap, topic, trace, "--until", moved)
    assert (last["event"], last["verdict"], last["offset"]) == ("NOW", "dead", None)
    early = datetime.fromtimestamp(trace.at("healthy"), UTC).isoformat()
    assert stall(bootstrap, topic, trace, "--until", early)[-1]["verdict"] == "healthy"


@pytest.mark.heavy
def test_the_wall_clock_reports_what_is_now(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("idle")
    play(bootstrap, topic, trace.lines)
    where = ("--bootstrap", bootstrap, "--control-topic", topic)
    lines = run("connect", "watch", *where, "--json").lines
    assert {line["verdict"] for line in lines[:-1]} == {"unknown", "healthy"}
    assert (lines[-1]["event"], lines[-1]["verdict"]) == ("NOW", "dead")
    text = run("connect", "watch", *where).out.splitlines()
    assert len(text) == len(lines)
    assert "NOW connect-" in text[-1]
    assert "DEAD (was healthy): the coordinator is silent for" in text[-1]


@pytest.mark.heavy
def test_the_rules_can_be_chosen(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("half_silent")
    play(bootstrap, topic, trace.lines)
    verdicts = [
        {line["verdict"] for line in stall(bootstrap, topic, trace, *more)}
        for more in (
            (),
            ("--rule", "only-cycles=true"),
            ("--rule", "unanswered-cycles=50"),
            ("--rule", "silent-intervals=0.01"),
        )
    ]
    assert ["losing" in v for v in verdicts] == [True, False, False, True]
    outage = read_trace("outage_with_retries")
    topic = make_topic(1, retention_ms=-1)
    play(bootstrap, topic, outage.lines)
    lines = stall(bootstrap, topic, outage, "--rule", "stalled-cycles=5")
    assert min(line["evidence"]["cycles"] for line in lines if line["verdict"] == "stalled") == 5


@pytest.mark.heavy
def test_follow_goes_on_and_time_passes(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("idle")
    play(bootstrap, topic, trace.lines[:40])
    arguments = ["connect", "watch", "--bootstrap", bootstrap, "--control-topic", topic, "--json", "--follow"]
    with subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = [json.loads(process.stdout.readline()) for _ in range(41)]
        assert [line["offset"] for line in first] == [*range(40), None]
        assert (first[-1]["verdict"], first[-1]["before"]) == ("dead", "healthy")
        play(bootstrap, topic, trace.lines[40:41])
        assert json.loads(process.stdout.readline())["offset"] == 40
        process.terminate()


def test_settings_come_from_a_file(bootstrap: str, make_topic: Callable[..., str], tmp_path: Path) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("idle")
    play(bootstrap, topic, trace.lines[:3])
    config = tmp_path / "kafka.yaml"
    config.write_text(json.dumps({"bootstrap.servers": bootstrap, "client.id": "from-a-file"}))
    watch = ("connect", "watch", "--control-topic", topic)
    assert len(run(*watch, *COMMON, "--kafka-config", str(config)).lines) == 3
    assert run(*watch).code == 2
    config.write_text(json.dumps({"bootstrap.servers": bootstrap, "no.such.setting": "1"}))
    refused = run(*watch, "--kafka-config", str(config))
    assert refused.code == 2
    assert "no.such.setting" in refused.err


def test_a_topic_that_is_not_there_is_an_error(bootstrap: str) -> None:
    answer = run(
        "connect", "watch", "--bootstrap", bootstrap, "--control-topic", "no-such-topic", "--group", "connect-x"
    )
    assert answer.code == 1
    assert "no-such-topic" in answer.err


def test_a_topic_without_an_event_of_the_group_is_reported(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic = make_topic(1, retention_ms=-1)
    play(bootstrap, topic, read_trace("idle").lines)
    where = ("--bootstrap", bootstrap, "--control-topic", topic, "--group", "connect-other", *COMMON)
    answer = run("connect", "watch", *where)
    assert (answer.code, answer.lines) == (1, [])
    assert f"{topic} has no control event of group connect-other; groups seen there: connect-" in answer.err


def test_it_needs_neither_spark_nor_java_nor_arrow(bootstrap: str, make_topic: Callable[..., str]) -> None:
    topic, trace = make_topic(1, retention_ms=-1), read_trace("dropped_table")
    play(bootstrap, topic, trace.lines)
    code = (
        "import sys; from airflow_provider_lakecommit.cli.main import main; "
        "code = main(sys.argv[1:]); "
        "heavy = {'pyspark', 'py4j', 'pyarrow', 'pyiceberg', 'airflow', 'pandas'} & set(sys.modules); "
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    arguments = ["connect", "watch", "--bootstrap", bootstrap, "--control-topic", topic, "--json"]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "0 []"
    assert '"losing"' in done.stdout


# -- the watch --------------------------------------------------------------------------------------------------------


def settings(bootstrap: str) -> dict[str, Any]:
    return {"bootstrap.servers": bootstrap}


def everything(watch: ControlWatch) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    while True:
        out += [(record.partition, record.offset) for record in watch.poll(5.0)]
        if watch.caught_up:
            return out


def test_partitions_are_merged_by_time_however_uneven(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any]
) -> None:
    topic = make_topic(3, retention_ms=-1)
    # Otherwise a request that is tried again, as on a topic that is this new, comes after the next one.
    producer = Producer({**settings(bootstrap), "max.in.flight": 1})
    for n in range(3 * AHEAD):
        for partition in (0, 1) if n % 1000 == 0 else (0,):
            producer.produce(topic, str(n), partition=partition, timestamp=10**12 + n)
        producer.poll(0)
    assert producer.flush(120) == 0, "the watch begins when all is there"
    with ControlWatch(topic, settings(bootstrap)) as watch:
        times, caught_up = [], False
        while not caught_up:
            times += [record.timestamp for record in watch.poll(5.0)]
            caught_up = watch.caught_up
        assert len(times) == 3 * AHEAD + len(range(0, 3 * AHEAD, 1000))
        assert [n for n, (a, b) in enumerate(pairwise(times)) if a > b] == []
        produce(topic, ["new"], 2)
        assert [record.value for record in watch.poll(120.0)] == [b"new"]


def test_only_what_is_committed_is_observed(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any]
) -> None:
    topic = make_topic(1, retention_ms=-1)
    produce(topic, ["kept"], transactional=True)
    produce(topic, ["aborted"], transactional=True, outcome="abort")
    produce(topic, ["not yet"], transactional=True, outcome="open")
    with ControlWatch(topic, settings(bootstrap)) as watch:
        assert everything(watch) == [(0, 0)]


def test_an_empty_topic_is_caught_up(bootstrap: str, make_topic: Callable[..., str]) -> None:
    with ControlWatch(make_topic(4, retention_ms=-1), settings(bootstrap)) as watch:
        assert everything(watch) == []


def test_since_passes_over_what_is_older(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any]
) -> None:
    topic = make_topic(2, retention_ms=-1)
    now = int(datetime.now(UTC).timestamp() * 1000)
    produce(topic, ["old"], 0, timestamp=now - 3_600_000)
    produce(topic, ["new"], 0, timestamp=now - 1000)
    with ControlWatch(topic, settings(bootstrap), since=600.0) as watch:
        assert everything(watch) == [(0, 1)]


def test_brokers_that_do_not_answer_are_an_error_at_the_start() -> None:
    with pytest.raises(ControlTopicError, match=r"127\.0\.0\.1:1.*LC2011"):
        ControlWatch("control", {"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0)


@pytest.mark.heavy
def test_brokers_that_go_away_are_reported_and_waited_for(
    broker: Broker, make_topic: Callable[..., str], produce: Callable[..., Any]
) -> None:
    topic = make_topic(1, retention_ms=-1)
    with ControlWatch(topic, settings(broker.bootstrap)) as watch:
        assert everything(watch) == []
        broker.stop()
        try:
            until(lambda: bool(watch.poll(1.0) or watch.trouble))
            assert watch.trouble is not None
        finally:
            broker.start()
        until(lambda: not watch.poll(1.0) and watch.trouble is None)
        produce(topic, ["after"])
        found: list[bytes | None] = []
        until(lambda: bool(found.extend(r.value for r in watch.poll(1.0)) or found))
        assert found == [b"after"]


def test_the_loop_goes_on_while_a_watch_waits(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any]
) -> None:
    topic = make_topic(1, retention_ms=-1)
    produce(topic, ["one"])

    async def look() -> tuple[list[bytes | None], int]:
        ticks, values = 0, []

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.01)
                ticks += 1

        ticking = asyncio.create_task(tick())
        with ControlWatch(topic, settings(bootstrap)) as watch:
            records = None
            while records is None or records or not values:
                records = await asyncio.to_thread(watch.poll, 1.0)
                values += [record.value for record in records]
        ticking.cancel()
        return values, ticks

    values, ticks = asyncio.run(look())
    assert values == [b"one"]
    assert ticks > 10
