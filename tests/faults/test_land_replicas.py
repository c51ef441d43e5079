# SPDX-License-Identifier: Apache-2.0
"""`lakecommit land` with replicas on a real Spark: workers that die or hang while they have slices in hand, and
processes of all kinds that die at any moment, while the numbers of replicas and groups change from run to run.

What is in the table in the end is counted by a reader that shares nothing with the package: the offsets that the data
files hold, against those that a plain consumer finds in the topic.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from pyiceberg.catalog import load_catalog

from airflow_provider_lakecommit.spark import main as application
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
from dev.servers.connect import ConnectServer
from tests.fixtures.kafka import unique
from tests.support.cli import COMMAND, LAND_SECONDS, Running, orders, run, write_spec
from tests.support.declared import nested
from tests.support.groups import group_job
from tests.support.steps import check_verified
from tests.support.waiting import until
from tests.support.world import World, catalog_in, records

pytestmark = [pytest.mark.faults]

MANY = 600_000
"""Orders that two workers need seconds for."""
LARGE = 4_000_000
PARTITIONS = 2
APPLICATION = Path(application.__file__)
METADATA = [{"name": "kafka_partition", "type": "int"}, {"name": "kafka_offset", "type": "long"}]
CREATE = {"schema": [{"name": "id", "type": "long", "required": True}, *METADATA]}


@dataclass
class Lake:
    """A landing with replicas, and the processes that were begun for it."""

    spec: Path
    running: list[Running] = field(default_factory=list)

    def land(self, *options: str) -> Running:
        self.running.append(Running.land(self.spec, options=options))
        return self.running[-1]

    def restate(self, **fields: Any) -> None:
        """Other fields of the landing, from the next run on."""
        self.spec.write_text(json.dumps(nested(**{**json.loads(self.spec.read_text()), **fields})))

    def check(self, expected: int, story: object = None) -> None:
        values = json.loads(self.spec.read_text())
        found = self.in_files(values)
        there = Counter(in_topic(values["kafka"]["bootstrap.servers"], values["topics"]))
        assert there.total() == expected
        assert (there - found, found - there) == (Counter(), Counter()), story
        verified = run("verify", str(self.spec), "--files", "--json")
        assert verified.code == 0, (verified.out, story)

    def in_files(self, values: dict[str, Any]) -> Counter[tuple[int, int, int]]:
        """Partition, offset and id of each row, as the data files at the table's head hold them."""
        found: Counter[tuple[int, int, int]] = Counter()
        for path in load_catalog(**values["catalog"]).load_table(values["table"]).inspect.files()["file_path"]:
            rows = pq.read_table(path.as_py().removeprefix("file://"), partitioning=None)
            columns = [rows.column(name).to_pylist() for name in ("kafka_partition", "kafka_offset", "id")]
            found.update(zip(*columns, strict=True))
        return found


def in_topic(bootstrap: str, topic: str) -> Iterator[tuple[int, int, int]]:
    """Partition, offset and id of each record."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": unique("reader"), "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    ended = 0
    try:
        while ended < PARTITIONS:
            for message in consumer.consume(10_000, 1.0):
                if message.error() is not None:
                    ended += 1
                    continue
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                yield partition, offset, json.loads(message.value() or b"")["id"]
    finally:
        consumer.close()


class Driver:
    """What spark-submit runs, in a session of processes of its own."""

    def __init__(self, folder: Path, job: WindowJob, world: World) -> None:
        folder.mkdir()
        (folder / "job.json").write_text(job.to_json())
        Secrets.save_together(folder / "secrets.json", [world.secrets])
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(APPLICATION), "--job", "job.json", "--secrets", "secrets.json"],
                cwd=folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(APPLICATION.parents[2]),
                    "PYSPARK_PYTHON": sys.executable,
                    "PYSPARK_SUBMIT_ARGS": "--master local[1] --conf spark.ui.enabled=false pyspark-shell",
                    "SPARK_LOCAL_IP": "127.0.0.1",
                },
            )

    @property
    def log_text(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def at_work(self) -> bool:
        """Has it reported a slice, or seen that one is reported?"""
        return "slice " in self.log_text

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


def workers(running: Running) -> list[psutil.Process]:
    """Spark's Python workers that have slices in hand, the busiest first: forks of their daemon."""
    found: list[tuple[float, psutil.Process]] = []
    for process in psutil.Process(running.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "pyspark.daemon" in " ".join(process.cmdline()) and not process.children():
                found.append((sum(process.cpu_times()[:2]), process))
    return [process for _, process in sorted(found, key=lambda each: -each[0])]


@pytest.fixture
def make_lake(
    bootstrap: str, make_topic: Callable[..., str], produce: Callable[..., Any], tmp_path: Path
) -> Iterator[Callable[..., Lake]]:
    made: list[Lake] = []

    def make(count: int, **more: Any) -> Lake:
        catalog, topic = catalog_in(tmp_path), make_topic(PARTITIONS)
        stated = {"slice_records": 50_000, "replicas": 2, "create": CREATE, "metadata_columns": True, **more}
        spec = write_spec(tmp_path, unique("replicas"), topic, f"{topic}-control", bootstrap, catalog, **stated)
        for partition in range(PARTITIONS):
            produce(topic, orders(count)[partition::PARTITIONS], partition)
        made.append(Lake(spec))
        return made[-1]

    yield make
    for each in (running for lake in made for running in lake.running):
        each.close()


@pytest.mark.heavy
def test_a_worker_that_dies_and_one_that_hangs_hold_up_no_window(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(MANY)
    running = lake.land()
    running.wait_for(": done in", times=2)
    dies, hangs, *_ = workers(running)
    hangs.send_signal(signal.SIGSTOP)
    dies.kill()
    answer = running.end(timeout=120)
    with suppress(psutil.NoSuchProcess):
        hangs.kill()
    assert answer.code == 0, answer.err
    assert "abandoned replica" in answer.err
    assert sum(line["rows"] for line in answer.lines) == MANY
    lake.check(MANY)


@pytest.mark.heavy
def test_slices_of_a_worker_that_hangs_are_done_a_second_time_and_no_others(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake(MANY, replicas=1, speculation=2)
    running = lake.land()
    running.wait_for(": done in", times=3)
    hangs = workers(running)[0]
    hangs.send_signal(signal.SIGSTOP)
    answer = running.end(timeout=180)
    with suppress(psutil.NoSuchProcess):
        hangs.kill()
    assert answer.code == 0, answer.err
    assert "group 0: started 1 slow slices a second time" in answer.err
    assert "all slices are reported; abandoned replica" in answer.err
    (line,) = answer.lines
    assert (line["rows"], line["redundant"], line["missing"]) == (MANY, 0, [])
    lake.check(MANY)


@pytest.mark.heavy
def test_a_run_that_is_instructed_to_stop_publishes_what_its_originals_have_read(
    make_lake: Callable[..., Lake],
) -> None:
    """Each slice takes longer than the first look of its tasks."""
    lake = make_lake(LARGE, slice_records=LARGE // 2)
    running = lake.land()
    running.wait_for("records read")
    time.sleep(2.0)
    running.kill(signal.SIGTERM)
    answer = running.end()
    assert answer.code == 128 + signal.SIGTERM, answer.err
    assert "Traceback" not in answer.err
    (line,) = answer.lines
    assert 0 < line["rows"] < LARGE
    assert run("land", str(lake.spec), "--json", timeout=LAND_SECONDS).code == 0
    lake.check(LARGE)


@pytest.mark.heavy
def test_a_spark_connect_server_runs_each_replica_as_an_operation_of_its_own(
    make_lake: Callable[..., Lake], connect_server: ConnectServer
) -> None:
    lake = make_lake(100_000, slice_records=10_000, groups=2, spark={"remote": connect_server.url})
    for total in (100_000, 100_000):
        answer = run("land", str(lake.spec), "--json", timeout=LAND_SECONDS)
        assert answer.code == 0, answer.err
        lake.check(total)


@pytest.mark.heavy
@pytest.mark.parametrize("killed", [0, 1, None], ids=["the original dies", "the replica dies", "nobody dies"])
def test_of_two_drivers_with_the_same_slices_one_dies(
    make_world: Callable[..., World], produce: Callable[..., Any], tmp_path: Path, killed: int | None
) -> None:
    """Each is a process with a Java and workers of its own, as two Airflow workers have them."""
    world = make_world(partitions=2, dead_letter_table=None, replicas=2, slice_records=50_000)
    for partition in range(2):
        produce(world.landing.topics, records(partition * 200_000, 200_000), partition)
    opened = world.open("a")
    with world.session() as session:
        job = group_job(world.landing, session.control, opened.groups[0], "test")
    assert job is not None
    drivers = [Driver(tmp_path / str(n), replace(job, replica=n).begun(), world) for n in range(2)]
    try:
        until(lambda: all(driver.at_work for driver in drivers), timeout=120, what="slices in hand")
        if killed is not None:
            drivers[killed].kill()
        codes = [driver.process.wait(300) for driver in drivers]
    finally:
        for driver in drivers:
            driver.kill()
    assert codes == [-signal.SIGKILL if n == killed else 0 for n in range(2)], [d.log_text for d in drivers]
    closed = world.close("a", opened)
    assert (closed.rows, closed.missing) == (400_000, ())
    print("redundant reports:", closed.redundant, "; ".join(d.log_text.splitlines()[-1] for d in drivers if d.log_text))
    world.check(Counter(range(400_000)))
    check_verified(world)


TURNS = 8


def _blow(process: subprocess.Popen[bytes], chance: random.Random) -> str:
    """One process below a landing dies or hangs, or the landing is reported to end."""
    kind = chance.choice(["dies", "dies", "hangs", "ends"])
    if kind == "ends":
        process.send_signal(signal.SIGTERM)
        # It may have a worker that hangs.
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)
        return "told to end"
    with suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
        if family:
            number = chance.randrange(len(family))
            family[number].send_signal(signal.SIGKILL if kind == "dies" else signal.SIGSTOP)
            return f"process {number} of {len(family)} {kind}"
    return "nobody"


def _end(process: subprocess.Popen[bytes]) -> None:
    """The landing and all that it has begun, at once: also what hangs, and what has no parent any more."""
    for pid in psutil.pids():
        with suppress(ProcessLookupError):
            if os.getsid(pid) == process.pid:
                os.kill(pid, signal.SIGKILL)
    process.wait(LAND_SECONDS)


LONG = [pytest.param(seed, marks=pytest.mark.campaign) for seed in (2, 3, 4)]


@pytest.mark.parametrize("seed", [pytest.param(1, marks=pytest.mark.heavy), *LONG])
@pytest.mark.timeout(3000)
def test_random_deaths_with_replicas_and_changing_groups_lose_and_double_nothing(
    make_lake: Callable[..., Lake], produce: Callable[..., Any], seed: int
) -> None:
    chance, lake, story = random.Random(seed), make_lake(0, slice_records=2_000), list[str]()
    topic, produced = json.loads(lake.spec.read_text())["topics"], 0
    for turn in range(TURNS):
        replicas, groups = chance.choice([1, 2, 2, 3]), chance.choice([1, 2, 3])
        lake.restate(replicas=replicas, groups=groups, group_by=chance.choice(["partition", "load"]))
        logged = Path(f"{lake.spec}.{turn}.log")
        with logged.open("wb") as log:
            process = subprocess.Popen(
                [*COMMAND, "land", str(lake.spec), "--follow", "--window-age", "1s"],
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        blows, rounds = list[str](), chance.randrange(4, 14)
        while rounds and process.poll() is None:
            # What dies before that is Spark's start, of which other tests know enough.
            at_work = b": slices: " in logged.read_bytes()
            rounds -= at_work
            count = chance.randrange(500, 8_000) if at_work or not produced else 100
            for partition in range(PARTITIONS):
                produce(topic, orders(count, produced)[partition::PARTITIONS], partition)
            produced += count
            time.sleep(chance.uniform(0.2, 2.0))
            if at_work and chance.random() < 0.3:
                blows.append(_blow(process, chance))
        if process.poll() is None:
            blows.append("everything dies")
        _end(process)
        story.append(f"{turn}: {replicas} replicas, {groups} groups: {', '.join(blows) or process.returncode}")
    done = run("land", str(lake.spec), "--json", timeout=LAND_SECONDS)
    assert done.code == 0, (story, done.err[-3000:])
    print(json.dumps({"produced": produced, "story": story}, indent=1))
    lake.check(produced, story)
