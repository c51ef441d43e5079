# SPDX-License-Identifier: Apache-2.0
"""The pieces that the demo proves itself by: exact source data, a comparison that sees faults, an end of all."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyiceberg.catalog import Catalog

from airflow_provider_lakecommit.core.log import (
    CommitFailed,
    CycleClosed,
    CycleOpened,
    SliceFiles,
    SliceReported,
    TablePublished,
)
from dev.airflow_stack import task_errors
from dev.demo import flights as demo_flights
from dev.demo.evidence import CycleStory, Lake, compare
from dev.demo.flights import POSITION, REAL, TEXT, TIME, WHOLE, checksum
from dev.demo.screen import Screen
from dev.paths import CHECKOUT
from dev.processes import ChildError, Children, StoppingError, living
from tests.support.waiting import PATIENCE, until

pytestmark = pytest.mark.integration

ALL_FLIGHTS = 336_776
EVERY = 7
DEADLINE = PATIENCE


@pytest.fixture(scope="module")
def flights() -> pd.DataFrame:
    return demo_flights.load()


@pytest.fixture
def some(flights: pd.DataFrame) -> pd.DataFrame:
    """Forty flights, cancelled ones (without times) among them, at positions of two partitions."""
    chosen = pd.concat([flights.head(20), flights[flights["dep_time"].isna()].head(20)], ignore_index=True)
    return chosen.assign(kafka_partition=chosen.index % 2, kafka_offset=chosen.index // 2)


# -- the source data --------------------------------------------------------------------------------------------------


@pytest.mark.heavy
def test_every_event_reports_exactly_what_the_data_file_reports(flights: pd.DataFrame) -> None:
    """Read by the csv module, without pandas; every seventh flight, because all of them take half a minute."""
    with zipfile.ZipFile(demo_flights.data_file()) as archive:
        text = io.TextIOWrapper(archive.open(archive.namelist()[0]), encoding="utf-8")
        lines = list(csv.DictReader(text))
    events = demo_flights.events(flights)
    assert len(events) == len(lines) == ALL_FLIGHTS
    numbers = dict.fromkeys(WHOLE, int) | dict.fromkeys(REAL, float)
    pairs = list(zip(events, lines, strict=True))
    for (key, value), line in pairs[::EVERY]:
        due = {c: None if t in ("", "NA") else numbers[c](t) if c in numbers else t for c, t in line.items()}
        answer = json.loads(value)
        assert answer == due
        assert all(type(answer[c]) in (int, type(None)) for c in WHOLE)
        assert key == f"{line['carrier']}{line['flight']}"


def test_the_example_dag_declares_every_column_of_the_data(flights: pd.DataFrame) -> None:
    spec = importlib.util.spec_from_file_location("flights_dag", CHECKOUT / "dags" / "example_lakecommit_flights.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    columns = [column["name"] for column in module.flights.create["schema"]]
    assert columns == [*flights.columns, *POSITION]
    assert set(columns) == {*WHOLE, *REAL, *TEXT, TIME, *POSITION}
    assert module.flights.topics == demo_flights.TOPIC


def test_events_are_where_the_broker_reported(bootstrap: str, some: pd.DataFrame) -> None:
    assert demo_flights.make_topic(bootstrap)
    assert not demo_flights.make_topic(bootstrap)
    events = demo_flights.events(some.drop(columns=POSITION))
    places = demo_flights.produce(bootstrap, events)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    partitions = range(demo_flights.PARTITIONS)
    consumer.assign([TopicPartition(demo_flights.TOPIC, p, OFFSET_BEGINNING) for p in partitions])
    try:
        found = consumer.consume(len(events), timeout=DEADLINE)
    finally:
        consumer.close()
    read = {(m.partition(), m.offset()): (m.key().decode(), m.value().decode()) for m in found}
    due = dict(zip(places.itertuples(index=False, name=None), events, strict=True))
    assert read == due


# -- the checksum and the comparison ----------------------------------------------------------------------------------


def test_the_checksum_does_not_depend_on_the_order(some: pd.DataFrame) -> None:
    assert checksum(some.sample(frac=1, random_state=1)) == checksum(some)


def without_last(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[:-1]


def with_last_twice(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.tail(1)], ignore_index=True)


def with_all_twice(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame], ignore_index=True)


def with_one_for_another(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame.iloc[1:], frame.tail(1)], ignore_index=True)


def with_a_stranger(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([frame, frame.tail(1).assign(kafka_offset=10_000)], ignore_index=True)


def changed(column: str, value: object) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        frame = frame.copy()
        frame.loc[3, column] = value
        return frame

    return change


def with_two_values_swapped(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.copy()
    frame.loc[[0, 1], "tailnum"] = frame.loc[[1, 0], "tailnum"].to_numpy()
    return frame


@pytest.mark.parametrize(
    ("fault", "lost", "doubled", "strangers"),
    [
        (without_last, 1, 0, 0),
        (with_last_twice, 0, 1, 0),
        (with_all_twice, 0, 40, 0),
        (with_one_for_another, 1, 1, 0),
        (with_a_stranger, 0, 0, 1),
        (changed("dep_delay", 7), 0, 0, 0),
        (changed("air_time", 7.5), 0, 0, 0),
        (changed("arr_time", None), 0, 0, 0),
        (changed("tailnum", None), 0, 0, 0),
        (changed("time_hour", "2013-01-01T11:00:00Z"), 0, 0, 0),
        (with_two_values_swapped, 0, 0, 0),
    ],
)
def test_a_table_that_is_off_is_observed(
    some: pd.DataFrame, fault: Callable[[pd.DataFrame], pd.DataFrame], lost: int, doubled: int, strangers: int
) -> None:
    found = compare(some, fault(some))
    assert (found.lost, found.doubled, found.strangers) == (lost, doubled, strangers)
    assert found.checksum_table != found.checksum_sent
    assert found.rows == 40 - lost + doubled + strangers


def test_a_table_read_back_has_the_checksum_of_its_source(
    some: pd.DataFrame, catalog: Catalog, catalog_properties: dict[str, str]
) -> None:
    kinds = (
        dict.fromkeys([*WHOLE, "kafka_partition"], pa.int32())
        | dict.fromkeys(REAL, pa.float64())
        | dict.fromkeys(TEXT, pa.string())
        | {TIME: pa.timestamp("us", "UTC"), "kafka_offset": pa.int64()}
    )
    typed = some.assign(**{TIME: pd.to_datetime(some[TIME], utc=True)})
    rows = pa.Table.from_pandas(typed[list(kinds)], schema=pa.schema(kinds.items()), preserve_index=False)
    catalog.create_table("shop.flights", rows.schema).append(rows)
    lake = Lake({**catalog_properties, "name": "test"}, "shop")
    found = compare(some, lake.rows("shop.flights"))
    assert (found.lost, found.doubled, found.strangers, found.rows) == (0, 0, 0, 40)
    assert found.checksum_table == found.checksum_sent
    lake.drop()
    assert catalog.list_namespaces() == []


# -- the story of a cycle ---------------------------------------------------------------------------------------------

KINDS = {
    "S": CycleOpened,
    "F": CommitFailed,
    "W": SliceFiles,
    "D": SliceReported,
    "T": TablePublished,
    "C": CycleClosed,
}


@pytest.mark.parametrize(
    ("log", "in_order"),
    [
        ("SWDTC", True),
        ("SWWDWDDTTC", True),
        ("SDTC", False),
        ("SWTDC", False),
        ("SWDTCD", False),
        ("SWDT", False),
        ("SWDC", False),
        ("SWDFTC", False),
        ("SWDTF", False),
    ],
)
def test_the_story_of_a_cycle_knows_the_protocols_order(log: str, in_order: bool) -> None:
    entries = tuple(KINDS[letter].__new__(KINDS[letter]) for letter in log)
    assert CycleStory(opened=entries[0], entries=entries).is_in_order == in_order


# -- the screen -------------------------------------------------------------------------------------------------------


def test_one_check_that_does_not_hold_is_a_failed_verdict() -> None:
    out = io.StringIO()
    screen = Screen(out)
    screen.check("rows", "3 of 3", True)
    screen.check("checksum", "a, b", False)
    screen.progress("not on a file")
    assert not screen.verdict()
    assert "1 of 2 checks do not hold: checksum" in out.getvalue()
    assert "\033" not in out.getvalue()
    assert "not on a file" not in out.getvalue()


def test_the_verdict_is_good_when_every_check_holds() -> None:
    screen = Screen(io.StringIO())
    screen.check("rows", "3 of 3", True)
    assert screen.verdict()


def test_task_errors_are_found_in_logs_of_any_lines(tmp_path: Path) -> None:
    found = {
        "level": "error",
        "run_id": "demo-1",
        "task_id": "land.plan",
        "error_detail": [{"exc_type": "TableError", "exc_value": "no such table"}],
    }
    lines = ["not JSON", "3", '{"level": "info"}', json.dumps(found)]
    (tmp_path / "attempt=1.log").write_text("\n".join(lines))
    assert task_errors(tmp_path) == ["demo-1 land.plan: TableError: no such table"]


# -- processes --------------------------------------------------------------------------------------------------------

FAMILY = """
import os, subprocess, sys, time
if len(sys.argv) > 1:
    os.setpgid(0, 0)
else:
    subprocess.Popen([sys.executable, __file__, "grandchild"])
print("up", flush=True)
time.sleep(600)
"""


@pytest.fixture
def family(tmp_path: Path) -> list[str]:
    """Command of a child that starts one more, in a process group of its own, and never ends by itself."""
    script = tmp_path / "family.py"
    script.write_text(FAMILY)
    return [sys.executable, str(script)]


def start(children: Children, command: list[str], directory: Path) -> set[int]:
    children.start("parent", command, env=os.environ, cwd=directory)
    until(lambda: children.log("parent").read_text().count("up") == 2, what="the family")
    pids = {p.pid for p in children.family("parent")}
    assert len(pids) == 2
    return pids


def test_stop_ends_the_complete_family(family: list[str], tmp_path: Path) -> None:
    children = Children(tmp_path)
    pids = start(children, family, tmp_path)
    children.stop()
    assert not pids & set(living())
    with pytest.raises(StoppingError):
        children.start("late", family, env=os.environ, cwd=tmp_path)


def test_a_family_whose_parent_died_is_still_found(family: list[str], tmp_path: Path) -> None:
    children = Children(tmp_path)
    pids = start(children, family, tmp_path)
    os.kill(children.pid("parent") or 0, signal.SIGKILL)
    until(lambda: children.pid("parent") is None, what="the end of the parent")
    with pytest.raises(ChildError, match="parent has ended"):
        children.expect_alive("parent")
    children.stop()
    assert not pids & set(living())


def test_another_process_can_stop_what_was_recorded(family: list[str], tmp_path: Path) -> None:
    first = Children(tmp_path)
    pids = start(first, family, tmp_path)
    later = Children(tmp_path)
    assert {p.pid for p in later.family("parent")} == pids
    later.stop(grace=DEADLINE)
    assert not pids & set(living())
    first.stop()
    assert Children(tmp_path).family("parent") == []


def test_a_stranger_under_a_recorded_id_is_left_alone(family: list[str], tmp_path: Path) -> None:
    children = Children(tmp_path)
    pids = start(children, family, tmp_path)
    try:
        record = tmp_path / "processes.json"
        (pid, started), *_ = json.loads(record.read_text()).values()
        other = tmp_path / "other"
        other.mkdir()
        (other / "processes.json").write_text(json.dumps({"parent": (pid, started - 3600)}))
        Children(other).stop(grace=1)
        assert pids <= set(living())
    finally:
        children.stop()


def test_a_child_that_fails_reports_the_end_of_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('it is the disk'); raise SystemExit(3)"]
    with pytest.raises(ChildError, match=r"ended with 3[\s\S]*it is the disk"):
        Children(tmp_path).run("sick", command, env=os.environ, cwd=tmp_path, timeout=DEADLINE)


INTERRUPTED = """
import os, sys, time
from pathlib import Path
from dev.interruptible import leave, run
from dev.processes import Children
directory = Path(sys.argv[1])
children = Children(directory)
def work():
    children.start("parent", [sys.executable, str(directory / "family.py")], env=os.environ, cwd=directory)
    print("started", flush=True)
    time.sleep(600)
leave(run(work, children.stop))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_stops_everything_and_is_the_exit_code(
    number: signal.Signals, family: list[str], tmp_path: Path
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        until(lambda: (tmp_path / "log" / "parent.log").read_text().count("up") == 2, what="the family")
        pids = {p.pid for p in Children(tmp_path).family("parent")}
        process.send_signal(number)
        assert process.wait(DEADLINE) == 128 + number
    assert len(pids) == 2
    assert not pids & set(living())
