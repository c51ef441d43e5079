# SPDX-License-Identifier: Apache-2.0
"""A Spark Connect server that is the driver of a cluster, and what is killed of both meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dev.servers.connect import ConnectServer
from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import CONF, SLICES, Backlog
from tests.support.cluster_gate import ClusterGate
from tests.support.waiting import until

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
        gate.await_begun(2)
        first = min(gate.begun)
        gate.let_pass(first)
        gate.await_begun(3)
        held = {note.first for note in gate.notes if note.first != first}
        connect.kill()
        until(lambda: gate.dead(held) == held, what="the end of its tasks")
        told = landing.end()
    assert told.code == 1
    assert "cannot be reached" in told.err
    connect.start()
    gate.open()
    answer = backlog.land()
    assert answer.code == 0, answer.err
    assert gate.again == held
    backlog.check()


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
