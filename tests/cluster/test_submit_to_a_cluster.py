# SPDX-License-Identifier: Apache-2.0
"""The write task's spark-submit on a real cluster, in client mode: what it lands, what is killed of it, and where the
settings of its connections are seen.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_lakecommit.cycle.results import Opened
from airflow_provider_lakecommit.exceptions import SpecError
from airflow_provider_lakecommit.hooks.spark import SparkMaster, SparkSubmit, spark_master
from airflow_provider_lakecommit.spark.job import SliceResult, WindowJob
from dev.processes import descendants, living
from dev.servers.standalone import StandaloneCluster
from tests.cluster.backlog import CONF
from tests.support.cluster_gate import ClusterGate
from tests.support.groups import group_job, group_write
from tests.support.steps import check_verified
from tests.support.waiting import PATIENCE, until
from tests.support.world import World, records

pytestmark = pytest.mark.cluster

CANARY = "canary-3e77b1"
SLICE, SLICES = 40, 5


class Write(threading.Thread):
    """What the write task of a run does, in a thread: its groups, each by one job after another."""

    def __init__(self, world: World, opened: Opened, conf: Mapping[str, str] | None = None) -> None:
        super().__init__(daemon=True)
        self.world, self.opened = world, opened
        self.engine = SparkSubmit("spark_default", conf={**CONF, **(conf or {})}, grace=timedelta(seconds=5))
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            with self.world.session() as session:
                for ticket in self.opened.groups:
                    group = group_write(self.world.landing, session.control, ticket, log=self.world.lines.append)
                    if (job := group.left()) is not None:
                        group.run(job, self._submit)
        except Exception as e:
            self.error = e

    def _submit(self, job: WindowJob) -> list[SliceResult]:
        # All settings travel alike, and clients without a login refuse a password.
        return self.engine.run(job, replace(self.world.secrets, kafka={**self.world.kafka, "client.rack": CANARY}))

    def ended(self) -> bool:
        """Is its group all reported then?"""
        self.join(PATIENCE)
        assert not self.is_alive()
        assert self.error is None
        with self.world.session() as session:
            jobs = [group_job(self.world.landing, session.control, t, "test") for t in self.opened.groups]
        return jobs == [None]


@pytest.fixture
def world(
    make_world: Callable[..., World],
    produce: Callable[..., object],
    cluster: StandaloneCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> World:
    """With a window of one group before it."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": cluster.url}))
    world = make_world(partitions=1, groups=1, slice_records=SLICE, dead_letter_table=None)
    produce(str(world.landing.topics), records(0, SLICE * SLICES), partition=0)
    return world


def check(world: World) -> None:
    world.check(Counter(range(SLICE * SLICES)))
    check_verified(world)


def test_a_window_lands_and_no_worker_keeps_a_setting_of_its_connections(
    world: World, cluster: StandaloneCluster, gate: ClusterGate, capfd: pytest.CaptureFixture[str]
) -> None:
    opened = world.open("run")
    write = Write(world, opened)
    gate.await_begun(2)
    held = places_of(CANARY, cluster)
    gate.open()
    assert write.ended()
    world.close("run", opened)
    assert gate.again == set()
    assert all(".zip/" in note.package for note in gate.notes), "the package is not the one that was sent"
    assert (held, places_of(CANARY, cluster)) == ([], [])
    assert places_of("airflow_provider_lakecommit", cluster), "looked in the wrong places"
    assert CANARY not in "".join(capfd.readouterr())
    check(world)


def test_a_window_lands_with_the_libraries_of_an_archive(
    world: World, cluster: StandaloneCluster, gate: ClusterGate, archive_conf: dict[str, str]
) -> None:
    opened = world.open("run")
    gate.open()
    assert Write(world, opened, archive_conf).ended()
    world.close("run", opened)
    assert all(note.from_archive for note in gate.notes)
    check(world)


def places_of(word: str, cluster: StandaloneCluster) -> list[str]:
    """Files of the workers, and arguments of processes, that hold a word."""
    files = [f for worker in cluster.workers for f in worker.directory.rglob("*") if f.is_file()]
    found = [str(f) for f in files if word.encode() in f.read_bytes() or word in f.name]
    return found + [p.command for p in living().values() if word in p.command]


@pytest.mark.parametrize("dies", ["executor", "driver"])
def test_the_death_of_an_executor_or_the_driver_costs_the_slices_in_its_hands(
    world: World, cluster: StandaloneCluster, gate: ClusterGate, dies: str
) -> None:
    opened = world.open("run")
    write = Write(world, opened)
    gate.await_begun(2)
    held = set(gate.begun)
    if dies == "executor":
        assert cluster.workers[0].kill_executors()
    else:
        for process in descendants(os.getpid(), living()):
            if "org.apache.spark.deploy.SparkSubmit" in process.command:
                os.kill(process.pid, signal.SIGKILL)
    lost = 1 if dies == "executor" else 2
    until(lambda: len(gate.dead(held)) == lost, what="the death of tasks")
    dead = gate.dead(held)
    gate.open()
    # A job that has lost its driver has ended; the task's next attempt does the rest.
    assert write.ended() == (dies == "executor")
    if dies == "driver":
        assert Write(world, opened).ended()
    world.close("run", opened)
    assert gate.again == dead
    check(world)


def test_cluster_mode_which_a_standalone_cluster_does_not_have_for_python_is_refused_by_name(
    cluster: StandaloneCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """That Spark refuses it itself is what the message says: should a release take it, this test tells."""
    stated = {"conn_type": "spark", "host": cluster.url, "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(stated))
    with pytest.raises(SpecError, match="LC5312"):
        spark_master("spark_default")
    (tmp_path / "main.py").touch()
    environment = SparkMaster(local=True, driver_on_cluster=False).environment
    command = ["spark-submit", "--master", cluster.url, "--deploy-mode", "cluster", str(tmp_path / "main.py")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert answer.returncode != 0
    assert "not supported for python applications on standalone clusters" in answer.stdout + answer.stderr
