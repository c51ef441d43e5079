# SPDX-License-Identifier: Apache-2.0
"""Tables and a control topic that an earlier commit left in the middle of its work are read on, and brought to an end.

Only the command line is used, on the recorded bytes of `tests/fixtures/recorded`. What it tells before anything is
written is asked once; then all is landed, then the range that was blocked.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.catalog import load_catalog

from dev.servers.kafka import Broker
from tests.fixtures.recorded import LANDINGS, control_lines, differences, point_specs_at, told, unpack
from tests.support.cli import LAND_SECONDS, Answer, run

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="the recorded tables are below /proc/self/cwd"),
]

VERBS = {"status": "status", "plan": "plan", "ledger": "history --ledger", "verify": "verify"}
QUERIES = [
    *(("orders", verb) for verb in VERBS),
    *((name, verb) for name in LANDINGS[1:] for verb in ("status", "ledger")),
]
PARTITIONS = {"orders": 4, "returns": 6, "visits": 0}
"""Exit code of `status`: one has a blocked range, one was not caught up."""
ASIDE = {"at", "asked_at", "headroom", "explain", "opened_at"}
"""What is reported the moment of asking, explanations, whose words may change, and `opened_at`, which became `began`.
"""
VISITS_BEGIN = 10
"""Where `reset offsets` let the landing `visits` begin."""

Place = tuple[str, int, int]
"""Topic, partition, offset."""


@dataclass(kw_only=True)
class Lake:
    """The unpacked folder, and the broker that runs on its data."""

    folder: Path
    broker: Broker

    def run(self, verb: str, landing: str, *more: str) -> Answer:
        return run(*verb.split(), f"{landing}.yaml", *more, folder=self.folder, timeout=LAND_SECONDS)

    def status(self, landing: str) -> dict[str, Any]:
        return self.run("status", landing, "--json").value

    def control_log(self) -> list[dict[str, Any]]:
        return self.run("history", "orders", "--control-topic", "--json").lines

    def rows(self, table: str) -> list[dict[str, Any]]:
        with contextlib.chdir(self.folder):
            catalog = json.loads((self.folder / "orders.yaml").read_text())["catalog"]
            found: list[dict[str, Any]] = load_catalog(**catalog).load_table(table).scan().to_arrow().to_pylist()
            return found

    def files(self, table: str) -> set[str]:
        with contextlib.chdir(self.folder):
            catalog = json.loads((self.folder / "orders.yaml").read_text())["catalog"]
            files = load_catalog(**catalog).load_table(table).inspect.files()
            return set(files.column("file_path").to_pylist())

    def source(self, topic: str) -> dict[Place, bytes | None]:
        """Every committed record."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": "test", "enable.partition.eof": True}
        consumer = Consumer({**settings, "enable.auto.commit": False, "isolation.level": "read_committed"})
        found: dict[Place, bytes | None] = {}
        for partition in consumer.list_topics(topic, timeout=60).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, partition, 0)])
            while (message := consumer.poll(60)) is not None and message.error() is None:
                found[topic, partition, message.offset() or 0] = message.value()
        consumer.close()
        return found


class Before:
    """The reading commands, run on the recorded bytes before anything is written. Each runs once, when a test
    needs it.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._answers: dict[tuple[str, str], Answer] = {}

    def answer(self, landing: str, verb: str) -> Answer:
        if (landing, verb) not in self._answers:
            self._answers[landing, verb] = self._lake.run(VERBS[verb], landing, "--json")
        return self._answers[landing, verb]

    def of(self, landing: str, verb: str) -> list[dict[str, Any]]:
        return self.answer(landing, verb).lines

    @cached_property
    def control_log(self) -> list[dict[str, Any]]:
        return self._lake.control_log()

    def run_queries(self) -> None:
        for landing, verb in QUERIES:
            self.answer(landing, verb)
        assert self.control_log


@dataclass(frozen=True, kw_only=True)
class Landed:
    """One run of each landing, and what was reported after them."""

    answers: dict[str, Answer]
    status: dict[str, Any]
    control_log: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("recorded").resolve()
    unpack(folder)
    with Broker(folder / "kafka") as broker:
        point_specs_at(folder, broker.bootstrap)
        yield Lake(folder=folder, broker=broker)


@pytest.fixture(scope="module")
def before(lake: Lake) -> Before:
    return Before(lake)


@pytest.fixture(scope="module")
def landed(lake: Lake, before: Before) -> Landed:
    before.run_queries()
    answers = {name: lake.run("land", name, "--json") for name in LANDINGS}
    return Landed(answers=answers, status=lake.status("orders"), control_log=lake.control_log())


@pytest.fixture(scope="module")
def unblocked(lake: Lake, landed: Landed) -> Answer:
    answer = lake.run("reset blocked", "orders", "--raise", "20", "--yes")
    assert answer.code == 0, answer.err
    return lake.run("land", "orders", "--json")


# -- what is there is read as it was ----------------------------------------------------------------------------------


def test_it_is_the_cluster_that_was_recorded(lake: Lake) -> None:
    """A broker that formatted its storage anew would be another one."""
    found = AdminClient({"bootstrap.servers": lake.broker.bootstrap}).list_topics(timeout=60)
    sections = [s for ledger in told()["landings"]["orders"]["ledger"] for s in ledger["sections"]]
    assert {s["cluster_id"] for s in sections} == {found.cluster_id}


def without(keys: set[str], value: Any) -> Any:
    """The same, at any depth without these keys."""
    if isinstance(value, list):
        return [without(keys, each) for each in value]
    return {k: without(keys, v) for k, v in value.items() if k not in keys} if isinstance(value, dict) else value


@pytest.mark.heavy(but=("orders-status", "orders-ledger"))
@pytest.mark.parametrize(("landing", "verb"), QUERIES)
def test_what_was_reported_then_is_reported_today(landing: str, verb: str, before: Before) -> None:
    answer = before.answer(landing, verb)
    assert answer.code == (PARTITIONS[landing] if verb == "status" else 0), answer.out + answer.err
    assert list(differences(without(ASIDE, told()["landings"][landing][verb]), answer.lines)) == []


@pytest.mark.heavy
def test_the_recording_stops_in_the_middle(before: Before) -> None:
    """Else the tests below would test less than they say."""
    (status,) = before.of("orders", "status")
    assert status["tables"][0]["pending"]["slices"] > 0
    assert any(cycle["unfinished"] for cycle in status["cycles"])
    assert any(cycle["failed_attempts"] for cycle in status["cycles"])
    assert len(status["blocked"]) == 1
    assert before.of("returns", "status")[0]["lag"] > 0


def test_every_record_of_the_control_topic_is_reported_as_it_was(before: Before) -> None:
    now = {(line["partition"], line["offset"]): line for line in before.control_log}
    then = {(line.partition, line.offset): line.decoded for line in control_lines()}
    assert now.keys() == then.keys()
    assert list(differences([then[place] for place in sorted(then)], [now[place] for place in sorted(now)])) == []
    assert [line for line in before.control_log if "event" not in line] == []


# -- and goes on ------------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_all_but_the_blocked_range_is_landed(before: Before, landed: Landed) -> None:
    codes = {name: answer.code for name, answer in landed.answers.items()}
    assert codes == {"orders": 1, "returns": 0, "visits": 0}, landed.answers
    assert "lakecommit reset blocked" in landed.answers["orders"].err.splitlines()[-1]
    assert landed.status["blocked"] == before.of("orders", "status")[0]["blocked"]
    behind = {p["partition"]: p["lag"] for p in landed.status["partitions"]}
    assert {p for p, lag in behind.items() if lag} == {"orders[2]"}
    assert landed.answers["visits"].value["reason"] == "nothing new"


@pytest.mark.heavy
def test_the_history_begins_with_what_an_earlier_release_landed(lake: Lake, landed: Landed) -> None:
    answer = lake.run("history", "orders", "--json")
    assert answer.code == 0, answer.err
    reported = answer.value["tables"][0]
    windows = reported["windows"]
    assert len(windows) > 1
    assert (windows[-1]["seconds"], windows[0]["landed"] > 0) == (None, True)
    assert reported["epochs"][-1]["before"] is None
    assert reported["spec_versions"][-1]["changed"] is None


def ours(line: dict[str, Any]) -> dict[str, Any]:
    """What our header says in a line of the control log."""
    return next((h["value"] for h in line["headers"] if h["name"] == "lakecommit"), {})


def reported(lines: list[dict[str, Any]]) -> list[Place]:
    """Offsets of the slices of `orders` that were reported whole."""
    reports = [
        ours(line)["report"]
        for line in lines
        if line["event"]["group_id"] == "lakecommit-orders" and ours(line).get("kind") == "report"
    ]
    return [
        (topic, int(partition), offset)
        for report in reports
        if report["blocked"] is None and report["failed"] is None
        for topic, _, parts in report["spans"]
        for partition, bounds in parts.items()
        for begin, end in zip(bounds[::2], bounds[1::2], strict=True)
        for offset in range(begin, end)
    ]


@pytest.mark.heavy
def test_no_slice_that_was_reported_is_read_again(before: Before, landed: Landed) -> None:
    old = {(line["partition"], line["offset"]) for line in before.control_log}
    then = reported(before.control_log)
    now = reported([line for line in landed.control_log if (line["partition"], line["offset"]) not in old])
    assert now
    assert len({*then, *now}) == len(then) + len(now)


@pytest.mark.heavy
def test_the_files_of_reported_slices_are_those_in_the_table(before: Before, landed: Landed, lake: Lake) -> None:
    cycles = {cycle["commit_id"] for cycle in before.of("orders", "status")[0]["cycles"]}
    announced = {
        file["file_path"]
        for line in before.control_log
        if line["event"]["type"] == "DATA_WRITTEN" and line["event"]["commit_id"] in cycles
        for file in line["event"]["data_files"]
    }
    assert announced
    assert all((lake.folder / urlsplit(path).path.removeprefix("/proc/self/cwd/")).is_file() for path in announced)
    assert announced <= lake.files("shop.orders")


@pytest.mark.heavy
def test_the_blocked_range_is_landed_once_a_user_states_how(unblocked: Answer, lake: Lake) -> None:
    assert unblocked.code == 0, unblocked.err
    status = lake.status("orders")
    assert (status["lag"], status["blocked"]) == (0, [])
    assert [table["pending"]["slices"] for table in status["tables"]] == [0, 0]


@pytest.mark.heavy
def test_verify_finds_nothing_but_what_a_user_reported(unblocked: Answer, lake: Lake) -> None:
    for landing in LANDINGS:
        answer = lake.run("verify", landing, "--json")
        assert answer.code == 0, answer.out
        assert [f for f in answer.value["findings"] if f["level"] != "note" or "a user" not in f["text"]] == []


@pytest.mark.heavy
def test_another_run_lands_nothing(unblocked: Answer, lake: Lake) -> None:
    answer = lake.run("land", "orders", "--json")
    assert answer.code == 0, answer.err
    assert (answer.value["rows"], answer.value["reason"]) == (0, "nothing new")
    assert "spark" not in answer.value["seconds"]


def is_bad(value: bytes) -> bool:
    return value in (b"no json", b'{"id": "x"}')


def skipped() -> set[Place]:
    """What a user gave up while it was recorded."""
    return {
        (name.partition("[")[0], int(name.partition("[")[2].removesuffix("]")), offset)
        for name, ranges in told()["skipped"].items()
        for begin, end in ranges
        for offset in range(begin, end)
    }


@pytest.mark.heavy
@pytest.mark.parametrize(("table", "topics"), [("orders", ("orders", "returns")), ("visits", ("visits",))])
def test_each_record_is_in_its_table_once(table: str, topics: tuple[str, ...], unblocked: Answer, lake: Lake) -> None:
    expected = []
    for place, value in sorted(p for topic in topics for p in lake.source(topic).items()):
        begun = place[0] != "visits" or place[2] >= VISITS_BEGIN
        if begun and place not in skipped() and value is not None and not is_bad(value):
            record = json.loads(value)
            expected.append((*place, record["id"], record["amount"], record["at"]))
    found = sorted(
        (
            *(row["kafka_topic"], row["kafka_partition"], row["kafka_offset"]),
            *(row["id"], str(row["amount"]), f"{row['at']:%Y-%m-%dT%H:%M:%SZ}"),
        )
        for row in lake.rows(f"shop.{table}")
    )
    assert len(expected) > 200
    assert found == expected


@pytest.mark.heavy
def test_each_record_that_is_none_is_a_dead_letter_once(unblocked: Answer, lake: Lake) -> None:
    source = {**lake.source("orders"), **lake.source("returns")}
    expected = sorted((*p, v) for p, v in source.items() if v is not None and is_bad(v) and p not in skipped())
    rows = lake.rows("shop.orders_dead")
    assert sorted((row["topic"], row["partition"], row["offset"], row["value"]) for row in rows) == expected
