# SPDX-License-Identifier: Apache-2.0
"""A record that kills the process that handles it, on each kind of Spark: it is blocked alone, by name.

A cluster and a Spark Connect server do not have the package installed: their workers, and the processes apart that
these start, have it only as it was sent. What dies is a worker (no memory, a crash in a library), or an executor with
all that is in it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from airflow_provider_lakecommit.core.blocks import FAILURES_TO_BLOCK
from airflow_provider_lakecommit.cycle.commit.prepared import prepare_for_commit
from airflow_provider_lakecommit.hooks.spark import SparkSubmit
from airflow_provider_lakecommit.operations.decisions.unblock import unblock
from airflow_provider_lakecommit.spark.job import Secrets, SliceResult, WindowJob
from airflow_provider_lakecommit.spark.launch.base import Engine
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from dev.servers.connect import ConnectServer
from dev.servers.standalone import StandaloneMaster, StandaloneWorker
from tests.support.groups import group_write
from tests.support.steps import check_verified
from tests.support.world import World, records

pytestmark = [pytest.mark.faults, pytest.mark.campaign]

DEADLY = """
import os
import sys
from pathlib import Path

if os.environ["DEADLY_HIDES"]:
    sys.meta_path[:] = [f for f in sys.meta_path if "airflow_provider_lakecommit" not in getattr(f, "__module__", "")]

import pyarrow.json

read = pyarrow.json.read_json


def reading(source, *args, **options):
    if b"poison" in source.read_buffer().to_pybytes():
        (Path(__file__).parent / f"died-{os.getpid()}").touch()
        os.kill(victim(os.getpid()), 9)
        os._exit(0)
    source.seek(0)
    return read(source, *args, **options)


def victim(pid):
    if not (Path(__file__).parent / "all").exists() or "slice_process" in Path("/proc/self/cmdline").read_text():
        return pid
    while "java" not in os.readlink(f"/proc/{pid}/exe"):
        pid = int(Path(f"/proc/{pid}/status").read_text().partition("PPid:")[2].split()[0])
    return pid


pyarrow.json.read_json = reading
"""


class Sparks:
    """Sparks whose workers die of poison, each started when it is first requested."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self._stack = stack
        self._servers: dict[str, str] = {}
        (folder / "sitecustomize.py").write_text(DEADLY)

    def engine(self, kind: str, world: World, patch: pytest.MonkeyPatch) -> Engine:
        if kind == "connect":
            return ConnectEngine(self._url(kind), deployment="test", landing=world.landing.name)
        host = "local[2]" if kind == "local" else self._url(kind)
        patch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": host}))
        if kind == "local":
            self._poison(patch, hides=False)
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "600m"}
        return SparkSubmit("spark_default", conf=conf, grace=timedelta(seconds=5))

    @property
    def deaths(self) -> int:
        return len(list(self.folder.glob("died-*")))

    def _url(self, kind: str) -> str:
        if kind not in self._servers:
            with pytest.MonkeyPatch.context() as patch:
                self._poison(patch, hides=True)
                self._servers[kind] = self._connect() if kind == "connect" else self._cluster()
        return self._servers[kind]

    def _poison(self, patch: pytest.MonkeyPatch, *, hides: bool) -> None:
        patch.setenv("PYTHONPATH", str(self.folder), prepend=os.pathsep)
        patch.setenv("DEADLY_HIDES", "yes" if hides else "")

    def _connect(self) -> str:
        conf = {"spark.python.daemon.module": "pyspark.daemon"}
        server = ConnectServer(self.folder / "connect", conf=conf)
        return self._stack.enter_context(server).url

    def _cluster(self) -> str:
        master = self._stack.enter_context(StandaloneMaster(self.folder / "master"))
        self._stack.enter_context(StandaloneWorker(self.folder / "worker", master))
        return master.url


@pytest.fixture(scope="module")
def all_sparks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sparks]:
    with ExitStack() as stack:
        yield Sparks(tmp_path_factory.mktemp("deadly"), stack)


@pytest.fixture
def sparks(all_sparks: Sparks) -> Iterator[Sparks]:
    """Nobody has died yet, and what dies is one process."""
    yield all_sparks
    for note in [*all_sparks.folder.glob("died-*"), *all_sparks.folder.glob("all")]:
        note.unlink()


def run(world: World, engine: Engine, name: str) -> None:
    """One whole cycle, its groups as the write task does them."""
    opened = world.open(name)
    secrets = world.secrets
    with world.session() as session:
        for ticket in opened.groups:
            group = group_write(world.landing, session.control, ticket, log=world.lines.append)
            if (job := group.left()) is not None:
                group.run(job, partial(_run, engine, secrets))
    world.close(name, opened)


def _run(engine: Engine, secrets: Secrets, job: WindowJob) -> list[SliceResult]:
    return engine.run(job, secrets)


def blocked(world: World) -> list[tuple[int, int, int, str]]:
    """Partition, first and last offset of what is blocked, and why."""
    with world.session() as session:
        state = session.read_state(prepare_for_commit(session).ledgers).state
    reasons = [str(b) for b in state.blocked]
    return [(p.partition, r.start, r.end, "; ".join(reasons)) for p, r in state.blocked_coverage.items()]


@pytest.mark.parametrize(
    ("kind", "dies"), [("local", "worker"), ("connect", "worker"), ("standalone", "worker"), ("standalone", "all")]
)
def test_a_record_that_kills_its_process_is_blocked_alone(
    sparks: Sparks,
    make_world: Callable[..., World],
    produce: Callable[..., list[tuple[int, int]]],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    dies: str,
) -> None:
    world = make_world(partitions=2, slice_records=400, dead_letter_table=None)
    topic = str(world.landing.topics)
    produce(topic, records(0, 3), partition=0)
    produce(topic, [*records(10, 1), json.dumps({"id": 999, "name": "poison"}), *records(12, 1)], partition=1)
    if dies == "all":
        (sparks.folder / "all").touch()
    engine = sparks.engine(kind, world, monkeypatch)
    engine.start()
    for n in range(FAILURES_TO_BLOCK):
        assert blocked(world) == []
        before = sparks.deaths
        run(world, engine, f"run-{n}")
        assert sparks.deaths > before + 1, "nobody died apart from the job"
        world.check(Counter([0, 1, 2, 10]))
    [(partition, start, end, why)] = blocked(world)
    assert (partition, start, end) == (1, 1, 2)
    assert "was killed by signal 9" in why

    with world.session() as session:
        unblock(session, skip=True)
    run(world, engine, "after")
    engine.close()
    world.check(Counter([0, 1, 2, 10, 12]))
    check_verified(world)
