# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server that is the driver of a cluster, and what is killed of both meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_provider_lakecommit.spark.job import WindowJob
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from dev.servers.connect import ConnectServer
from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import CONF, SLICES, Backlog
from tests.support.cluster_gate import ClusterGate
from tests.support.groups import group_job
from tests.support.waiting import PATIENCE, until
from tests.support.world import World, records

pytestmark = pytest.mark.cluster

Make = Callable[..., Backlog]


@pytest.fixture
def connect(cluster: StandaloneCluster, tmp_path: Path) -> Iterator[ConnectServer]:
    # The executors do not have this package, so their workers are not made by its daemon.
    conf = {**CONF, "spark.python.daemon.module": "pyspark.daemon"}
    with ConnectServer(tmp_path / "connect", master=cluster.url, conf=conf) as server:
        yield server


def test_the_death_of_the_connect_server_costs_the_slices_in_hand(
    connect: ConnectServer, gate: ClusterGate, make_backlog: Make
) -> None:
    backlog = make_backlog({"remote": connect.url})
    with backlog.landing() as landing:
        held = gate.hold_after_first()
        connect.kill()
        until(lambda: gate.dead(held) == held, what="the end of its tasks")
        outcome = landing.end()
    assert outcome.code == 1
    assert "cannot be reached" in outcome.err
    connect.start()
    gate.open()
    answer = backlog.land()
    assert answer.code == 0, answer.err
    assert gate.again == held
    backlog.check()


CLIENT = """
import sys
from airflow_provider_lakecommit.spark.launch.connect import ConnectEngine
from airflow_provider_lakecommit.spark.job import Secrets, WindowJob
job, secrets = WindowJob.from_json(sys.stdin.readline()), Secrets.from_json(sys.stdin.readline())
ConnectEngine(sys.argv[1], deployment="test", landing=job.plan.landing).run(job, secrets)
"""


def test_the_work_of_a_killed_attempt_goes_on_and_is_adopted(
    connect: ConnectServer, gate: ClusterGate, make_world: Callable[..., World], produce: Callable[..., object]
) -> None:
    world = make_world(partitions=1, groups=1, slice_records=40, dead_letter_table=None)
    produce(str(world.landing.topics), records(0, 200), partition=0)
    opened, secrets = world.open("run"), world.secrets
    [ticket] = opened.groups

    def left() -> WindowJob | None:
        with world.session() as session:
            return group_job(world.landing, session.control, ticket, "test")

    job = left()
    assert job is not None
    command = [sys.executable, "-W", "ignore", "-c", CLIENT, connect.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as killed:
        assert killed.stdin is not None
        killed.stdin.write(f"{job.to_json()}\n{secrets.to_json()}\n")
        killed.stdin.close()
        gate.await_begun(2)
        killed.kill()
    engine = ConnectEngine(connect.url, deployment="test", landing=world.landing.name)
    adopting = threading.Thread(target=engine.run, args=(job, secrets), daemon=True)
    adopting.start()
    until(lambda: engine._running != [], what="an attempt that waits for the earlier one's job")
    gate.open()
    adopting.join(PATIENCE)
    engine.close()
    assert left() is None
    assert (gate.again, len(gate.begun)) == (set(), 5)
    world.close("run", opened)
    world.check(Counter(range(200)))


def test_the_death_of_an_executor_of_a_connect_server_costs_the_slice_in_its_hands(
    connect: ConnectServer, cluster: StandaloneCluster, gate: ClusterGate, make_backlog: Make
) -> None:
    backlog = make_backlog({"remote": connect.url})
    with backlog.landing() as landing:
        gate.await_begun(2)
        held = set(gate.begun)
        assert cluster.workers[0].kill_executors()
        until(lambda: gate.dead(held) != set(), what="the death of a task")
        dead = gate.dead(held)
        gate.open()
        answer = landing.end()
    assert answer.code == 0, answer.err
    assert (len(dead), gate.again, len(gate.begun)) == (1, dead, SLICES)
    backlog.check()
